"""The method `hypergraph` and its efforts: what each of them promises, what it says, and quiet partitioners."""

import ctypes

import numpy as np
import pytest

import shoal
from shoal.cli import main
from shoal.partitioning import costs
from shoal.partitioning.cycle import MtKaHyPar
from shoal.partitioning.methods import hypergraph
from shoal.partitioning.methods.metis import run_metis
from shoal.partitioning.nets import count_rows, make_nets
from shoal.partitioning.work import EFFORTS, Work, weigh_nodes
from shoal.runs.config import make_config
from small_graphs import make_graph, make_labelled


def make_hubs(num_nodes=4000, num_hubs=24, seed=0):
    """Rows along a line that each read hubs at random; the hubs read each other."""
    generator = np.random.default_rng(seed)
    hubs, others = np.arange(num_hubs), np.arange(num_hubs, num_nodes)
    pairs = [np.stack(np.meshgrid(hubs, hubs)).reshape(2, -1)]
    pairs += [np.stack([others, generator.integers(0, num_hubs, len(others))]) for _ in range(8)]
    pairs += [np.stack([others[:-step], others[step:]]) for step in (1, 2, 3)]
    readers, read = np.unique(np.concatenate(pairs, 1), axis=1)
    keep = readers != read
    indptr = np.concatenate([[0], np.cumsum(np.bincount(readers[keep], minlength=num_nodes))])
    return shoal.Graph(indptr, read[keep].astype(np.int32), directed=True)


@pytest.mark.parametrize("directed", [False, True])
def test_no_effort_sends_more_than_the_starts_it_promises(directed):
    graph, num_parts = make_labelled(300, directed=directed), 8
    work = Work(graph, num_parts, weigh_nodes(graph, "edges"))
    nets = make_nets(graph)
    alone = MtKaHyPar(work, nets)
    metis = [run_metis(work, volume=volume, seed=seed) for volume in (False, True) for seed in (0, 1, 2)]
    anew = [alone.partition(preset, seed) for preset, seed in hypergraph.EFFORTS_MADE["best"].presets]
    rows = [count_rows(nets, one, num_parts) for one in (*metis, *anew)]
    sent = {
        effort: count_rows(
            nets, shoal.partition_graph(graph, num_parts, "hypergraph", effort=effort).assignment, num_parts
        )
        for effort in EFFORTS
    }
    assert sent["best"] <= min(rows)
    assert sent["default"] <= 1.03 * min(rows[0], rows[3], rows[6])
    assert sent["fast"] <= rows[0]


@pytest.mark.parametrize("effort", EFFORTS)
def test_efforts_repeat_and_say_what_they_will_take(effort):
    graph = make_labelled(300)
    said: list[str] = []
    settings = {"effort": effort, "seed": 5, "progress": said.append}
    found = [shoal.partition_graph(graph, 6, "hypergraph", **settings) for _ in range(2)]
    np.testing.assert_array_equal(found[0].assignment, found[1].assignment)
    assert said[0].startswith(f"effort {effort}: about ")
    assert ("Mt-KaHyPar" in found[0].seconds) == (effort != "fast")


def test_more_effort_pins_and_parts_are_said_to_take_longer():
    graph = make_labelled(300)
    nets = make_nets(graph)

    def estimate(effort, num_parts):
        work = Work(graph, num_parts, weigh_nodes(graph, "edges"), refine=True)
        return hypergraph.estimate_seconds(work, nets, hypergraph.EFFORTS_MADE[effort], True)

    for num_parts in (4, 64):
        fast, default, best = (estimate(effort, num_parts) for effort in EFFORTS)
        assert 0 < fast < default < best
    assert estimate("default", 4) < estimate("default", 64)


def test_steps_that_take_too_long_are_left_out_unless_effort_is_best(monkeypatch):
    graph = make_labelled(300)
    monkeypatch.setattr(costs, "ANEW", dict.fromkeys(costs.ANEW, 1.0))
    usual = shoal.partition_graph(graph, 6, "hypergraph")
    assert any("left out Mt-KaHyPar from scratch" in one and "'best'" in one for one in usual.notices)
    assert "Mt-KaHyPar" not in usual.seconds
    assert "Mt-KaHyPar's cycle" in usual.seconds
    best = shoal.partition_graph(graph, 6, "hypergraph", effort="best")
    assert "Mt-KaHyPar" in best.seconds
    assert not any("left out" in one for one in best.notices)


def test_sweeps_are_fewer_where_they_would_take_too_long(monkeypatch):
    graph = make_labelled(300)
    nets, tried = make_nets(graph), hypergraph.EFFORTS_MADE["default"]
    work = Work(graph, 8, weigh_nodes(graph, "edges"))
    assert hypergraph._count_sweeps(work, nets, tried) == 12
    factor = 90 / 8 / costs.estimate_sweep(nets, 8)
    monkeypatch.setattr(costs, "SWEEP", tuple(factor * one for one in costs.SWEEP))
    assert hypergraph._count_sweeps(work, nets, tried) in (4, 5)
    monkeypatch.setattr(costs, "SWEEP", (1.0, 1.0))
    assert hypergraph._count_sweeps(work, nets, tried) == 2


@pytest.mark.parametrize("effort", ["fast", "default"])
def test_rows_that_all_read_are_not_sent_by_one_part(effort):
    """Hubs that read each other are put together for the fewest rows; one part then sends what random's never does."""
    graph = make_hubs()
    found = shoal.partition_graph(graph, 32, "hypergraph", effort=effort).quality()
    assert found.relative["max_send_volume"] < 0.5
    metis = shoal.partition_graph(graph, 32, "metis").quality(relative=False)
    assert found.total_volume <= metis.total_volume


def test_a_few_more_rows_are_sent_where_one_part_would_send_more_than_randoms_busiest():
    """Hubs so heavy that full parts have no room for another."""
    graph = make_hubs(12_000, 200)
    metis = shoal.partition_graph(graph, 256, "metis").quality()
    assert metis.relative["max_send_volume"] > 1.05
    found = shoal.partition_graph(graph, 256, "hypergraph", effort="fast")
    quality = found.quality()
    assert quality.relative["max_send_volume"] <= 1
    assert quality.total_volume <= 1.03 * metis.total_volume
    assert quality.weight_balance <= metis.weight_balance
    assert any("more rows are sent" in notice for notice in found.notices)


def test_effort_belongs_to_methods_that_have_it():
    graph = make_labelled(100)
    with pytest.raises(shoal.ShoalError, match="'metis' takes no settings: 'effort'"):
        shoal.partition_graph(graph, 4, "metis", effort="best")
    with pytest.raises(shoal.ShoalError, match="did you mean 'best'"):
        shoal.partition_graph(graph, 4, "hypergraph", effort="bset")


def test_the_command_line_and_configurations_pass_the_effort_on(capsys):
    options = ("partition", "digits", "--parts", "4", "--effort", "fast", "--method")
    with pytest.raises(SystemExit) as ended:
        main([*options, "hypergraph"])
    assert not ended.value.code
    said = capsys.readouterr().err
    assert "effort fast: about" in said
    assert "Mt-KaHyPar" not in said
    with pytest.raises(SystemExit) as ended:
        main([*options, "metis"])
    assert ended.value.code == 2
    assert "'metis' takes no settings: 'effort'" in capsys.readouterr().err
    content = {"method": "partitioned", "partition": {"method": "metis", "effort": "best"}}
    with pytest.raises(
        shoal.ShoalError, match="belongs to partition method 'cover' and partition method 'hypergraph'"
    ):
        make_config(content).validate()
    content["partition"]["method"] = "hypergraph"
    assert make_config(content).partition.effort == "best"


def test_every_seed_of_metis_is_another_start():
    graph = make_labelled(300)
    work = Work(graph, 8, weigh_nodes(graph, "edges"))
    assert len({run_metis(work, seed=seed).tobytes() for seed in range(4)}) == 4


def test_metis_prints_nothing(capfd):
    star = make_graph([(0, i) for i in range(1, 100)], 100)
    print("before")
    shoal.partition_graph(star, 80, "metis")
    ctypes.CDLL(None).fflush(None)
    print("after")
    assert capfd.readouterr().out == "before\nafter\n"
