"""Plans: every candidate is measured or predicted, what does not fit is not taken, and bytes are those of the simulator."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

import shoal as package
from shoal.analysis.simulate import Machine, predict_epoch
from shoal.errors import ShoalError
from shoal.partitioning.part import split_graph
from shoal.runs import rehearsal
from shoal.runs.build import make_model
from shoal.runs.choose import choose_method
from shoal.runs.config import make_config
from shoal.runs.data import partition_for_run
from shoal.runs.plan import Planner
from shoal.runs.rehearsal import rehearse, rehearse_apart

WIRE = Machine(50e-6, 125e6)
SIZES = {"num_nodes": 2000, "num_features": 8, "seed": 1}
SMALL = {"data": "blocks", "data_options": SIZES, "model": {"hidden": 16}}


@pytest.fixture(scope="module")
def graph():
    return package.load("blocks", **SIZES).with_split(seed=0)


def make_planner(graph, memory=1 << 40, **options):
    settings = {**SMALL, "sampler": options.pop("sampler", {"name": "node", "budget": 200})}
    return Planner(
        make_config(settings),
        graph,
        memory=memory,
        seconds=options.pop("seconds", 600),
        rehearse=lambda config, seconds, budget: rehearse(config, 0.2),
        **options,
    )


def test_the_help_says_what_is_measured_as_the_page_does(shoal):
    said = " ".join(shoal("plan", "--help").stdout.split())
    assert "to measure time and memory; what does not run here is predicted" in said


def test_a_plan_has_figures_of_every_candidate_and_takes_what_train_would(graph):
    planner = make_planner(graph)
    plan = planner.plan()
    assert [one.name for one in plan.candidates] == ["sampled, node", "full", "precomputed, sign"]
    assert all(one.seconds > 0 and one.cpu > 0 and one.evaluation > 0 for one in plan.candidates)
    assert all(one.fits and one.how == "measured" for one in plan.candidates)
    assert plan.best.options[1] == choose_method(planner.config, graph).method
    whole = make_planner(graph, sampler={"name": "node", "budget": 20000}).plan()
    assert whole.best.name == "full"
    assert json.loads(json.dumps(plan.to_dict()))["best"] == plan.best.name


def test_what_there_is_no_time_for_is_predicted_by_its_work(graph):
    plan = make_planner(graph, sampler={}, seconds=1e-3).plan()
    how = {one.name: one.how for one in plan.candidates}
    assert how == {"sampled, random-walk": "predicted", "full": "measured"}  # the one that is taken
    assert all(one.seconds > 0 for one in plan.candidates)


def test_a_rehearsal_keeps_nothing_and_does_not_touch_the_configuration_it_plans(
    graph, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    planner = make_planner(graph)
    before = planner.config.to_dict()
    planner.plan()
    assert planner.config.to_dict() == before
    assert not list(tmp_path.iterdir())


def test_a_rehearsal_leaves_no_hops_in_the_home(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path))
    monkeypatch.setattr("shoal.models.kept_hops._WORTH_KEEPING", 1)
    sign = {"name": "sign", "hidden": 16}
    config = make_config({**SMALL, "method": "sampled", "model": sign, "sampler": {"name": "rows"}})
    assert rehearse(config, 0.1).seconds > 0
    assert not (tmp_path / "hops").exists()


def test_what_a_plugin_prints_is_no_part_of_the_answer(tmp_path, capfd):
    (tmp_path / "loud.py").write_text('print("loaded")\n')
    config = make_config({**SMALL, "method": "full", "plugins": [str(tmp_path / "loud.py")]})
    assert rehearse_apart(config, 0.1).seconds > 0
    assert "loaded" in capfd.readouterr().err


def test_samplers_are_compared_where_none_is_given(graph):
    plan = make_planner(graph, sampler={}).plan()
    names = [one.name for one in plan.candidates]
    assert names[:3] == ["sampled, random-walk", "sampled, frontier", "sampled, node"]


def test_parts_send_what_the_simulator_counts_and_are_taken_where_one_host_is_too_small(graph):
    planner = make_planner(graph, hosts=3, machine=WIRE)
    full, need = (planner._try_sampled("node"), planner._try_full())[1]
    parts = planner._try_partitioned(full, need)
    config = make_config({**SMALL, "method": "partitioned"})
    cut = split_graph(graph, partition_for_run(config, graph, 3).assignment, 3)
    model = make_model(config, graph.num_features, graph.num_classes)
    assert parts.sent == predict_epoch(cut, model, WIRE, sparse_features=False).num_bytes
    full.fits = False
    best, reason = planner._choose([planner._try_sampled("node"), full, parts])
    assert best is parts
    assert "a host has" in reason


@pytest.mark.parametrize(
    "training", [{"label_reuse": 0.5, "label_iterations": 2}, {"setting": "inductive"}], ids=str
)
def test_parts_send_what_the_steps_of_the_run_send(graph, training):
    """Also in passes of label reuse, on training nodes alone, and in batch norm's sums, two of a layer."""
    model = {"hidden": 16, "num_layers": 2, "norm": "batch"}
    config = make_config({**SMALL, "model": model, "training": training, "method": "partitioned"})
    planner = Planner(config, graph, memory=1 << 40, hosts=3, machine=replace(WIRE, latency=10.0))
    planner.end = 0  # measures nothing
    parts = planner._try_partitioned(*planner._try_full())
    seen, own = graph, partition_for_run(config, graph, 3).assignment
    if "setting" in training:
        seen, own = graph.train_graph("inductive"), own[graph.train_mask]
    stack = make_model(config, graph.num_features, graph.num_classes)
    passes = training.get("label_iterations", 0)
    said = predict_epoch(
        split_graph(seen, own, 3), stack, planner.machine, sparse_features=False, label_iterations=passes
    )
    assert parts.sent == said.num_bytes > 0
    assert len(said.norm_sums) == 2 * (passes + 2)
    seconds = 4 * 10 * (len(said.norm_sums) + 1) + sum(said.exposed)  # a ring of three has four steps
    assert parts.seconds == pytest.approx(seconds, rel=0.01)


def test_swapped_parts_are_taken_where_nothing_else_fits(graph):
    planner = make_planner(graph)
    sampled, (full, _) = planner._try_sampled("node"), planner._try_full()
    sampled.fits = full.fits = False
    swapped = planner._try_swapped(full)
    assert swapped.how == "measured"
    assert swapped.options == ("--method", "swapped", "--parts", "8")
    assert planner._choose([sampled, full, swapped])[0] is swapped


def test_a_plan_of_a_directed_graph_varies_the_direction_with_the_method(graph):
    """What follows the graph, model.directions=both, is for ways of training that can."""
    planner = make_planner(graph, asked=make_config(SMALL))
    planner.config.model.directions = "both"
    ways = [("full", None), ("sampled", "node"), ("sampled", "neighbor"), ("swapped", None)]
    found = [planner._vary(*way).model.directions for way in ways]
    assert found == ["both", "both", "in", "in"]
    planner.asked.model.directions = "both"
    assert planner._vary("swapped").model.directions == "both"  # which is then refused


@pytest.mark.parametrize(("last", "fits"), [("kill -9 $$", False), ("exit 3", True)])
def test_a_candidate_whose_process_dies_is_predicted_and_the_plan_goes_on(
    graph, tmp_path, monkeypatch, last, fits
):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{last}\n")
    python.chmod(0o755)
    planner = make_planner(graph, hosts=2, machine=WIRE)
    here = planner._rehearse
    planner._rehearse = lambda config, *rest: (
        here(config, *rest) if config.method == "sampled" else rehearse_apart(config, *rest)
    )
    monkeypatch.setattr(sys, "executable", str(python))
    plan = planner.plan()
    sampled, full = plan.candidates[0], next(one for one in plan.candidates if one.name == "full")
    assert (sampled.how, sampled.fits, sampled.failed) == ("measured", True, None)
    assert (full.how, full.fits) == ("predicted", fits)
    assert "the process that measured method full ended with code" in full.failed
    assert ("out of memory" in full.failed) == (not fits)


def test_a_candidate_whose_process_compiled_kernels_is_measured_again_without_the_compiler(graph):
    planner, seen = make_planner(graph), []
    here = planner._rehearse

    def rehearse_cold(config, *rest):
        found = here(config, *rest)
        seen.append(replace(found, compiled=0 if seen else 7, memory=found.memory + (0 if seen else 1 << 30)))
        return seen[-1]

    planner._rehearse = rehearse_cold
    end = planner.end
    candidate = planner._try_sampled("node")
    assert len(seen) == 2
    assert candidate.memory == seen[1].memory < seen[0].memory
    assert planner.end > end  # compiling takes none of the time to measure


def test_a_plan_without_any_measurement_still_chooses(graph, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    planner = make_planner(graph, hosts=2, machine=WIRE)
    planner._rehearse = rehearse_apart
    plan = planner.plan()
    assert all(one.how == "predicted" for one in plan.candidates)
    assert plan.best.failed is not None


def test_a_machine_that_holds_nothing_is_refused(graph):
    with pytest.raises(ShoalError, match=r"nothing fits in 1\.0 kB"):
        make_planner(graph, memory=1000).plan()


def test_the_command_prints_what_to_run(shoal):
    options = ("--set", "model.hidden=16", "--seconds", 1)
    said = shoal("plan", "digits", *options)
    assert said.code == 0, said.stderr
    assert said.stdout.splitlines()[-1] == "shoal train digits --method full --set model.hidden=16"
    assert "epochs, evaluated after every epoch: about" in said.stdout
    told = json.loads(shoal("plan", "digits", *options, "--json", "--hosts", 2, "--memory", "64GB").stdout)
    assert told["memory"] == 64 * 10**9
    found = {one["options"][1]: one for one in told["candidates"]}
    assert found.keys() == {"sampled", "full", "partitioned"}
    assert found["partitioned"]["options"] == ["--method", "partitioned"]
    assert found["full"]["how"] == "measured"
    full = found["full"]
    assert told["total"] == pytest.approx(told["epochs"] * (full["seconds"] + full["evaluation"]))


def test_a_step_that_others_held_up_changes_little_and_the_first_ones_nothing():
    steps = [(9.0, 9.0, 1.0)] * 4 + [(0.1, 0.1, 1.0), (0.2, 0.2, 2.0)] * 14
    steps[20] = (50.0, 0.1, 1.0)
    wall, cpu, work = rehearsal._Timed(steps).sum_up()
    assert (wall, cpu, work) == pytest.approx((0.15, 0.15, 1.5), rel=0.05)
    assert rehearsal._Timed([(9.0, 9.0, 1.0), (0.1, 0.1, 1.0)]).sum_up() == pytest.approx((0.1, 0.1, 1.0))


def test_a_rehearsal_evaluates_between_epochs_as_the_run_does(monkeypatch):
    nodes: list[int] = []
    monkeypatch.setattr(package.METRICS, "_components", dict(package.METRICS))

    @package.METRICS.named("rehearsed")
    def count_nodes(logits, y):
        nodes.append(len(y))
        return 0.5

    sizes = {"eval_every": 3, "eval_sample": 50, "metric": "rehearsed"}
    found = rehearse(make_config({**SMALL, "method": "full", "training": sizes}), 5.0)
    assert found.interval == 3
    assert found.evaluation > 0
    assert found.starting > 0
    assert nodes.count(50) > 4  # the sample's, between epochs
    assert max(nodes) > 50  # the test nodes, at the end


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--network", "1Gbit"), "add --hosts N"),
        (("--hosts", "2", "--network", "fast"), "expected a rate such as 1Gbit"),
        (("--memory", "much"), "is not a memory size"),
        (("--set", "method=full"), "chooses the method"),
        (("--model", "sag"), "did you mean 'sage'"),
    ],
)
def test_a_refusal_is_one_sentence(shoal, args, message):
    assert message in shoal("plan", "digits", *args).refusal()
