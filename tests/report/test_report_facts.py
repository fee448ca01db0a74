"""Facts of runs: figures that follow from what a run recorded, and the settings and command that made it."""

import json
import shlex

import pytest

from report_folders import write_run
from shoal.cli import shoal as group
from shoal.commands.train import configure
from shoal.errors import ShoalError
from shoal.report.curves import join_seeds
from shoal.report.facts import group_runs, read_run, read_runs
from shoal.report.settings import format_command, list_changed, make_command
from shoal.runs.config import make_config


def test_figures_of_a_run(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    assert run.metric == "accuracy"
    assert run.clock[:2] == [5.5, 7.0]
    assert run.best == (5, 11.5, pytest.approx(0.8))
    assert run.test == 0.75
    assert run.epoch_seconds == 1.0
    assert run.peak == 300_000_000
    assert run.epoch_bytes is None


def test_time_is_split_without_losing_a_second(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    spent = run.time_parts
    assert sum(spent.values()) == pytest.approx(run.clock[-1])
    assert spent["sampling"] == pytest.approx(6 * 0.25)
    assert spent["evaluation"] == pytest.approx(6 * 0.5)
    assert spent["start"] == pytest.approx(4.0)  # of the first epoch, beyond the median
    assert spent["aggregation"] == pytest.approx(6 * 0.75 * 0.25)
    assert spent["dense"] == pytest.approx(6 * 0.75 * 0.5)


def test_a_run_that_found_its_kernels_compiled_has_compiled_nothing(tmp_path):
    folder = write_run(tmp_path / "run")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines[:-1]:
        line |= {"compile_seconds": 0.0, "eval_compile_seconds": 0.0}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = read_run(folder)
    assert "start" not in run.time_parts
    assert sum(run.time_parts.values()) == pytest.approx(run.clock[-1])


def test_bytes_are_summed_by_sender_and_receiver(tmp_path):
    run = read_run(write_run(tmp_path / "run", ranks=3))
    assert run.sent == [[0, 100, 100], [200, 0, 200], [300, 300, 0]]
    assert run.epoch_bytes == 1200


def test_a_run_that_goes_on_has_no_test_score(tmp_path):
    run = read_run(write_run(tmp_path / "run", ends=False, epochs=2))
    assert run.final is None
    assert run.test is None
    assert run.outcomes == {}


def test_runs_that_differ_by_their_seed_are_one_group(tmp_path):
    folders = [write_run(tmp_path / f"s{seed}", lift=0.01 * seed, training={"seed": seed}) for seed in (1, 2)]
    folders.append(write_run(tmp_path / "wide", model={"hidden": 512}))
    seeds, wide = group_runs(read_runs(folders))
    assert [run.seed for run in seeds.runs] == [1, 2]
    assert seeds.average("test") == (pytest.approx(0.765), pytest.approx(0.0070710678))
    assert seeds.add_outcomes()["confusion"][0] == [16, 0, 2]
    assert [seeds.label, wide.label] == ["s1 +1", "wide"]


def test_a_folder_of_repeated_runs_stands_for_its_seeds(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / "all" / f"seed-{seed}", training={"seed": seed})
    (tmp_path / "all/repeat.yaml").write_text((tmp_path / "all/seed-0/config.yaml").read_text())
    (one,) = group_runs(read_runs([tmp_path / "all"]))
    assert (one.label, len(one.runs)) == ("all", 2)


def test_seeds_are_joined_where_all_have_values():
    first = [(1, 1.0, 0.0), (2, 2.0, 1.0), (3, 3.0, 2.0)]
    second = [(1, 1.5, 2.0), (3, 3.5, 4.0)]
    epochs, mean, deviation = join_seeds([first, second], "epoch")
    assert epochs.tolist() == [1, 2, 3]
    assert mean.tolist() == [1, 2, 3]
    assert deviation.tolist() == pytest.approx([2**0.5] * 3)
    seconds, _, _ = join_seeds([first, second], "seconds")
    assert seconds.tolist() == [1.5, 2.0, 3.0]


@pytest.mark.parametrize("damage", ['{"epoch": 1}\n', '{"epoch": 1, "loss": "x", "seconds": 1}\n'])
def test_a_record_without_figures_is_refused(tmp_path, damage):
    folder = write_run(tmp_path / "run")
    (folder / "metrics.jsonl").write_text(damage)
    with pytest.raises(ShoalError, match="is damaged: epoch 1 has no number"):
        read_run(folder)


def test_only_changed_settings_are_marked(tmp_path):
    run = read_run(write_run(tmp_path / "run", model={"hidden": 64}, training={"lr": 0.01}))
    assert set(list_changed(run.settings, run.defaults)) == {"data", "method", "model.hidden"}


CONFIGS = [
    {"method": "full", "model": {"name": "gat", "hidden": 8}, "training": {"lr": 1e-5, "patience": None}},
    {"sampler": {"name": "frontier", "budget": 77}, "training": {"seed": 3, "epochs": 7}},
    {"data_options": {"nodes": "it's mine", "id": "yes", "scale": 3}},
    {"method": "partitioned", "partition": {"method": "block", "boundary_rate": 0.5}},
    {"method": "partitioned", "partition": {"sampled": True}, "sampler": {"name": "node"}},
    {"method": "swapped", "partition": {"parts": 5}},
]


@pytest.mark.parametrize("content", CONFIGS, ids=lambda content: json.dumps(content)[:40])
def test_the_command_repeats_the_configuration(content):
    config = make_config({"data": "digits", **content})
    config.validate()
    words = shlex.split(format_command(make_command(config)).replace("\\\n", " "))
    assert words[:2] == ["shoal", "train"]
    told = group.commands["train"].make_context("train", words[2:], resilient_parsing=False).params
    names = ("data", "method", "sampler", "model", "epochs", "seed", "recipe", "settings", "plugins")
    again = configure(*(told[name] for name in names))
    if told["parts"]:
        again.partition.parts = int(told["parts"])
    again.validate()
    assert again.to_dict() == config.to_dict()
