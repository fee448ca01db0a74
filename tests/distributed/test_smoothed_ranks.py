"""Smoothing the predictions of a run on parts gives the labels of a single process."""

import numpy as np

from rank_runs import train_run
from shoal.commands.smoothed import write_smoothed
from shoal.distributed.transport import LocalTransport


def test_labels_smoothed_from_parts_are_those_of_one_process(ranks, tmp_path):
    common = {"data": "digits", "model": {"hidden": 16}, "training": {"epochs": 4, "threads": 1}}
    train_run(LocalTransport(), {**common, "method": "full"}, str(tmp_path / "alone"))
    ranks("gloo", 2).call(train_run, {**common, "method": "partitioned"}, str(tmp_path / "parts"))
    for name in ("alone", "parts"):
        write_smoothed(tmp_path / name, tmp_path / f"{name}.npy", with_validation=False)
    one, other = np.load(tmp_path / "alone.npy"), np.load(tmp_path / "parts.npy")
    assert np.mean(one == other) > 0.995
