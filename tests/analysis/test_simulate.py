"""Predicted cost of an epoch: an exchange takes as long as its busiest rank."""

import numpy as np
import pytest
import yaml

import shoal
from shoal.analysis.links import measure_tree, time_broadcasts, time_messages
from shoal.analysis.machine import Machine, read_machine
from shoal.analysis.simulate import list_exchanges, predict_epoch
from shoal.distributed.exchange import EXCHANGES
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.errors import ShoalError
from shoal.partitioning.part import split_graph
from shoal.store import save_graph
from small_graphs import make_labelled


def test_an_exchange_takes_what_its_busiest_rank_takes():
    rows = np.array([[0, 10, 0], [0, 0, 0], [5, 20, 0]])  # rank 1 receives 30 rows in two messages
    model = shoal.GNN("gcn", 8, 16, 3, num_layers=2)
    said = predict_epoch(rows, model, Machine(latency=1e-3, bandwidth=1e6))
    expected = 2e-3 + 30 * 16 * 4 / 1e6
    assert said.seconds == pytest.approx((expected, expected))
    assert said.communication == pytest.approx(2 * expected)
    assert (said.num_bytes, said.num_messages) == (2 * 35 * 16 * 4, 2 * 3)
    weights = 4 * sum(weight.numel() for weight in model.parameters())
    assert said.reduce == pytest.approx(4 * (1e-3 + weights / 3 / 1e6))
    assert predict_epoch(rows, model, Machine(1e-3, 1e6), item_bytes=2).num_bytes == said.num_bytes // 2


def test_layers_exchange_the_narrower_side_and_the_first_one_nothing():
    sage = list_exchanges(shoal.GNN("sage", 8, 16, 3, num_layers=3))
    assert [(one.layer, one.direction, one.width) for one in sage] == [
        (2, "forward", 8),
        (3, "forward", 8),
        (3, "backward", 8),
        (2, "backward", 8),
    ]
    logits = list_exchanges(shoal.GNN("sage", 8, 16, 3, num_layers=2, head_layers=0))
    assert [one.width for one in logits] == [3, 3]
    assert list_exchanges(shoal.GNN("mlp", 8, 16, 3)) == []


def test_integer_messages_are_predicted_with_their_scales():
    rows = np.array([[0, 10], [7, 0]])
    model = shoal.GNN("sage", 7, 16, 3, num_layers=2)
    said = {
        name: predict_epoch(rows, model, Machine(1e-3, 1e6), exchange=PointToPoint(messages=name)).num_bytes
        for name in ("float32", "bfloat16", "int8", "int4")
    }
    assert said == {name: 2 * 17 * row for name, row in zip(said, (32, 16, 12, 8))}


@pytest.mark.parametrize("latency", [1e-4, 1.0])
def test_stale_exchanges_are_exposed_by_what_they_take_beyond_computing(latency):
    parts = split_graph(make_labelled(200), np.arange(200) % 4, 4)
    model = shoal.GNN("sage", 8, 16, 3, num_layers=3)
    machine = Machine(latency, 1e8, dense_rate=1e6, sparse_rate=1e6)
    exact = predict_epoch(parts, model, machine)
    stale = predict_epoch(parts, model, machine, exchange=PointToPoint(staleness=1))
    assert stale.seconds == exact.seconds
    assert stale.compute == exact.compute
    assert sum(stale.exposed) == pytest.approx(max(sum(stale.seconds) - stale.compute, 0))
    assert (sum(stale.exposed) == 0) == (latency < 1)
    assert sum(stale.exposed) <= sum(exact.exposed)


def test_parts_say_the_same_as_their_rows_and_broadcasts_send_all():
    graph = make_labelled(200)
    parts = split_graph(graph, np.arange(200) % 4, 4)
    model = shoal.GNN("sage", 8, 16, 3, num_layers=2)
    said = predict_epoch(parts, model, Machine(1e-4, 1e8, dense_rate=1e9, sparse_rate=1e8))
    assert said.num_bytes == 2 * 8 * 4 * sum(part.num_halo for part in parts)
    entries = max(len(part.local_indices) + len(part.halo_indices) for part in parts)
    dense = 50 * (3 * 16 * 3 + 2 * 8 * 16 + 3 * 16 * 16)
    assert said.compute == pytest.approx(dense / 1e9 + 2 * entries * 8 / 1e8)
    hidden = [len(part.local_indices) * 8 / 1e8 for part in parts]
    took = time_messages(EXCHANGES["p2p"]().count_rows(parts) * 32, Machine(1e-4, 1e8))
    assert said.exposed == pytest.approx([max(took - hidden)] * 2)
    assert said.epoch == pytest.approx(said.compute + sum(said.exposed) + said.reduce)
    everything = predict_epoch(parts, model, Machine(1e-4, 1e8), exchange="broadcast")
    assert everything.num_bytes == 2 * 8 * 4 * 200 * 3
    assert (
        everything.num_bytes
        == predict_epoch(EXCHANGES["broadcast"]().count_rows(parts), model, Machine(1, 1)).num_bytes
    )
    assert everything.exposed == everything.seconds


def test_broadcasts_take_what_the_tree_and_the_ring_take():
    assert [measure_tree(size) for size in (1, 2, 3, 4, 8)] == [(0, 0), (1, 1), (1, 2), (2, 3), (3, 6)]
    sent = np.full((4, 4), 1000) * (1 - np.eye(4, dtype=int))
    machine = Machine(1e-3, 1e6)
    assert time_broadcasts(sent, "forward", machine).max() == pytest.approx(4 * (2e-3 + 3 * 1e-3))
    assert time_broadcasts(sent, "backward", machine).max() == pytest.approx(4 * (4e-3 + 2 * 3 * 0.25e-3))


def test_messages_in_a_crowd_take_what_was_measured_for_their_size():
    machine = Machine(1e-4, 1e8, crowd=((8, 1e-3), (1008, 2e-3), (2008, 4e-3)))
    assert machine.time_message(np.array([0, 8, 508, 2008, 3008])) == pytest.approx(
        [0, 1e-3, 1.5e-3, 4e-3, 6e-3]
    )


def test_a_message_takes_no_longer_than_a_longer_one():
    machine = Machine(1e-4, 1e8, crowd=((8, 5e-3), (1008, 2e-3), (2008, 4e-3)), sums=((16, 9.0), (1016, 1.0)))
    assert machine.time_message(np.array([8, 508, 2008])) == pytest.approx([2e-3, 2e-3, 4e-3])
    assert machine.time_sum(16, 3) == pytest.approx(1.0)


def test_a_crowd_slows_links_that_are_as_busy_as_those_around_them():
    machine = Machine(1e-3, 1e6, crowd=((8, 1e-3), (1e6, 1.5)))
    everyone = 1e6 * (1 - np.eye(3))
    assert time_messages(everyone, machine) == pytest.approx([3.0] * 3)
    to_one = np.zeros((3, 3))
    to_one[1:, 0] = 1e6  # the senders have time to spare
    assert time_messages(to_one, machine)[0] == pytest.approx(2.002)
    uneven = everyone.copy()
    uneven[1:, 0] = 1.2e6
    waiting = 2.2 / 2.4  # of what rank 0 receives: the senders' links are nearly as busy
    gaps = waiting * (2 * (1.5 + 0.2 * 1.499 / 0.999992) - 2.402)
    wanted = 2.402 + gaps - (1 - waiting) * 2.402
    assert time_messages(uneven, machine)[0] == pytest.approx(wanted, rel=1e-4)


def test_products_over_rows_that_caches_hold_are_predicted_faster():
    machine = Machine(1, 1, sparse_rate=1e9, sparse_rates=((1e6, 8e9), (1e8, 2e9)))
    entries, rows = np.array([1000, 1000, 1000]), np.array([10, 2500 * 100, 10**7])
    seconds = machine.time_product(entries, rows, 10, 4)
    assert seconds == pytest.approx([1e4 / 8e9, 1e4 / 5e9, 1e4 / 2e9])
    plain = Machine(1, 1, sparse_rate=1e9)
    assert plain.time_product(entries, rows, 10, 4) == pytest.approx([1e-5] * 3)
    assert Machine(1, 1).time_product(entries, rows, 10, 4) == pytest.approx([0] * 3)


def test_coding_of_messages_is_computing():
    parts = split_graph(make_labelled(200), np.arange(200) % 4, 4)
    model = shoal.GNN("sage", 8, 16, 3, num_layers=2)
    machine = Machine(1e-4, 1e8, dense_rate=1e9, sparse_rate=1e8, code_rate=1e6)
    said = {
        name: predict_epoch(parts, model, machine, exchange=PointToPoint(messages=name)).compute
        for name in ("bfloat16", "int8")
    }
    rows = PointToPoint().count_rows(parts)
    coded = 2 * 8 * max(rows.sum(0) + rows.sum(1)) / 2 / 1e6
    assert said["int8"] - said["bfloat16"] == pytest.approx(coded)


def test_every_layer_takes_what_a_step_of_few_rows_does():
    parts = split_graph(make_labelled(200), np.arange(200) % 4, 4)
    model = shoal.GNN("sage", 8, 16, 3, num_layers=3)
    plain, small = (Machine(1e-4, 1e8, dense_rate=1e9, layer_seconds=one) for one in (None, 0.25))
    assert predict_epoch(parts, model, small).compute == pytest.approx(
        predict_epoch(parts, model, plain).compute + 3 * 0.25
    )


def test_ranks_with_a_core_each_wait_for_the_slowest_and_others_share_what_is_left():
    seconds = np.array([8.0, 2.0, 1.0, 1.0])
    assert Machine(1, 1).find_slowest(seconds) == 8
    assert Machine(1, 1, cores=4, host_ranks=4).find_slowest(seconds) == 8
    shared = Machine(1, 1, cores=2, host_ranks=4)
    assert shared.sharing == 2
    assert shared.find_slowest(np.full(4, 5.0)) == 5
    assert shared.find_slowest(seconds) == 4  # alone on a core, the first rank needs half of its 8 seconds
    assert shared.find_slowest(np.array([4.0, 4.0, 2.0, 2.0])) == 3


def test_measured_sums_replace_the_ring_and_scale_with_the_number_of_ranks():
    ring = Machine(1e-3, 1e6)
    assert ring.time_sum(1000, 5) == pytest.approx(8 * (1e-3 + 200e-6))
    measured = Machine(1e-3, 1e6, sums=((16, 1e-2), (1016, 2e-2), (2016, 4e-2)), ranks=5)
    assert [measured.time_sum(size, 5) for size in (16, 516, 3016)] == pytest.approx([0.01, 0.015, 0.06])
    assert measured.time_sum(16, 9) == pytest.approx(0.02)
    assert measured.time_sum(516, 9) == pytest.approx(0.02 + 0.005 * (8 / 9) / (4 / 5))
    assert measured.time_sum(516, 1) == 0
    model = shoal.GNN("gcn", 8, 16, 3, num_layers=2)
    weights = 4 * sum(weight.numel() for weight in model.parameters())
    rows = np.array([[0, 10], [7, 0]])
    both = measured.time_sum(16, 2) + measured.time_sum(weights, 2)
    assert predict_epoch(rows, model, measured).reduce == pytest.approx(both)


@pytest.mark.parametrize("settings", [{"cover": False}, {"cover": False, "staleness": 1}])
def test_fixed_costs_of_messages_overlap_only_where_every_rank_has_a_core(settings):
    parts = split_graph(make_labelled(200), np.arange(200) % 4, 4)
    model = shoal.GNN("sage", 8, 16, 3, num_layers=2)
    fast = {"latency": 1e-9, "bandwidth": 1e12, "dense_rate": 1e9, "sparse_rate": 1e4}  # a long local product
    exchange = PointToPoint(**settings)
    own, shared = (
        predict_epoch(
            parts, model, Machine(**fast, message_seconds=1e-3, cores=cores, host_ranks=4), exchange=exchange
        )
        for cores in (4, 2)
    )
    assert own.seconds == shared.seconds == pytest.approx((3e-3, 3e-3))  # three messages each
    assert own.exposed == (0, 0)
    assert shared.exposed == pytest.approx((3e-3, 3e-3))
    quick = predict_epoch(parts, model, Machine(1e-9, 1e12, message_seconds=1e-3), exchange=exchange)
    assert quick.exposed == pytest.approx((3e-3, 3e-3))  # nothing to overlap with


def test_boundary_rates_take_the_fixed_cost_of_a_new_pattern():
    parts = split_graph(make_labelled(200), np.arange(200) % 4, 4)
    model = shoal.GNN("sage", 8, 16, 3, num_layers=2)
    machine = Machine(1e-3, 1e6, batch_seconds=0.25)
    assert predict_epoch(parts, model, machine).sampling == 0
    thinned = PointToPoint(boundary_rate=0.5)
    assert predict_epoch(parts, model, machine, exchange=thinned).sampling == 0.25
    crowded = Machine(1e-3, 1e6, batch_seconds=0.25, cores=2, host_ranks=4)
    lists = time_messages(thinned.count_ids(parts), crowded).max()
    assert predict_epoch(parts, model, crowded, exchange=thinned).sampling == pytest.approx(0.25 + lists)


def test_a_machine_is_read_as_it_was_saved_and_nonsense_is_refused(tmp_path):
    machine = Machine(
        1e-4, 1e8, ((8.0, 1e-3), (1e6, 0.1)), 1e9, 1e8, ((4e6, 5e8), (3e7, 1e8)), 1e9, 1e-3,
        sums=((16.0, 1e-3), (1e6, 0.1)), message_seconds=1e-4, batch_seconds=2e-3, ranks=2, cores=4, host_ranks=2,
    )  # fmt: skip
    machine.save(tmp_path / "machine.json")
    assert read_machine(tmp_path / "machine.json") == machine
    for text in (
        "[1]",
        "{}",
        '{"latency": 1, "bandwidth": -1}',
        '{"latency": 1, "bandwidth": 1, "speed": 2}',
        '{"latency": 1, "bandwidth": 1, "ranks": "two"}',
        '{"latency": 1, "bandwidth": 1, "sparse_rates": [[1000, 0]]}',
        '{"latency": 1, "bandwidth": 1, "code_rate": 0}',
        '{"latency": 1, "bandwidth": 1, "layer_seconds": -1}',
        '{"latency": 1, "bandwidth": 1, "message_seconds": -1}',
        '{"latency": 1, "bandwidth": 1, "batch_seconds": -1}',
        '{"latency": 1, "bandwidth": 1, "sums": [1]}',
        '{"latency": 1, "bandwidth": 1, "cores": 0}',
        '{"latency": 1, "bandwidth": 1, "host_ranks": 0.5}',
        '{"latency": 1, "bandwidth": 1, "ranks": 0}',
        '{"latency": 1, "bandwidth": 1, "ranks": Infinity}',
        "no",
    ):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(ShoalError, match="describes no machine: expected JSON with latency, bandwidth"):
            read_machine(tmp_path / "bad.json")
    with pytest.raises(ShoalError, match="does not exist: `shoal doctor"):
        read_machine(tmp_path / "none.json")


def test_the_command_predicts_for_several_numbers_of_ranks_and_for_stored_parts(shoal):
    wire = (
        "--latency",
        "100",
        "--bandwidth",
        "12.5",
        "--set",
        "model.hidden=16",
        "--set",
        "model.num_layers=2",
    )
    told = shoal("simulate", "digits", "--parts", "4,1,2", "--method", "random", *wire)
    assert told.code == 0, told.stderr
    lines = {line.split("  ")[0].strip(): line.split() for line in told.stdout.splitlines()}
    assert told.stdout.splitlines()[:2] == [
        "gcn, 2 layers of width 16-10, parts by random, p2p exchange",
        "every rank is assumed to compute as fast as this machine",
    ]
    assert told.stdout.splitlines()[2].split() == ["an", "epoch", "1", "rank", "2", "ranks", "4", "ranks"]
    assert float(lines["compute, ms"][2].replace(",", "")) > 0
    assert lines["messages"][1:] == ["0", "4", "24"]
    assert lines["communication, ms"][2] == "0.00"
    assert shoal("partition", "digits", "--parts", "2", "--method", "random", "-o", "parts").code == 0
    stored = shoal("simulate", "parts", *wire)
    assert stored.code == 0, stored.stderr
    assert stored.stdout.splitlines()[3].split()[-1] == lines["MB sent"][3]
    half = shoal("simulate", "parts", *wire, "--set", "partition.messages=bfloat16")
    assert float(half.stdout.splitlines()[3].split()[-1]) == pytest.approx(
        float(lines["MB sent"][3]) / 2, abs=0.01
    )


def test_the_command_predicts_the_model_that_training_would_choose(shoal, tmp_path):
    directed = make_labelled(400, directed=True)
    save_graph(directed, tmp_path / "graph")
    wire = ("--latency", "100", "--bandwidth", "12.5")
    trained = shoal("train", "graph", "--epochs", "1", "--no-report", "--out", "run")
    assert trained.code == 0, trained.stderr
    model = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["model"]
    chosen = f"{model['name']}, {model['num_layers']} layers of width {model['hidden']}, both directions"
    whole = shoal("simulate", "graph", *wire, "--parts", "2", "--method", "random").stdout
    assert whole.startswith(chosen)
    assert shoal("partition", "graph", "--parts", "2", "--method", "random", "-o", "parts").code == 0
    stored = shoal("simulate", "parts", *wire).stdout
    assert stored.startswith(chosen)
    assert [line for line in stored.splitlines() if "MB sent" in line] == [
        line for line in whole.splitlines() if "MB sent" in line
    ]


def test_the_command_says_where_a_machine_was_measured_with_other_ranks(shoal, tmp_path):
    Machine(1e-4, 1e8, ranks=2).save(tmp_path / "machine.json")
    line = ("simulate", "digits", "--method", "random", "--machine", str(tmp_path / "machine.json"))
    assert "measured with 2 ranks" in shoal(*line, "--parts", "2,4").stdout
    assert "measured with" not in shoal(*line, "--parts", "2").stdout


def test_the_command_refuses_what_it_cannot_predict(shoal):
    assert (
        "expected a number above 0"
        in shoal("simulate", "digits", "--latency", "0", "--bandwidth", "1").refusal()
    )
    assert "expected a rate such as 1Gbit" in shoal("simulate", "digits", "--bandwidth", "0Gbit").refusal()
    wire = ("--latency", "100", "--bandwidth", "100Mbit")
    assert "in one process" in shoal("simulate", "digits", *wire, "--set", "method=full").refusal()
    assert "add --sampler" in shoal("simulate", "digits", *wire, "--batches", "2").refusal()
    both = ("--machine", "none.json", "--measure")
    assert "leave out one" in shoal("simulate", "digits", *both).refusal()
    assert "digits has 64 features" in shoal("simulate", "digits", *wire, "--features", "5").refusal()
    assert "such as 2,4,8" in shoal("simulate", "digits", "--parts", "two", *wire).refusal()
    assert shoal("partition", "digits", "--parts", "2", "--method", "random", "-o", "parts").code == 0
    assert "holds parts already" in shoal("simulate", "parts", "--parts", "4", *wire).refusal()
    assert "name the graph" in shoal("simulate", "parts", *wire, "--sampler", "node").refusal()
    assert "up to 4096" in shoal("simulate", "digits", "--parts", "5000", *wire).refusal()
