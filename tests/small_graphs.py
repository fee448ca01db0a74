"""Small graphs that sampler tests share."""

import numpy as np

import shoal


def make_graph(edges, num_nodes, directed=False, **fields):
    return shoal.Graph.from_edge_index(
        np.array(edges).reshape(-1, 2).T, num_nodes, directed=directed, **fields
    )


def make_lopsided():
    """A hub, a triangle and a tail: degrees 4, 2, 2, 1, 2, 1."""
    return make_graph([(0, 1), (0, 2), (1, 2), (0, 3), (0, 4), (4, 5)], 6)


def make_labelled(num_nodes=600, num_classes=3, seed=0, directed=False):
    """Communities with noisy features of their class: a task that a GNN learns in a few epochs."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, num_classes, num_nodes)
    ends = generator.integers(0, num_nodes, (2, 20 * num_nodes))
    same = y[ends[0]] == y[ends[1]]
    ends = ends[:, same | (generator.random(len(same)) < 0.1)]
    x = np.eye(num_classes, 8)[y] + generator.normal(0, 0.8, (num_nodes, 8))
    graph = shoal.Graph.from_edge_index(ends, num_nodes, directed=directed, x=x.astype(np.float32), y=y)
    return graph.with_split(0.5, 0.25, seed=0)
