"""Features read ahead from disk: the same batches and weights for every policy and type; threads and errors end well."""

import gc
import os
import threading
import time

import numpy as np
import pytest
import torch

import shoal
from shoal.errors import ShoalError
from shoal.kernels.encoding import FEATURE_TYPES
from shoal.sampling.feature_cache import POLICIES, FeatureCaching
from shoal.sampling.feature_stream import STREAM, FeatureStream
from shoal.sampling.row_file import READER
from shoal.sampling.stream import BatchStream


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A graph with features of every type, by type."""
    folder = tmp_path_factory.mktemp("graphs")
    made = shoal.load("kronecker", scale=11, degree=8, seed=1)
    return {
        type: shoal.open_graph(shoal.save_graph(made, folder / type, features=type)) for type in FEATURE_TYPES
    }


def count_threads():
    return sum(thread.name.startswith((STREAM, READER)) for thread in threading.enumerate())


def open_stream(sampler, start=0, **settings):
    caching = FeatureCaching(**{"cache": 0.1, "window": 5, "readers": 3, **settings})
    return FeatureStream(sampler, start, caching.make_cache(sampler.graph), caching)


def sample_some(stream, count, first=0):
    for k in range(first, first + count):
        stream.sample(k)


def check_batches(sampler, start=0, count=30, **settings):
    """Batches from a stream have the features that their nodes have."""
    stream = open_stream(sampler, start, **settings)
    try:
        found = 0
        for k in range(start, start + count):
            batch = stream.sample(k)
            assert "x" in vars(batch), "the stream did not bring the features"
            assert torch.equal(batch.x, sampler.sample(k).x)
            counts = stream.take_counts(k)
            assert counts.rows == batch.num_nodes == counts.found + counts.read
            assert counts.read_bytes >= counts.read * stream.file.row_bytes
            found += counts.found
        assert found > 0
    finally:
        stream.close()
    assert count_threads() == 0


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "mapped"])
@pytest.mark.parametrize("type", FEATURE_TYPES)
def test_batches_have_the_bits_of_the_stored_features(stored, type, policy):
    check_batches(shoal.FrontierSampler(stored[type], 150, 20, seed=3), policy=policy)


@pytest.mark.parametrize("direct", [False, True])
def test_batches_from_any_number_on(stored, direct):
    check_batches(shoal.RandomWalkSampler(stored["int8"], roots=40, seed=3), start=1000, direct=direct)


def test_features_of_an_inductive_training_graph_are_those_of_its_parent(stored):
    sampler = shoal.FrontierSampler(stored["float16"], 150, 20, setting="inductive")
    assert sampler.graph.parent is not None
    check_batches(sampler)


def test_layered_batches_get_their_features_in_their_own_order(stored):
    sampler = shoal.NeighborSampler(stored["float16"], fanouts=(3, 3), batch_size=50)
    assert (np.diff(sampler.sample(0).nodes) < 0).any()
    check_batches(sampler)
    check_batches(shoal.ShardedSampler(sampler, 1, 3), count=8)


def test_ranks_with_dealt_clusters_get_their_features(stored):
    graph = stored["float32"]
    dealt = shoal.DealtSampler(
        graph,
        "frontier",
        assignment=np.arange(graph.num_nodes) % 6,
        rank=1,
        num_ranks=2,
        budget=100,
        frontier=20,
    )
    check_batches(dealt, count=2 * dealt.num_batches)


def test_a_sampler_that_tells_other_nodes_still_has_its_own_features(stored):
    class Odd(shoal.FrontierSampler):
        def list_inputs(self, k):
            return super().list_inputs(k)[::-1]

    sampler = Odd(stored["float16"], 150, 20)
    stream = open_stream(sampler)
    for k in range(3):
        assert torch.equal(stream.sample(k).x, sampler.sample(k).x)
    stream.close()


def test_dropping_a_stream_ends_its_threads(stored):
    stream = open_stream(shoal.FrontierSampler(stored["float32"], 150, 20))
    stream.sample(0)
    assert count_threads() > 0
    del stream
    gc.collect()
    ends = time.monotonic() + 20
    while count_threads() and time.monotonic() < ends:
        time.sleep(0.01)
    assert count_threads() == 0


def test_a_closed_stream_does_not_hang(stored):
    stream = open_stream(shoal.FrontierSampler(stored["float32"], 150, 20))
    stream.close()
    with pytest.raises(ShoalError, match="batch 100 was requested from a closed feature stream"):
        stream.sample(100)


def test_an_error_while_drawing_is_raised_when_its_batch_is_due(stored):
    class Failing(shoal.FrontierSampler):
        def list_inputs(self, k):
            if k == 12:
                raise ShoalError("no batch 12")
            return super().list_inputs(k)

    stream = open_stream(Failing(stored["float32"], 150, 20), policy="lru")
    assert [stream.sample(k).index for k in range(10)] == list(range(10))  # but for two that were being read
    with pytest.raises(ShoalError, match="no batch 12"):
        sample_some(stream, 3, first=10)
    stream.close()
    assert count_threads() == 0


@pytest.mark.parametrize("free", [10**4, 10**9])
def test_files_larger_than_free_memory_bypass_the_page_cache(stored, free, monkeypatch):
    monkeypatch.setattr("shoal.sampling.feature_stream.available_memory", lambda: free)
    sampler = shoal.FrontierSampler(stored["float32"], 150, 20)
    for settings, direct in (({}, free == 10**4), ({"direct": True}, True), ({"direct": False}, False)):
        stream = open_stream(sampler, **settings)
        assert stream.file.is_direct == direct
        assert torch.equal(stream.sample(0).x, sampler.sample(0).x)
        stream.close()


def test_the_first_batches_do_not_wait_for_the_whole_window(stored):
    class Recording(shoal.FrontierSampler):
        drawn = 0

        def list_inputs(self, k):
            self.drawn = max(self.drawn, k)
            return super().list_inputs(k)

    sampler = Recording(stored["float32"], 150, 20)
    stream = open_stream(sampler, window=200)
    stream.sample(0)
    assert sampler.drawn < 100
    sample_some(stream, 60, first=1)
    assert sampler.drawn >= 60 + 200
    stream.close()


def copy_graph(graph, folder):
    return shoal.open_graph(shoal.save_graph(graph, folder))


@pytest.mark.parametrize("direct", [False, True])
def test_a_file_truncated_in_use_is_named(stored, tmp_path, direct):
    graph = copy_graph(stored["float32"], tmp_path / "g")
    sampler = shoal.FrontierSampler(graph, 150, 20)
    stream = open_stream(sampler, direct=direct)
    os.truncate(tmp_path / "g" / "x.npy", 50_000)
    with pytest.raises(ShoalError, match=r"x.npy ends at byte 50,000 but row [\d,]+ ends at .* truncated"):
        sample_some(stream, 50)
    stream.close()
    assert count_threads() == 0


def test_a_file_replaced_before_it_is_read_is_refused(stored, tmp_path):
    graph = copy_graph(stored["float32"], tmp_path / "g")
    os.rename(tmp_path / "g", tmp_path / "old")  # keeps the inode from being used again
    copy_graph(stored["float32"], tmp_path / "g")
    with pytest.raises(
        ShoalError, match=r"x.npy was replaced since the graph was opened: open the graph again"
    ):
        open_stream(shoal.FrontierSampler(graph, 150, 20))
    os.rename(tmp_path / "g", tmp_path / "new")
    os.rename(tmp_path / "old", tmp_path / "g")
    stream = open_stream(shoal.FrontierSampler(graph, 150, 20))
    sample_some(stream, 2)
    stream.close()
    assert count_threads() == 0


# -- training ----------------------------------------------------------------------------------------------


def train(graph, epochs, tmp_path=None, threads=0, resume=False, setting="transductive", **settings):
    sampler = shoal.FrontierSampler(graph, 200, 20, seed=5, setting=setting)
    model = shoal.GNN("sage", graph.num_features, 16, graph.num_classes, num_layers=2, seed=1)
    caching = FeatureCaching(**{"cache": 0.1, "window": 4, **settings})
    trainer = shoal.Trainer(
        model, graph, sampler, sampling_threads=threads, features=caching, checkpoints=tmp_path, eval_every=50
    )
    if resume:
        trainer.resume(tmp_path)
    records = trainer.fit(epochs)
    assert count_threads() == 0
    return torch.cat([value.flatten() for value in model.parameters()]).detach(), records


@pytest.mark.parametrize("setting", ["transductive", "inductive"])
def test_weights_do_not_depend_on_policy_or_threads(stored, setting):
    graph = stored["bfloat16"]
    expected, records = train(graph, 2, policy="mapped", setting=setting)
    assert not any(name.startswith("feature_") for name in records[0])
    told = []
    for policy, threads in (("lookahead", 0), ("lookahead", 2), ("lru", 1), ("degree", 0)):
        found, records = train(graph, 2, threads=threads, policy=policy, setting=setting)
        assert torch.equal(found, expected), (policy, threads)
        told.append([(one["feature_rows"], one["feature_found"], one["feature_read"]) for one in records])
    assert told[0] == told[1]  # what is counted does not depend on threads either
    assert told[0] != told[2]
    rows = records[0]["feature_rows"]
    assert rows == sum(
        shoal.FrontierSampler(graph, 200, 20, seed=5, setting=setting).sample(k).num_nodes
        for k in range(records[0]["batches"])
    )


def test_a_resumed_run_has_the_weights_of_an_uninterrupted_one(stored, tmp_path):
    whole, _ = train(stored["int8"], 4, tmp_path / "whole")
    train(stored["int8"], 2, tmp_path / "cut")
    resumed, _ = train(stored["int8"], 4, tmp_path / "cut", resume=True, policy="lru")
    assert torch.equal(whole, resumed)


def test_an_epoch_that_ends_early_leaves_nothing_behind(stored):
    sampler = shoal.FrontierSampler(stored["float32"], 150, 20)
    stream = BatchStream(sampler, num_threads=1, caching=FeatureCaching(cache=0.1))
    for batch in stream.take(0, 5):
        if batch.index == 2:
            break
    again = [batch.x for batch in stream.take(0, 3)]
    assert all(torch.equal(x, sampler.sample(k).x) for k, x in enumerate(again))
    stream.close()
    assert count_threads() == 0


def test_a_run_records_what_was_read(stored, tmp_path):
    from shoal.runs.config import make_config
    from shoal.runs.folder import read_metrics
    from shoal.runs.run import Run

    shoal.save_graph(stored["float16"], tmp_path / "g")
    config = make_config(
        {
            "data": str(tmp_path / "g"),
            "sampler": {"name": "frontier", "budget": 200, "frontier": 20},
            "training": {"epochs": 2},
            "model": {"hidden": 8},
            "features": {"cache": 0.2, "policy": "lru"},
        }
    )
    Run.create(tmp_path / "run", config).train()
    first, second, *_ = read_metrics(tmp_path / "run" / "metrics.jsonl")
    for record in (first, second):
        assert record["feature_rows"] == record["feature_found"] + record["feature_read"] > 0
        assert record["feature_read_bytes"] > 0
        assert record["feature_wait_seconds"] >= 0
    assert "policy: lru" in (tmp_path / "run" / "config.yaml").read_text()
    with pytest.raises(ShoalError, match=r"features.*did you mean 'policy'"):
        make_config({"features": {"polcy": "lru"}}).validate()
