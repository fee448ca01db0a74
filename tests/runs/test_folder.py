"""Which runs a job that is started again goes on with."""

import json
from pathlib import Path

import pytest

from shoal.distributed import detect
from shoal.runs.config import RunConfig
from shoal.runs.folder import JOB, METRICS, SUMMARY, describe_job, is_of_this_job, make_folder

EPOCH, FINAL = {"epoch": 1, "loss": 0.5}, {"best_epoch": 1, "test_accuracy": 0.5}


@pytest.mark.parametrize(
    ("files", "goes_on"),
    [
        ({}, True),
        ({METRICS: [EPOCH]}, True),
        ({METRICS: [EPOCH, FINAL]}, False),
        ({SUMMARY: [{}]}, False),
    ],
)
def test_a_job_goes_on_with_its_runs_that_have_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict, goes_on: bool
) -> None:
    for name in (detect.JOB, "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    config, folder = RunConfig(data="digits"), tmp_path / "run"
    lines = {name: "".join(json.dumps(line) + "\n" for line in said) for name, said in files.items()}
    make_folder(folder, {JOB: describe_job(config)} | lines)
    assert is_of_this_job(folder, config) is goes_on
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert not is_of_this_job(folder, config)
