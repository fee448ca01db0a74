"""LADIES with normalised rows, as its authors sample: the sums of rows, and the exact law of the estimate."""

from itertools import product

import numpy as np
import pytest
import torch

import shoal
from shoal.kernels.spmm import spmm_reference
from small_graphs import make_graph, make_labelled, make_lopsided


@pytest.mark.parametrize("directed", [False, True])
def test_weights_of_the_mean_sum_to_one_in_every_row_that_has_a_drawn_neighbour(directed):
    graph = make_labelled(200, directed=directed)
    sampler = shoal.LadiesSampler(graph, batch_size=50, layer_size=40, seed=1)
    short = 0
    for block in sampler.sample(0).blocks:
        adj = block.adjacency("mean")
        sums = spmm_reference(adj, torch.ones(block.num_columns, 1))[:, 0]
        rows = torch.repeat_interleave(torch.arange(block.num_rows), block.indptr.diff())
        has_any = torch.bincount(rows[block.indices != rows], minlength=block.num_rows) > 0
        torch.testing.assert_close(sums[has_any], torch.ones(int(has_any.sum())))
        short += int((block.indptr.diff() < block.degree[: block.num_rows]).sum())
    assert short > 50


def test_self_loops_keep_their_weight():
    graph = make_graph([(0, 0), (0, 1), (0, 2), (1, 2), (0, 3)], 4)
    sampler = shoal.LadiesSampler(graph, batch_size=4, layer_size=2, num_layers=1)
    for k in range(20):
        batch = sampler.sample(k)
        block, row = batch.blocks[0], int(np.flatnonzero(batch.nodes[:4] == 0)[0])
        entries = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
        own = block.indices[entries] == row
        assert block.edge_norm[entries][own].tolist() == [1.0]
        if len(own) > 1:
            assert float(block.edge_norm[entries][~own].sum()) == pytest.approx(3)


def test_the_mean_of_draws_is_that_of_the_enumerated_ratio():
    """All draws of 3 nodes, each with its probability: the expected operator, of which 6,000 batches are within 4.5 standard errors."""
    graph = make_lopsided()
    n, size = graph.num_nodes, 3
    a = np.zeros((n, n))
    a[np.repeat(np.arange(n), graph.degree), graph.indices] = 1
    degree = a.sum(1)
    q = (a / np.outer(degree + 1, degree + 1)).sum(0)
    q /= q.sum()
    first, second = np.zeros((n, n)), np.zeros((n, n))
    for draws in product(range(n), repeat=size):
        factor = np.bincount(draws, minlength=n) / q
        weights = a * factor
        sums = weights.sum(1, keepdims=True)
        weights = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
        first += np.prod(q[list(draws)]) * weights
        second += np.prod(q[list(draws)]) * weights**2
    sampler = shoal.LadiesSampler(graph, batch_size=n, layer_size=size, num_layers=1, seed=5)
    num_batches, found = 6_000, np.zeros((n, n))
    for k in range(num_batches):
        batch = sampler.sample(k)
        block = batch.blocks[0]
        rows = np.repeat(np.arange(n), np.diff(block.indptr.numpy()))
        weights = block.edge_norm.numpy() / degree[batch.nodes[rows]]
        np.add.at(found, (batch.nodes[rows], batch.nodes[block.indices.numpy()]), weights)
    error = np.sqrt(np.maximum(second - first**2, 0) / num_batches)
    assert (np.abs(found / num_batches - first) <= 4.5 * error + 1e-6).all()
    assert np.abs(first - a / degree[:, None]).max() > 0.05  # it is not the whole graph's mean
