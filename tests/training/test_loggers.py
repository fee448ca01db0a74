"""Trackers of experiments, each the real package, offline: they get every epoch and the test scores, resumed runs too."""

import json
import os
from importlib import import_module

import pytest

import shoal as package
from shoal.errors import ShoalError
from shoal.runs.config import RunConfig, apply_setting
from shoal.training.logger import RunLogger
from small_graphs import make_labelled

SMALL = ("--method", "full", "--set", "model.hidden=8", "--out", "run")
pytestmark = pytest.mark.filterwarnings("default")  # of packages that are not ours


def require_package(name):
    """The module; a test without it is skipped, in `make test-trackers` it fails."""
    return import_module(name) if os.environ.get("SHOAL_TRACKERS") else pytest.importorskip(name)


def read_records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def train_twice(shoal, *options):
    """Two epochs, then a third after a resume; whatever the package prints, stdout is JSON."""
    for epochs, args in ((2, ("digits", *SMALL, *options)), (3, ("--resume", "run"))):
        done = shoal("train", *args, "--epochs", epochs, "--json")
        assert done.code == 0, done.stderr
        assert json.loads(done.stdout)["epochs"] == epochs
        assert "gets no more figures" not in done.stderr


def test_tensorboard_has_every_epoch(shoal, tmp_path):
    require_package("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train_twice(shoal, "--set", "training.callbacks=tensorboard")
    found = EventAccumulator(str(tmp_path / "run/tensorboard")).Reload()
    records = read_records(tmp_path / "run")
    losses = {event.step: event.value for event in found.Scalars("loss")}
    assert losses == pytest.approx({record["epoch"]: record["loss"] for record in records[:-1]}, rel=1e-6)
    assert found.Scalars("test_accuracy")[-1].value == pytest.approx(records[-1]["test_accuracy"])
    assert {"time/compute", "val_accuracy"} <= set(found.Tags()["scalars"])


def test_wandb_keeps_an_offline_run(shoal, tmp_path, monkeypatch):
    require_package("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    project = ("--set", "training.callbacks=[wandb]", "--set", "training.wandb.project=fish")
    train_twice(shoal, *project, "--set", "training.wandb.group=school")
    logs = list((tmp_path / "run/wandb").glob("offline-run-*/run-*.wandb"))
    assert len(logs) == 2  # one a start; `wandb sync` joins them by their id
    assert len({path.name for path in logs}) == 1
    content = b"".join(path.read_bytes() for path in logs)
    for word in (b"fish", b"school", b"val_accuracy", b"test_accuracy", b"model.hidden"):
        assert word in content


def test_mlflow_has_one_run_with_every_epoch(shoal, tmp_path):
    mlflow = require_package("mlflow")
    require_package("sqlalchemy")
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


def test_a_server_of_mlflow_that_is_not_there_is_a_notice(shoal, monkeypatch):
    require_package("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = "training.mlflow.uri=http://127.0.0.1:9"  # where nobody listens
    callback = ("--set", "training.callbacks=[mlflow]", "--set", uri)
    done = shoal("train", "digits", *SMALL, *callback, "--epochs", 2, "--json")
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 2
    assert done.stderr.count("notice: mlflow failed") == 1


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


class BrokenLogger(RunLogger):
    """A tracker that raises in one of its calls; `calls` are those that were made."""

    name = "broken"

    def __init__(self, *, at="log"):
        self.at, self.calls = at, []

    def _call(self, name):
        self.calls.append(name)
        if name == self.at:
            raise ConnectionError("the server is gone\nand more")

    def open(self, folder, settings, epoch):
        self._call("open")

    def log(self, values, epoch):
        self._call("log")

    def close(self):
        self._call("close")


@pytest.mark.parametrize(
    ("at", "calls"),
    [
        ("open", ["open"]),
        ("log", ["open", "log", "close"]),
        ("close", ["open", "log", "log", "log", "close"]),
    ],
)
def test_a_tracker_that_raises_is_one_notice_and_training_goes_on(capsys, at, calls):
    graph, logger = make_labelled(200), BrokenLogger(at=at)
    model = package.GNN("gcn", graph.num_features, 8, graph.num_classes)
    records = package.Trainer(model, graph, callbacks=[logger]).fit(3)
    assert len(records) == 3
    assert logger.calls == calls
    said = capsys.readouterr().err
    assert said.count("notice: ") == 1
    assert "broken failed" in said
    assert "ConnectionError: the server is gone)" in said


def test_a_run_ends_well_with_a_tracker_that_raises(shoal, tmp_path):
    (tmp_path / "plugin.py").write_text(
        "import shoal\n"
        "from shoal.training.logger import RunLogger\n\n"
        "@shoal.CALLBACKS.register\n"
        "class Broken(RunLogger):\n"
        "    name = 'broken-tracker'\n\n"
        "    def open(self, folder, settings, epoch): ...\n\n"
        "    def log(self, values, epoch):\n"
        "        raise RuntimeError('quota exceeded')\n\n"
        "    def close(self): ...\n"
    )
    done = shoal("train", "digits", *SMALL, "--epochs", 2, "--plugin", tmp_path / "plugin.py",
                 "--set", "training.callbacks=[broken-tracker]", "--json")  # fmt: skip
    assert done.code == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 2
    assert done.stderr.count("quota exceeded") == 1
