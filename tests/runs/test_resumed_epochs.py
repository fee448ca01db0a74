"""Resuming with fewer epochs than are trained is refused and changes nothing."""


def test_fewer_epochs_than_are_trained_are_refused(shoal, tmp_path):
    fast = ("--set", "model.hidden=8", "--out", "run", "--epochs", 3)
    assert shoal("train", "digits", *fast).code == 0
    before = (tmp_path / "run/config.yaml").read_text()
    refused = shoal("train", "--resume", "run", "--epochs", 2)
    assert refused.code == 2
    assert "run has trained 3 epochs: --epochs 2 would end before" in refused.stderr
    assert (tmp_path / "run/config.yaml").read_text() == before
