"""Node clipping: a multiple of nodes, each dropped with the same probability, the same batch every time."""

import numpy as np
import pytest
import torch

import shoal
from shoal.errors import ShoalError
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from shoal.sampling.clipped import ClippedSampler
from small_graphs import make_labelled


def test_batches_are_those_of_the_source_without_the_remainder():
    source = shoal.RandomWalkSampler(make_labelled(300), roots=30, depth=2, coverage=5)
    clipped = ClippedSampler(source, 16)
    for k in range(5):
        batch, before = clipped.sample(k), source.draw_nodes(k)
        assert batch.num_nodes == len(before) - len(before) % 16
        assert np.isin(batch.nodes, before).all()
        assert (np.diff(batch.nodes) > 0).all()
        indptr, indices, _ = source.extract(batch.nodes)
        assert np.array_equal(batch.blocks[0].indices, indices)
        assert np.array_equal(batch.blocks[0].indptr, indptr)
        assert torch.equal(batch.node_norm, torch.from_numpy(source.norms.node_norm[batch.nodes]))
        assert np.array_equal(clipped.draw_nodes(k), batch.nodes)


def test_every_node_of_a_batch_is_dropped_equally_often():
    """A cluster of 10 nodes, 8 kept: each is dropped with probability 1/5, in 3,000 batches within 4.5 standard errors."""
    graph = make_labelled(10)
    clipped = ClippedSampler(shoal.ClusterSampler(graph, assignment=np.zeros(10, np.int64)), 8)
    kept = np.zeros(10)
    for k in range(3000):
        kept[clipped.draw_nodes(k)] += 1
    assert np.abs(kept / 3000 - 0.8).max() < 4.5 * (0.8 * 0.2 / 3000) ** 0.5


def test_a_batch_smaller_than_the_multiple_stays_whole():
    source = shoal.RandomWalkSampler(make_labelled(300), roots=3, depth=2)
    assert np.array_equal(ClippedSampler(source, 64).draw_nodes(0), source.draw_nodes(0))


def test_a_run_is_told_by_its_configuration():
    config = make_config({"training": {"node_multiple": 16}, "sampler": {"name": "random-walk", "roots": 30}})
    config.validate()
    trainer = make_trainer(config, make_labelled(300))
    assert all(trainer.sampler.sample(k).num_nodes % 16 == 0 for k in range(3))
    trainer.fit(1)
    config.sampler.clear()
    config.method = "full"
    with pytest.raises(ShoalError, match=r"leave out training\.node_multiple"):
        config.validate()


def test_batches_without_whole_subgraphs_are_not_clipped():
    with pytest.raises(ShoalError, match="leave out node_multiple"):
        ClippedSampler(shoal.NeighborSampler(make_labelled(100)), 8)
