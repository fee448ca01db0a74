"""The command line as a person uses it: train, resume, embed, predict, and what it says when refused."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner

import shoal
from shoal.cli import main
from shoal.cli import shoal as shoal_command
from shoal.runs.config import RunConfig


def run(capsys, *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(args))
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def train(capsys, folder: Path, *more: str) -> tuple[int, str, str]:
    small = ("--set", "model.hidden=16", "--set", "sampler.roots=100", "--out", str(folder))
    return run(capsys, "train", "digits", *small, *more)


def test_a_run_says_that_patience_ended_it(capsys, tmp_path):
    still = ("--set", "training.lr=1e-9", "--set", "training.patience=2", "--set", "training.eval_every=2")
    code, out, _ = train(capsys, tmp_path / "run", "--epochs", "30", *still)
    assert code == 0
    assert re.search(r"in epoch (\d+); ended after epoch (\d+) by training.patience=2", out)
    code, out, _ = train(capsys, tmp_path / "short", "--epochs", "2", *still)
    assert "by training.patience" not in out


def test_a_run_that_evaluates_a_sample_ends_with_exact_scores(capsys, tmp_path):
    code, out, _ = train(capsys, tmp_path / "run", "--epochs", "2", "--set", "training.eval_sample=100")
    assert code == 0
    assert re.search(r"val accuracy 0\.\d{4} ± 0\.\d{4}", out)
    assert "best validation accuracy of 100 nodes" in out
    first, *_, last = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert first["val_accuracy"] * 100 == pytest.approx(round(first["val_accuracy"] * 100))
    assert 0 < first["val_accuracy_error"] < 0.1
    found = shoal.load_run(tmp_path / "run").evaluate("val")
    assert last["val_accuracy"] == found["accuracy"]
    assert "test_accuracy" in last


def test_train_leaves_a_run_folder_that_embed_and_predict_read(capsys, tmp_path):
    folder = tmp_path / "run"
    code, out, _ = train(capsys, folder, "--epochs", "3", "--seed", "5", "--set", "model.head_layers=1")
    assert code == 0
    assert "epoch 3/3" in out
    assert "test accuracy" in out
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record.get("epoch") for record in records] == [1, 2, 3, None]
    assert records[0].keys() >= {"loss", "seconds", "nodes_per_second", "val_accuracy", "val_f1_micro"}
    assert 0.1 < records[-1]["test_accuracy"] <= 1
    assert yaml.safe_load((folder / "config.yaml").read_text())["training"]["seed"] == 5
    assert {path.name for path in (folder / "checkpoints").iterdir()} == {
        "last.safetensors",
        "last-1.safetensors",
        "best.safetensors",
    }

    assert run(capsys, "embed", str(folder), "-o", str(tmp_path / "z.npy"))[0] == 0
    assert np.load(tmp_path / "z.npy").shape == (1797, 16)
    assert run(capsys, "predict", str(folder), "-o", str(tmp_path / "y.parquet"))[0] == 0
    labels = pq.read_table(tmp_path / "y.parquet")
    graph = shoal.load("digits")
    right = labels["label"].to_numpy() == graph.y
    assert right[graph.test_mask].mean() == pytest.approx(records[-1]["test_accuracy"])
    code, _, said = run(capsys, "train", str(folder))
    assert code == 2
    assert f"{folder} is a run, not a graph: `shoal train --resume {folder}` continues it" in said


def test_a_resumed_command_ends_with_the_scores_of_an_uninterrupted_one(capsys, tmp_path):
    train(capsys, tmp_path / "straight", "--epochs", "4")
    train(capsys, tmp_path / "halved", "--epochs", "2")
    code, _, _ = run(capsys, "train", "--resume", str(tmp_path / "halved"), "--epochs", "4")
    assert code == 0
    lines = [(tmp_path / name / "metrics.jsonl").read_text().splitlines() for name in ("straight", "halved")]
    straight, halved = ([json.loads(line) for line in text] for text in lines)
    assert straight[-1] == halved[-1]
    assert [r["loss"] for r in straight[:-1]] == [r["loss"] for r in halved[:-1]]


def test_a_resumed_run_with_nothing_left_to_train_says_why(capsys, tmp_path):
    folder = tmp_path / "run"
    # Steps this large make some evaluation worse than the one before, long before epoch 60.
    train(capsys, folder, "--epochs", "60", "--set", "training.patience=1", "--set", "training.lr=0.3")
    epochs = len((folder / "metrics.jsonl").read_text().splitlines()) - 1
    assert epochs < 60
    code, out, _ = run(capsys, "train", "--resume", str(folder))
    assert code == 0
    said = " ".join(out.split())
    assert (
        f"stopped by patience in epoch {epochs}, nothing left to train: continue with --set training.patience=N, larger than 1"
        in said
    )
    code, out, _ = run(capsys, "train", "--resume", str(folder), "--epochs", str(epochs))
    assert f"all {epochs} epochs are trained: give a larger --epochs to continue" in out


def test_names_and_paths_are_printed_as_they_are(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = shoal.load("digits")._copy(name="g[/x]")
    shoal.save_graph(odd, tmp_path / "g[" / "x]")
    small = ("--set", "model.hidden=8", "--set", "sampler.roots=100", "--epochs", "1")
    code, out, _ = run(capsys, "train", "g[/x]", *small, "--out", "r[/x]")
    assert code == 0
    assert "g[/x]: 1,797 nodes" in out
    assert "run folder: r[/x]" in out
    code, out, _ = run(capsys, "predict", "r[/x]", "-o", "r[/x]/y.npy")
    assert code == 0
    assert "r[/x]/y.npy: 1,797 nodes" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "digts"], "did you mean 'digits'"),
        (["train", "nowhere/graph"], "nowhere/graph does not exist"),
        (["train", "digits", "--epocs", "3"], "--epochs"),
        (["train"], "no data given"),
        (["train", "--resume", "nowhere"], "nowhere is not a run folder"),
        (["embed", "nowhere", "-o", "z.txt"], "ends in .npy or .parquet"),
        (["trian", "digits"], "did you mean 'train'"),
    ],
)
def test_a_refusal_is_one_sentence_with_exit_code_2_and_leaves_nothing(
    capsys, tmp_path, monkeypatch, args, message
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *args)
    assert code == 2
    assert message in err
    assert "Traceback" not in out + err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_run_is_never_overwritten(capsys, tmp_path):
    train(capsys, tmp_path / "run", "--epochs", "1")
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    code, _, err = train(capsys, tmp_path / "run", "--epochs", "1")
    assert code == 2
    assert "exists already" in err
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before


def test_help_shows_the_defaults_that_hold():
    said = " ".join(CliRunner().invoke(shoal_command, ["train", "--help"]).output.split())
    config = RunConfig()
    for option, default in {
        "--method": "full or sampled, whichever fits the graph",
        "--sampler": f"{config.sampler.name}, none with method partitioned",
        "--model": "chosen by the graph",
        "--epochs": "chosen by the graph",
        "--seed": config.training.seed,
    }.items():
        assert (
            f"[default: {default}]" in said.split(" Options: ")[1].split(f"{option} ", 1)[1].split(" --")[0]
        )
    settings = dict(
        re.findall(r"(training\.\w+|model\.\w+)=([\w.]+)", said.split("and their defaults:", 1)[1])
    )
    for key, shown in settings.items():
        part, name = key.split(".")
        default = getattr(getattr(config, part), name)
        assert yaml.safe_load(shown) == default, key
    assert len(settings) >= 14


def test_doctor_tells_that_kernels_agree_with_torch(capsys):
    code, out, _ = run(capsys, "doctor")
    assert code == 0
    assert "agree with torch" in out


def test_demo_sets_a_gnn_beside_a_model_without_edges(capsys):
    code, out, _ = run(capsys, "demo", "--epochs", "1")
    assert code == 0
    assert "s (SAGE)" in out
    rows = out[out.index("\ndata set ") :].splitlines()[2:4]
    assert [row.split()[0] for row in rows] == ["digits", "blocks"]
    assert all(len(row.split()) == 6 for row in rows)


INTERRUPTED = """
import os, signal
import shoal

@shoal.CALLBACKS.register
class Interrupt(shoal.Callback):
    "Ctrl-C while the trainer is made."

    name = "interrupt-early"

    def __init__(self):
        os.kill(os.getpid(), signal.SIGINT)
"""


def test_ctrl_c_before_training_says_that_nothing_was_saved(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "early.py").write_text(INTERRUPTED)
    given = ("--plugin", "early.py", "--set", "training.callbacks=[interrupt-early]", "--out", "run")
    code, _, err = run(capsys, "train", "digits", "--epochs", "1", *given)
    assert code == 130
    assert "interrupted before the first step ended: nothing was saved" in err
    assert not (tmp_path / "run").exists()
