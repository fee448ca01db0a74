"""`shoal tune`: what it shows, leaves and refuses."""

from __future__ import annotations

import csv
import subprocess
import sys

import pytest
from rich.console import Console

from shoal.commands.tune import make_table
from shoal.runs.config import read_config
from shoal.runs.tuning import Search

FAST = (
    "--set",
    "training.epochs=2",
    "--set",
    "model.hidden=16",
    "--set",
    "model.num_layers=2",
    "--seeds",
    "2",
)
INTERRUPTED = """
import os, signal
import shoal

@shoal.CALLBACKS.register
class Interrupt(shoal.Callback):
    "Ctrl-C in the third trial."

    name = "interrupt-third"
    trials = 0

    def on_start(self, trainer):
        Interrupt.trials += 1
        if Interrupt.trials == 3:
            os.kill(os.getpid(), signal.SIGINT)
"""


def test_a_search_ends_with_a_table_a_recipe_and_scores_over_fresh_seeds(shoal, tmp_path):
    said = shoal("tune", "digits", "--trials", 4, *FAST)
    assert said.code == 0, said.stderr
    folder = tmp_path / "runs" / "digits-tune-1"
    assert "the defaults" in said.stdout
    assert "\n4 trials: " in said.stdout
    assert ", the best of 4 trials: validation accuracy" in said.stdout
    assert "nothing was compared" not in said.stdout
    assert "test accuracy" in said.stdout
    assert "over 2 fresh seeds" in said.stdout
    with open(folder / "trials.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["trial"] for row in rows] == ["0", "1", "2", "3"]
    assert len({row["model.name"] for row in rows}) > 1
    trained = shoal("train", "--recipe", folder / "best.yaml", "--out", "run")
    assert trained.code == 0, trained.stderr
    assert "shoal tune, 2 fresh seeds" in trained.stdout
    more = shoal("tune", "--resume", folder, "--trials", 5)
    assert more.code == 0, more.stderr
    assert "trial 4:" in more.stdout
    assert "trial 3:" not in more.stdout


def test_a_single_trial_is_not_called_the_best(shoal, tmp_path):
    said = shoal("tune", "digits", "--trials", 1, *FAST, "--out", "tune")
    assert said.code == 0, said.stderr
    assert "1 trial: 1 done\n" in said.stdout
    assert "trial 0, the defaults, the only trial with a score: validation accuracy" in said.stdout
    assert "notice: nothing was compared: continue with `shoal tune --resume tune --minutes N`" in said.stdout
    assert "best" not in said.stdout.replace("best.yaml", "")
    assert (
        (tmp_path / "tune" / "best.yaml").read_text().splitlines()[0].endswith("the only trial with a score.")
    )


def test_too_little_time_is_said_in_the_first_trial(shoal, tmp_path):
    endless = (
        "--set",
        "training.epochs=100000",
        "--set",
        "training.patience=null",
        "--set",
        "model.hidden=16",
    )
    said = shoal("tune", "digits", "--minutes", 0.15, "--seeds", 1, *endless, "--out", "tune")
    assert said.code == 0, said.stderr
    (notice,) = [line for line in said.stdout.splitlines() if "notice: the defaults take up to" in line]
    assert "(100,000 epochs) and a trial gets 2." in notice
    assert int(notice.split("--minutes ")[1].split()[0]) > 1
    assert said.stdout.index(notice) < said.stdout.index("trial 0:")
    assert "nothing was compared" not in said.stdout
    short = shoal("tune", "digits", "--minutes", 1, "--trials", 1, *FAST, "--out", "short")
    assert "the defaults take" not in short.stdout


def test_the_table_fits_80_columns_without_a_broken_word(shoal, tmp_path):
    assert shoal("tune", "digits", "--trials", 6, *FAST, "--out", "tune").code == 0
    console = Console(width=80, record=True)
    with console.capture() as capture:
        console.print(make_table(Search.open(tmp_path / "tune").tried))
    words = {word.strip(",") for word in capture.get().split()}
    assert max(map(len, capture.get().splitlines())) <= 80
    assert {"trial", "ended", "settings", "dropout", "weight_decay", "norm_place"} <= words


def test_ctrl_c_ends_with_the_best_so_far_and_the_command_that_goes_on(shoal, tmp_path):
    (tmp_path / "mine.py").write_text(INTERRUPTED)
    options = ("--plugin", "mine.py", "--set", "training.callbacks=[interrupt-third]")
    ended = shoal("tune", "digits", "--trials", 5, *FAST, *options, "--out", "tune")
    assert ended.code == 130
    assert "continue with: shoal tune --resume tune" in ended.stderr
    assert "best so far" in ended.stdout
    assert "test" not in ended.stdout
    assert read_config(tmp_path / "tune" / "best.yaml").data == "digits"
    resumed = shoal("tune", "--resume", "tune", "--trials", 3)
    assert resumed.code == 0, resumed.stderr
    assert "trial 2:" in resumed.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("tune",), "no data given"),
        (("tune", "nowhere/graph"), "nowhere/graph does not exist"),
        (("tune", "--resume", "nowhere"), "nowhere is not a folder of `shoal tune`"),
        (("tune", "digits", "--resume", "x", "--seed", "1"), "leave out DATA, --seed"),
        (("tune", "digits", "--set", "model.nam=gcn"), "did you mean 'name'"),
        (("tune", "digits", "--set", "method=swapped"), "method swapped is not searched"),
        (("tune", "digits", "--minutes", "0"), "--minutes"),
    ],
)
def test_a_refusal_is_one_sentence_and_leaves_nothing(shoal, tmp_path, args, message):
    assert message in shoal(*args).refusal()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_missing_optuna_is_said_with_the_extra_that_brings_it(tmp_path):
    code = "import sys; sys.modules['optuna'] = None; from shoal.cli import main; main(['tune', 'digits'])"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert ended.returncode == 2
    assert ended.stderr.strip() == "shoal: shoal tune needs Optuna: pip install 'shoal[tune]'"
    assert not list(tmp_path.iterdir())
