"""The random-walk and full samplers and the batches they make."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.stats import chisquare

import shoal


def ring(n: int, **fields) -> shoal.Graph:
    nodes = np.arange(n)
    return shoal.Graph.from_edge_index(np.stack([nodes, (nodes + 1) % n]), n, directed=False, **fields)


@pytest.fixture(scope="module")
def blocks() -> shoal.Graph:
    return shoal.load("blocks", num_nodes=3000)


def test_a_batch_depends_on_its_number_and_the_seed_only(blocks):
    one = shoal.RandomWalkSampler(blocks, roots=50, depth=3, seed=7)
    other = shoal.RandomWalkSampler(blocks, roots=50, depth=3, seed=7)
    expected = [one.draw_nodes(k) for k in range(20)]
    with ThreadPoolExecutor(4) as pool:
        drawn = dict(zip(reversed(range(20)), pool.map(other.sample, reversed(range(20)))))
    for k, nodes in enumerate(expected):
        np.testing.assert_array_equal(drawn[k].nodes, nodes)
    assert not np.array_equal(expected[0], expected[1])
    assert not np.array_equal(
        expected[0], shoal.RandomWalkSampler(blocks, roots=50, depth=3, seed=8).draw_nodes(0)
    )


def test_a_batch_is_the_induced_subgraph_of_its_nodes(blocks):
    batch = shoal.RandomWalkSampler(blocks, roots=40, depth=2).sample(3)
    whole = sp.csr_array(
        (np.ones(blocks.num_entries), blocks.indices, blocks.indptr), shape=(blocks.num_nodes,) * 2
    )
    expected = whole[batch.nodes][:, batch.nodes].toarray()
    found = batch.blocks[0].adjacency("sum").to_torch().to_dense().numpy()
    np.testing.assert_array_equal(found, expected)
    sources, targets = batch.edge_index
    np.testing.assert_array_equal(
        sp.coo_array((np.ones(len(sources)), (targets, sources)), found.shape).toarray(), expected
    )
    np.testing.assert_array_equal(batch.x, blocks.x[batch.nodes])
    np.testing.assert_array_equal(batch.y, blocks.y[batch.nodes])


def test_walks_choose_roots_and_neighbours_uniformly():
    """Star with 4 leaves and a root set of all 5: chi-square at significance 1e-4."""
    star = shoal.Graph.from_edge_index(np.array([[0, 0, 0, 0], [1, 2, 3, 4]]), directed=False)
    sampler = shoal.RandomWalkSampler(star, roots=1, depth=1, seed=3)
    seen = np.zeros(5)  # which leaf goes with the centre
    for k in range(4000):
        nodes = sampler.draw_nodes(k)
        assert nodes[0] == 0
        assert len(nodes) == 2
        seen[nodes[1]] += 1
    assert chisquare(seen[1:]).pvalue > 1e-4


def test_a_walk_ends_at_a_sink_of_a_directed_graph():
    # 0 aggregates from 1, 1 from 2, 2 from nobody
    graph = shoal.Graph.from_edge_index(np.array([[1, 2], [0, 1]]), 3, directed=True)
    sampler = shoal.RandomWalkSampler(graph, roots=1, depth=50, seed=0)
    reached = {tuple(sampler.draw_nodes(k)) for k in range(50)}
    assert reached == {(0, 1, 2), (1, 2), (2,)}


def test_inductive_batches_hold_no_validation_or_test_node(blocks):
    sampler = shoal.RandomWalkSampler(blocks, roots=200, depth=3, setting="inductive")
    for k in range(10):
        batch = sampler.sample(k)
        assert blocks.train_mask[batch.n_id.numpy()].all()
        np.testing.assert_array_equal(batch.x, blocks.x[batch.n_id.numpy()])
        np.testing.assert_array_equal(batch.y, blocks.y[batch.n_id.numpy()])


def test_an_epoch_covers_about_as_many_nodes_as_the_training_graph(blocks):
    sampler = shoal.RandomWalkSampler(blocks, roots=100, depth=2, setting="inductive")
    drawn = sum(batch.num_nodes for batch in sampler.epoch(0))
    assert abs(drawn - blocks.train_mask.sum()) < sampler.batch_size
    first = [batch.index for batch in sampler.epoch(1)]
    assert first == list(range(sampler.num_batches, 2 * sampler.num_batches))


def test_the_full_sampler_is_the_training_graph_every_time(blocks):
    sampler = shoal.FullSampler(blocks, setting="inductive")
    assert sampler.num_batches == 1
    assert sampler.sample(0).num_nodes == blocks.train_mask.sum()
    assert shoal.FullSampler(blocks).sample(5).num_nodes == blocks.num_nodes


@pytest.mark.parametrize("settings", [{"roots": 0}, {"depth": -1}, {"roots": 2.5}])
def test_settings_that_are_not_positive_whole_numbers_are_refused(blocks, settings):
    with pytest.raises(shoal.ShoalError, match=r"expected (a whole number|1 to 2\^31)"):
        shoal.RandomWalkSampler(blocks, **settings)


def test_a_graph_without_edges_cannot_be_walked():
    empty = shoal.Graph.from_edge_index(np.empty((2, 0), np.int64), 4)
    with pytest.raises(shoal.ShoalError, match="no edges"):
        shoal.RandomWalkSampler(empty)


def test_block_operators_are_what_their_formulas_say():
    graph = shoal.Graph.from_edge_index(np.array([[0, 1, 2, 3], [1, 2, 2, 0]]), 5, directed=True)
    a = np.zeros((5, 5))
    a[[1, 2, 2, 0], [0, 1, 2, 3]] = 1  # node 2 has a self loop, 3 and 4 aggregate from nobody
    block = shoal.FullSampler(graph).sample(0).blocks[0]
    np.testing.assert_allclose(block.adjacency("sum").to_torch().to_dense(), a)
    mean = a / np.maximum(a.sum(1, keepdims=True), 1)
    np.testing.assert_allclose(block.adjacency("mean").to_torch().to_dense(), mean)
    with_loops = np.maximum(a, np.eye(5))
    scale = with_loops.sum(1) ** -0.5
    gcn = scale[:, None] * with_loops * scale
    np.testing.assert_allclose(block.adjacency("gcn").to_torch().to_dense(), gcn, rtol=1e-6)


def test_every_operator_is_transposed_right():
    graph = ring(6, x=np.eye(6))
    block = shoal.FullSampler(graph).sample(0).blocks[0]
    for kind in ("sum", "mean", "gcn"):
        adj = block.adjacency(kind)
        assert torch.equal(adj.transpose().to_torch().to_dense(), adj.to_torch().to_dense().T)
        assert adj.transpose().transpose() is adj
