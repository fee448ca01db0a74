"""Predicted epochs of mini-batches, of rates that change and of very many ranks; what ranks count is in tests/distributed."""

import json
import time

import numpy as np
import pytest

import shoal as package
from shoal.analysis.batches import predict_replicas, predict_shared
from shoal.analysis.machine import Machine
from shoal.analysis.simulate import open_parts, predict_epoch
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.errors import ShoalError
from shoal.partitioning.part import make_part, split_graph
from shoal.partitioning.partition import Partition
from shoal.partitioning.stored import store_parts
from small_graphs import make_labelled

MACHINE = Machine(1e-4, 1e8, dense_rate=1e9, sparse_rate=1e8, layer_seconds=1e-3)


@pytest.fixture(scope="module")
def graph():
    return make_labelled(300)


@pytest.fixture
def model():
    return package.GNN("sage", 8, 16, 3, num_layers=2)


def test_some_batches_stand_for_an_epoch(graph, model):
    parts = split_graph(graph, np.arange(300) % 3, 3)
    sampler = package.NodeSampler(graph, budget=50)
    whole, some = (predict_shared(parts, sampler, model, MACHINE, num_batches=count) for count in (None, 2))
    assert whole.steps == some.steps == sampler.num_batches == 6
    assert some.num_bytes == pytest.approx(whole.num_bytes, rel=0.2)
    assert some.num_bytes % 3 == 0
    assert whole.sampling > 0
    assert whole.epoch == pytest.approx(whole.sampling + whole.compute + sum(whole.exposed) + whole.reduce)


def test_what_serves_no_batches_is_refused(graph, model):
    parts = split_graph(graph, np.arange(300) % 3, 3)
    sampler = package.NodeSampler(graph, budget=50)
    for settings in ({"staleness": 1}, {"boundary_rate": 0.5}):
        with pytest.raises(ShoalError, match="leave out the sampler"):
            predict_shared(parts, sampler, model, MACHINE, exchange=PointToPoint(**settings))
    with pytest.raises(ShoalError, match="no whole subgraphs"):
        predict_shared(parts, package.NeighborSampler(graph), model, MACHINE)


def test_ranks_with_batches_of_their_own_share_the_steps_and_sum_gradients(graph, model):
    sampler = package.NodeSampler(graph, budget=50)
    one, three = (predict_replicas(sampler, model, MACHINE, count) for count in (1, 3))
    assert (one.steps, three.steps) == (6, 2)
    assert (one.num_bytes, three.num_bytes, one.reduce) == (0, 0, 0)
    assert three.reduce > 0
    assert 1 / 3 <= three.compute / one.compute < 0.5
    assert len(three.memory) == 3


def test_memory_grows_with_the_largest_part_and_has_the_process_in_it(graph, model):
    assignment = np.where(np.arange(300) < 200, 0, 1)
    parts = split_graph(graph, assignment, 2)
    said = predict_epoch(parts, model, MACHINE, process=10**9)
    assert said.memory[0] > said.memory[1] > 10**9
    stale = predict_epoch(parts, model, MACHINE, exchange=PointToPoint(staleness=1), process=10**9)
    assert all(a > b for a, b in zip(stale.memory, said.memory))
    assert said.modelled[0] == 4 * (8 + 16) * (3 * 200 + int(PointToPoint().count_rows(parts).sum(0)[0]))


def test_a_changing_rate_is_predicted_by_its_mean(shoal):
    line = (
        "simulate",
        "digits",
        "--parts",
        "2",
        "--method",
        "random",
        "--latency",
        "9",
        "--bandwidth",
        "9",
        "--json",
    )
    rates = {}
    for first, last in ((0.1, None), (0.5, None), (0.1, 0.9)):
        more = (
            ()
            if last is None
            else ("--set", f"partition.last_boundary_rate={last}", "--set", "training.epochs=30")
        )
        found = shoal(*line, "--set", f"partition.boundary_rate={first}", *more)
        assert found.code == 0, found.stderr
        rates[first, last] = json.loads(found.stdout)[0]
    assert rates[0.1, 0.9]["num_bytes"] == pytest.approx(rates[0.5, None]["num_bytes"], rel=1e-3)
    assert rates[0.1, None]["num_bytes"] < 0.3 * rates[0.5, None]["num_bytes"]


def test_the_command_predicts_batches(shoal):
    line = ("--parts", "1,3", "--latency", "9", "--bandwidth", "9", "--json", "--method", "random")
    sampler = ("--sampler", "node", "--set", "sampler.budget=300", "--set", "sampler.coverage=50")
    shared = shoal("simulate", "digits", *line, *sampler)
    assert shared.code == 0, shared.stderr
    alone, three = json.loads(shared.stdout)
    assert alone["num_bytes"] == 0 < three["num_bytes"]
    assert alone["steps"] == three["steps"] == 6
    own = shoal("simulate", "digits", *line, *sampler, "--set", "method=sampled")
    assert own.code == 0, own.stderr
    alone, three = json.loads(own.stdout)
    assert (alone["steps"], three["steps"], three["num_bytes"], len(three["memory"])) == (6, 2, 0, 3)


def test_send_lists_of_all_ranks_are_those_of_each():
    graph = make_labelled(120)
    assignment = np.random.default_rng(0).integers(0, 7, 120)
    for part in split_graph(graph, assignment, 8):
        one = make_part(graph, assignment, 8, part.rank)
        assert np.array_equal(one.send_rows, part.send_rows)
        assert np.array_equal(one.send_offsets, part.send_offsets)


def test_four_thousand_ranks_are_predicted_from_parts_in_memory_and_in_files(tmp_path, model):
    """In seconds, and stored parts alike: a process may not map the files of so many."""
    graph = package.load("blocks", num_nodes=12_288, num_features=8, seed=1)
    assignment = np.repeat(np.arange(4096), 3)
    started = time.process_time()
    parts = split_graph(graph, assignment, 4096)
    said = predict_epoch(parts, model, MACHINE)
    assert time.process_time() - started < 120
    assert said.num_bytes == 2 * 8 * 4 * PointToPoint().count_rows(parts).sum()
    assert len(said.memory) == 4096
    some = 1200
    few = Partition(graph, assignment % some, some)
    folder = store_parts(graph, few, tmp_path / "parts")
    stored, cut = open_parts(folder), split_graph(graph, assignment % some, some)
    assert predict_epoch(stored, model, MACHINE, sparse_features=False) == predict_epoch(
        cut, model, MACHINE, sparse_features=False
    )
