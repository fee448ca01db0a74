"""Trackers of experiments, each the real package, offline: they get every epoch and the test scores, resumed runs too."""

import json

import pytest

from shoal.errors import ShoalError
from shoal.runs.config import RunConfig, apply_setting

SMALL = ("--method", "full", "--set", "model.hidden=8", "--out", "run")
pytestmark = pytest.mark.filterwarnings("default")  # of packages that are not ours


def read_records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train_twice(shoal, *options):
    """Two epochs, then a third after a resume."""
    for args in (
        ("train", "digits", *SMALL, *options, "--epochs", 2),
        ("train", "--resume", "run", "--epochs", 3),
    ):
        done = shoal(*args)
        assert done.code == 0, done.stderr


def test_tensorboard_has_every_epoch(shoal, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_twice(shoal, "--set", "training.callbacks=tensorboard")
    found = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    records = read_records(tmp_path / "run")
    losses = {event.step: event.value for event in found.Scalars("loss")}
    assert losses == pytest.approx({record["epoch"]: record["loss"] for record in records[:-1]}, rel=1e-6)
    assert found.Scalars("test_accuracy")[-1].value == pytest.approx(records[-1]["test_accuracy"])
    assert {"time/compute", "val_accuracy"} <= set(found.Tags()["scalars"])


def test_wandb_keeps_an_offline_run(shoal, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    project = ("--set", "training.callbacks=[wandb]", "--set", "training.wandb.project=fish")
    train_twice(shoal, *project, "--set", "training.wandb.group=school")
    logs = list((tmp_path / "run/wandb").glob("offline-run-*/run-*.wandb"))
    assert len(logs) == 2  # one a start; `wandb sync` joins them by their id
    assert len({path.name for path in logs}) == 1
    content = b"".join(path.read_bytes() for path in logs)
    for word in (b"fish", b"school", b"val_accuracy", b"test_accuracy", b"model.hidden"):
        assert word in content


def test_mlflow_has_one_run_with_every_epoch(shoal, tmp_path):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    train_twice(shoal, "--set", "training.callbacks=[mlflow]", "--set", f"training.mlflow.uri={uri}")
    client = mlflow.MlflowClient(uri)
    experiment = client.get_experiment_by_name("shoal")
    (run,) = client.search_runs([experiment.experiment_id])
    records = read_records(tmp_path / "run")
    logged = {one.step: one.value for one in client.get_metric_history(run.info.run_id, "loss")}
    assert logged == pytest.approx({record["epoch"]: record["loss"] for record in records[:-1]})
    assert run.data.metrics["test_accuracy"] == pytest.approx(records[-1]["test_accuracy"])
    assert run.data.params["model.hidden"] == "8"


def test_settings_of_callbacks_are_checked():
    def configure(*settings):
        config = RunConfig(data="digits", method="full")
        for setting in settings:
            apply_setting(config, setting)
        config.validate()
        return config

    config = configure("training.callbacks=[wandb]", "training.wandb.project=a", "training.wandb.group=b")
    assert config.training.given["wandb"] == {"project": "a", "group": "b"}
    with pytest.raises(ShoalError, match="did you mean 'project'"):
        configure("training.callbacks=[wandb]", "training.wandb.projet=a")
    with pytest.raises(ShoalError, match="belongs to callback 'wandb'"):
        configure("training.wandb.project=a")
    with pytest.raises(ShoalError, match="unknown callback 'wandbb'"):
        configure("training.callbacks=wandbb")
