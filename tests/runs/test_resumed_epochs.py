"""Resuming: fewer epochs than are trained are refused and change nothing; patience can be raised."""

import yaml


def test_fewer_epochs_than_are_trained_are_refused(shoal, tmp_path):
    fast = ("--set", "model.hidden=8", "--out", "run", "--epochs", 3)
    assert shoal("train", "digits", *fast).code == 0
    before = (tmp_path / "run/config.yaml").read_text()
    refused = shoal("train", "--resume", "run", "--epochs", 2)
    assert refused.code == 2
    assert "run has trained 3 epochs: --epochs 2 is less, give more" in refused.stderr
    assert (tmp_path / "run/config.yaml").read_text() == before


def test_a_run_that_ran_out_of_patience_goes_on_with_more(shoal, tmp_path):
    fast = ("--set", "model.hidden=8", "--set", "training.lr=0.5", "--out", "run", "--epochs", 40)
    assert shoal("train", "digits", *fast, "--set", "training.patience=1").code == 0
    trained = len((tmp_path / "run/metrics.jsonl").read_text().splitlines())
    ended = shoal("train", "--resume", "run")
    assert "--set training.patience=N, larger than 1" in ended.stdout
    assert shoal("train", "--resume", "run", "--set", "training.patience=null").code == 0
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 41 > trained
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["training"]["patience"] is None
    refused = shoal("train", "--resume", "run", "--set", "training.lr=0.1").refusal()
    assert (
        "only --epochs and --set training.patience=N may change: leave out --set training.lr=0.1" in refused
    )
    assert (
        "patience is 0: expected at least 1"
        in shoal("train", "--resume", "run", "--set", "training.patience=0").refusal()
    )
