"""Repeated runs: one folder a seed, mean and deviation, resumed where they stopped."""

import json
import os
import re
import signal
import statistics

import pytest

import shoal
from command_line import run_shoal
from forked import holding
from shoal.commands.jobs import train_run
from shoal.commands.runs import train_here
from shoal.distributed.transport import LocalTransport
from shoal.errors import Stopped
from shoal.lock import writing
from shoal.runs.config import RunConfig, make_config, read_config
from shoal.runs.recipes import find_recipe, list_recipes
from shoal.training.callback import CALLBACKS, Callback

SMALL = ("--set", "model.hidden=16", "--set", "sampler.roots=100", "--epochs", "2")


def test_repeat_trains_every_seed_and_tells_mean_and_deviation(tmp_path):
    folder = tmp_path / "runs"
    said = run_shoal("train", "digits", *SMALL, "--seed", "3", "--repeat", "3", "--out", str(folder))
    assert {path.name for path in folder.glob("seed-*")} == {"seed-3", "seed-4", "seed-5"}
    summary = json.loads((folder / "summary.json").read_text())
    each = summary["test_accuracy"]["each"]
    assert len(set(each)) > 1
    assert summary["test_accuracy"]["mean"] == pytest.approx(statistics.mean(each))
    assert summary["test_accuracy"]["deviation"] == pytest.approx(statistics.stdev(each))
    assert f"test accuracy {statistics.mean(each):.4f} ± {statistics.stdev(each):.4f} over 3 seeds" in said

    alone = run_shoal("train", "digits", *SMALL, "--seed", "4", "--out", str(tmp_path / "alone"))
    assert f"test accuracy {each[1]:.4f}" in alone

    for path in sorted((folder / "seed-5").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (folder / "seed-5").rmdir()
    run_shoal("train", "--resume", str(folder))
    assert json.loads((folder / "summary.json").read_text()) == summary


@pytest.mark.parametrize("name", list_recipes())
def test_every_recipe_is_a_valid_configuration_with_a_target(name):
    config = read_config(find_recipe(name))
    config.validate()
    assert config.data
    assert config.target.source


def test_a_recipe_says_whether_its_target_was_reached(tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        "data: digits\nmodel: {hidden: 16}\ntraining: {epochs: 2}\nsampler: {options: {roots: 100}}\n"
        "target: {metric: accuracy, score: 0.05, source: a guess}\n"
    )
    said = run_shoal("train", "--recipe", str(recipe), "--out", str(tmp_path / "one"))
    assert "target accuracy 0.05: reached (a guess)" in said
    said = run_shoal("recipes", "--run", str(recipe), "--out", str(tmp_path / "all"))
    assert "| yes |" in said
    table = (tmp_path / "all" / "table.md").read_text()
    assert table in said
    again = run_shoal("recipes", "--run", str(recipe), "--out", str(tmp_path / "all"))
    assert "all 2 epochs are trained" in again
    assert "has changed" not in again


def test_a_recipe_that_changed_is_trained_anew_and_the_old_run_kept(tmp_path):
    recipe, out = tmp_path / "mine.yaml", tmp_path / "all"
    text = "data: digits\nmodel: {hidden: 16}\ntraining: {epochs: 1}\nsampler: {options: {roots: 100}}\nrepeat: 2\n"
    target = "target: {metric: accuracy, score: 0.05, source: a guess}\n"
    recipe.write_text(text + target)
    run_shoal("recipes", "--run", str(recipe), "--out", str(out))
    recipe.write_text(text + target.replace("0.05", "0.06"))
    assert "has changed" not in run_shoal("recipes", "--run", str(recipe), "--out", str(out))
    recipe.write_text(text.replace("hidden: 16", "hidden: 24").replace("roots: 100", "roots: 90") + target)
    said = run_shoal("recipes", "--run", str(recipe), "--out", str(out)).replace("\n", " ")
    assert "the recipe has changed (model.hidden 16 → 24, sampler.roots 100 → 90)" in said
    assert read_config(out / "mine" / "seed-0" / "config.yaml").model.hidden == 24
    assert read_config(out / "mine-1" / "seed-0" / "config.yaml").model.hidden == 16


def test_recipes_are_listed_and_unknown_ones_refused():
    assert "cora" in run_shoal("recipes")
    with pytest.raises(shoal.ShoalError, match="did you mean 'cora'"):
        find_recipe("corra")
    with pytest.raises(shoal.ShoalError, match="does not exist"):
        find_recipe("mine.yaml")
    with pytest.raises(shoal.ShoalError, match="repeat is 0"):
        RunConfig(data="digits", repeat=0).validate()


class Late(Callback):
    """Asks to end after the last step."""

    def on_end(self, trainer):
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_after_the_last_step_ends_between_two_seeds_and_says_how_to_go_on(tmp_path, monkeypatch):
    folder = tmp_path / "runs"
    config = make_config({"data": "digits", "repeat": 2, "model": {"hidden": 8}})
    monkeypatch.setitem(CALLBACKS._components, "late", Late)
    config.training.epochs, config.training.callbacks = 1, ["late"]
    said = re.escape(f"ended by SIGTERM; continue with: shoal train --resume {folder}")
    with pytest.raises(Stopped, match=said):
        train_here(config, folder, None, LocalTransport())
    assert (folder / "seed-0" / "metrics.jsonl").is_file()
    assert not (folder / "seed-1").exists()
    with pytest.raises(shoal.ShoalError, match=r"holds repeated runs.*leave out --parts"):
        train_run(None, folder, parts="parts")


def test_a_new_folder_of_repeated_runs_has_one_writer(tmp_path):
    def enter():
        (opened := writing(tmp_path / "runs")).__enter__()
        return opened

    with holding(enter), pytest.raises(shoal.ShoalError, match="is being written by process"):
        train_here(RunConfig(data="digits", repeat=2), tmp_path / "runs", None, LocalTransport())
