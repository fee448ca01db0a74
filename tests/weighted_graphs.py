"""Small graphs with edge weights, and what aggregations of them are by dense matrices."""

import numpy as np
import scipy.sparse as sp

import shoal


def weigh(graph, low=0.1, seed=0):
    """The graph with random weights, the same both ways where it is undirected."""
    rows = np.repeat(np.arange(graph.num_nodes), graph.degree)
    one, other = (rows, graph.indices) if graph.directed else np.sort([rows, graph.indices], axis=0)
    table = np.random.default_rng(seed).uniform(low, 3, (graph.num_nodes, graph.num_nodes)).astype(np.float32)
    return graph._copy(edge_weight=table[one, other]).validate()


def make_random(num_nodes=30, directed=False, seed=0):
    """Isolated nodes, self loops and a hub."""
    generator = np.random.default_rng(seed)
    ends = generator.integers(0, num_nodes - 3, (2, 3 * num_nodes))
    ends = np.concatenate([ends, [np.zeros(12, int), np.arange(12)], [[4, 7], [4, 7]]], axis=1)
    x = generator.normal(size=(num_nodes, 5)).astype(np.float32)
    graph = shoal.Graph.from_edge_index(ends, num_nodes, directed=directed, x=x, y=np.arange(num_nodes) % 3)
    return weigh(graph.with_split())


def make_dense(graph):
    shape = (graph.num_nodes, graph.num_nodes)
    return sp.csr_array((graph.edge_weight, graph.indices, graph.indptr), shape=shape).toarray().astype(float)


def aggregate(dense, kind):
    """The operator of a kind, dense."""
    if kind == "sum":
        return dense
    if kind == "mean":
        return dense / np.where(dense.sum(1) > 0, dense.sum(1), 1)[:, None]
    looped = dense + np.diag((dense.diagonal() == 0).astype(float))
    scale = 1 / np.sqrt(looped.sum(1))
    return scale[:, None] * looped * scale
