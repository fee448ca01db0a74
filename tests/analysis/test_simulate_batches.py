"""Predicted epochs of mini-batches, of rates that change and of very many ranks; what ranks count is in tests/distributed."""

import json
import time
from dataclasses import replace

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


def test_every_shared_batch_takes_the_fixed_cost_of_a_new_pattern(graph, model):
    parts = split_graph(graph, np.arange(300) % 3, 3)
    sampler = package.NodeSampler(graph, budget=50)
    said = predict_shared(parts, sampler, model, replace(MACHINE, batch_seconds=100.0))
    assert said.sampling == pytest.approx(6 * 100, rel=0.01)


def test_drawing_takes_longer_where_ranks_share_cores(graph, model):
    """By a factor of 10,000, far beyond what other work on this machine adds."""
    parts = split_graph(graph, np.arange(300) % 3, 3)
    sampler = package.NodeSampler(graph, budget=50)
    shared = replace(MACHINE, cores=1, host_ranks=10_000)
    for predict in (
        lambda machine: predict_shared(parts, sampler, model, machine),
        lambda machine: predict_replicas(sampler, model, machine, 3),
    ):
        alone = min(predict(MACHINE).sampling for _ in range(5))  # draws take microseconds
        assert predict(shared).sampling > 100 * alone


def test_what_serves_no_batches_is_refused(graph, model):
    parts = split_graph(graph, np.arange(300) % 3, 3)
    sampler = package.NodeSampler(graph, budget=50)
    for settings in ({"staleness": 1}, {"boundary_rate": 0.5}):
        with pytest.raises(ShoalError, match="leave out the sampler"):
            predict_shared(parts, sampler, model, MACHINE, exchange=PointToPoint(**settings))
    with pytest.raises(ShoalError, match="no induced subgraphs"):
        predict_shared(parts, package.NeighborSampler(graph), model, MACHINE)


def test_ranks_with_batches_of_their_own_share_the_steps_and_sum_gradients(graph, model):
    sampler = package.NodeSampler(graph, budget=50)
    one, three = (predict_replicas(sampler, model, MACHINE, count) for count in (1, 3))
    assert (one.steps, three.steps) == (6, 2)
    assert (one.num_bytes, three.num_bytes, one.reduce) == (0, 0, 0)
    assert three.reduce > 0
    assert 1 / 3 <= three.compute / one.compute < 0.5
    assert len(three.memory) == 3


def test_shared_batches_sum_statistics_in_every_step_and_own_ones_never(graph):
    stack = package.GNN("sage", 8, 16, 3, num_layers=2, norm="batch")
    parts, sampler = split_graph(graph, np.arange(300) % 3, 3), package.NodeSampler(graph, budget=50)
    shared, one = (predict_shared(parts, sampler, stack, MACHINE, num_batches=count) for count in (None, 1))
    assert shared.norm_sums == (264, 264, 256, 256)
    seconds = sum(4 * (1e-4 + size / 3 / 1e8) for size in shared.norm_sums)
    assert shared.norms == pytest.approx(6 * seconds)
    assert one.norms == pytest.approx(6 * seconds)
    own = predict_replicas(sampler, stack, MACHINE, 3)
    assert (own.norm_sums, own.norms) == ((), 0)


def test_only_features_of_dealt_clusters_move(graph, model):
    with pytest.raises(ShoalError, match="leave out moves_features"):
        predict_replicas(package.NodeSampler(graph, budget=50), model, MACHINE, 3, moves_features=True)


def test_memory_grows_with_the_largest_part_and_has_the_process_in_it(graph, model):
    assignment = np.where(np.arange(300) < 200, 0, 1)
    parts = split_graph(graph, assignment, 2)
    said = predict_epoch(parts, model, MACHINE, process=10**9)
    assert said.memory[0] > said.memory[1] > 10**9
    stale = predict_epoch(parts, model, MACHINE, exchange=PointToPoint(staleness=1), process=10**9)
    assert all(a > b for a, b in zip(stale.memory, said.memory))
    assert said.modelled[0] == 4 * (8 + 16) * (3 * 200 + int(PointToPoint().count_rows(parts).sum(0)[0]))


def test_halo_rows_have_activations_only_in_attention():
    """A ring in two halves, and in two sets of every other node: without attention a halo row takes less than two values a column."""
    nodes = np.arange(300)
    x = np.ones((300, 8), np.float32)
    ring = package.Graph.from_edge_index(np.stack([nodes, (nodes + 1) % 300]), 300, directed=False, x=x)
    few, many = (split_graph(ring, assignment, 2) for assignment in (nodes // 150, nodes % 2))
    assert (few[0].num_halo, many[0].num_halo) == (2, 150)
    for name, least, most in (("gcn", 0, 2), ("gat", 3, 6)):
        stack = package.GNN(name, 8, 256, 3, num_layers=3)
        less, more = (
            predict_epoch(parts, stack, MACHINE, exchange=PointToPoint(cover=False)).memory[0]
            for parts in (few, many)
        )
        assert least < (more - less) / 4 / sum(stack.widths) / 148 < most


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
    assert rates[0.1, 0.9]["num_bytes"] == pytest.approx(rates[0.5, None]["num_bytes"], rel=0.01)
    assert rates[0.1, None]["num_bytes"] < 0.3 * rates[0.5, None]["num_bytes"]


def test_the_command_predicts_batches(shoal):
    line = ("--parts", "1,3", "--latency", "9", "--bandwidth", "9", "--json", "--method", "random")
    sampler = ("--sampler", "node", "--set", "sampler.budget=300", "--set", "sampler.coverage=50")
    shared = shoal("simulate", "digits", *line, *sampler)
    assert shared.code == 0, shared.stderr
    alone, three = json.loads(shared.stdout)
    assert alone["num_bytes"] == 0 < three["num_bytes"]
    assert alone["steps"] == three["steps"] == 7
    own = shoal("simulate", "digits", *line, *sampler, "--set", "method=sampled")
    assert own.code == 0, own.stderr
    alone, three = json.loads(own.stdout)
    assert (alone["steps"], three["steps"], three["num_bytes"], len(three["memory"])) == (7, 3, 0, 3)


def test_send_lists_of_all_ranks_are_those_of_each():
    graph = make_labelled(120)
    assignment = np.random.default_rng(0).integers(0, 7, 120)
    for part in split_graph(graph, assignment, 8):
        one = make_part(graph, assignment, 8, part.rank)
        assert np.array_equal(one.send_rows, part.send_rows)
        assert np.array_equal(one.send_offsets, part.send_offsets)


def test_parts_are_predicted_alike_mapped_and_read(tmp_path, graph, model):
    assignment = np.arange(300) % 3
    folder = store_parts(graph, Partition(graph, assignment, 3), tmp_path / "parts")
    cut = predict_epoch(split_graph(graph, assignment, 3), model, MACHINE)
    for most in (3, 2):
        parts = open_parts(folder, most)
        assert predict_epoch(parts, model, MACHINE).to_dict() | {"memory": 0} == cut.to_dict() | {"memory": 0}


@pytest.mark.parametrize("num_ranks", [300, pytest.param(4096, marks=pytest.mark.slow)])
def test_very_many_ranks_are_predicted_from_real_parts(model, num_ranks):
    graph = package.load("blocks", num_nodes=3 * num_ranks, num_features=8, seed=1)
    parts = split_graph(graph, np.repeat(np.arange(num_ranks), 3), num_ranks)
    started = time.process_time()
    said = predict_epoch(parts, model, MACHINE)
    assert time.process_time() - started < 120
    assert said.num_bytes == 2 * 8 * 4 * PointToPoint().count_rows(parts).sum()
    assert len(said.memory) == num_ranks


def test_memory_of_own_batches_has_the_whole_graph_beside_the_training_graph():
    graph = package.load("blocks", num_nodes=2000, num_features=64, seed=0)
    stacked = package.stack_hops(graph, hops=2)
    sign = package.GNN("sign", stacked.num_features, 16, graph.num_classes, num_layers=2, hops=2)
    held = {}
    for setting in ("transductive", "inductive"):
        sampler = package.RowSampler(stacked, batch_size=100, setting=setting)
        held[setting] = predict_replicas(sampler, sign, MACHINE, 2).memory[0]
    train = stacked.train_graph("inductive")
    rows = 4 * 64 * train.num_nodes  # features and two hops of them
    assert held["transductive"] > 4 * 64 * 2000 * 4
    assert 4 * rows < held["inductive"] - held["transductive"] < 1.5 * 4 * rows


def test_a_sampler_for_other_ranks_is_refused(graph, model):
    dealt = package.DealtSampler(
        graph, "random-walk", rank=0, num_ranks=3, assignment=np.arange(300) % 6, roots=20
    )
    with pytest.raises(ShoalError, match="give num_ranks=3"):
        predict_replicas(dealt, model, MACHINE, 8)
