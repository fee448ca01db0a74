"""Ranks that are lost: all start again from the last checkpoint and end with the weights of an undisturbed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from safetensors.numpy import load_file

from launched_ranks import free_port, rank_environment
from live_ranks import RankPool
from patience import LONGEST, await_end, slow
from rank_runs import train_run

EPOCHS = 300
SETTINGS = {
    "data": "digits",
    "method": "partitioned",
    "model": {"hidden": 8},
    "partition": {"method": "block"},
    "training": {"epochs": EPOCHS, "patience": None, "eval_every": 50},
}
COMMAND = (
    *("train", "digits", "--method", "partitioned", "--epochs", str(EPOCHS)),
    *("--set", "defaults=fixed", "--set", "model.hidden=8", "--set", "partition.method=block"),
    *("--set", "training.patience=null", "--set", "training.eval_every=50"),
)


def start(
    *args: object, front: tuple[str, ...] = (), limit: int = 120, **settings: str
) -> subprocess.Popen[str]:
    """A command whose ranks wait for each other for `limit` seconds; of one that is killed they hear at once."""
    line = [sys.executable, *front, "-m", "shoal", *map(str, args)]
    environment = rank_environment(SHOAL_TIMEOUT=str(limit), **settings)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        line, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, error = await_end(process)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, error


def await_checkpoint(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait until the run has begun; killed before, it would begin anew."""
    deadline = time.monotonic() + LONGEST
    while not (folder / "checkpoints/last.safetensors").is_file():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def find_ranks(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of ranks by number."""
    found = {
        int(child.environ()["RANK"]): child
        for child in psutil.Process(process.pid).children(recursive=True)
        if "RANK" in child.environ() and "shoal" in child.cmdline()
    }
    return [found[rank] for rank in sorted(found)]


def check_same(folder: Path, wanted: Path, more: tuple[str, ...] = ("job.json",)) -> None:
    """The same bits, and no file but those of `wanted` and some `more`."""
    for name in ("last", "best"):
        ours, theirs = (load_file(one / f"checkpoints/{name}.safetensors") for one in (folder, wanted))
        assert ours.keys() == theirs.keys()
        assert all(np.array_equal(ours[key], theirs[key]) for key in ours), name
    names = {path.relative_to(folder) for path in folder.rglob("*")}
    assert names == {path.relative_to(wanted) for path in wanted.rglob("*")} | set(map(Path, more))
    assert not list(folder.parent.glob(".*.partial"))
    assert not list(folder.parent.glob(".*.lock"))


@pytest.fixture(scope="module")
def undisturbed(ranks: RankPool, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    ranks("gloo", 2).call(train_run, SETTINGS, str(folder))
    return folder


def test_a_killed_rank_is_started_again_and_the_weights_are_the_same(
    undisturbed: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    process = start(*COMMAND, "--workers", 2, "--out", folder)
    await_checkpoint(folder, process)
    found = [one for rank in find_ranks(process) for one in rank.net_connections("inet")]
    listening = {one.laddr.ip for one in found if one.status == psutil.CONN_LISTEN}
    find_ranks(process)[1].kill()
    code, _, error = finish(process)
    assert code == 0, error
    assert listening == {"127.0.0.1"}  # no other machine reaches them
    assert (
        "notice: rank 1 was ended by signal 9: all ranks start again from the last checkpoint (1 of 3)"
        in error
    )
    check_same(folder, undisturbed)


@slow
def test_a_frozen_rank_is_named_and_all_are_started_again(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(*COMMAND, "--workers", 2, "--out", folder, limit=30)
    await_checkpoint(folder, process)
    find_ranks(process)[0].suspend()
    code, _, error = finish(process)
    assert code == 0, error
    assert "notice: rank 0 did not answer: all ranks start again" in error
    check_same(folder, undisturbed)


@slow
@pytest.mark.parametrize("victim", [0, 1])
def test_ranks_that_torchrun_starts_again_go_on_with_their_run(
    undisturbed: Path, tmp_path: Path, victim: int
) -> None:
    folder = tmp_path / "run"
    front = (
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
        "--monitor-interval",
        "0.2",
    )
    process = start(*COMMAND, "--out", folder, front=front)
    await_checkpoint(folder, process)
    find_ranks(process)[victim].kill()
    code, _, error = finish(process)
    assert code == 0, error
    check_same(folder, undisturbed)
    code, _, error = finish(start(*COMMAND, "--out", folder, front=front[:4]))  # another job's
    assert code != 0
    assert "exists already" in error


@slow
def test_the_same_command_in_the_same_slurm_job_goes_on(undisturbed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NODELIST": "localhost", "SLURM_JOB_ID": str(free_port())}

    def start_step() -> list[subprocess.Popen[str]]:
        return [start(*COMMAND, "--out", folder, SLURM_PROCID=str(rank), **step) for rank in range(2)]

    lost = start_step()
    await_checkpoint(folder, lost[0])
    lost[1].kill()
    code, _, error = finish(lost[0])
    finish(lost[1])
    assert code == 2
    assert "rank 1 did not answer" in error
    for code, _, error in map(finish, start_step()):
        assert code == 0, error
    check_same(folder, undisturbed)


@slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_to_the_launcher_stops_all_ranks_after_a_step(
    undisturbed: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    process = start(*COMMAND, "--workers", 2, "--out", folder)
    await_checkpoint(folder, process)
    process.send_signal(number)
    code, _, error = finish(process)
    assert code == 128 + number, error
    assert error.count(f"continue with: shoal train --resume {folder}") == 1
    code, _, error = finish(start("train", "--resume", folder))
    assert code == 0, error
    check_same(folder, undisturbed)


@slow
def test_ranks_that_are_lost_too_often_end_the_run_with_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(*COMMAND, "--workers", 2, "--out", folder, "--max-restarts", 0)
    await_checkpoint(folder, process)
    find_ranks(process)[1].kill()
    code, _, error = finish(process)
    assert code == 2
    assert error.strip() == "shoal: rank 1 was ended by signal 9"


def test_another_number_of_ranks_takes_the_same_steps_to_rounding(
    ranks: RankPool, undisturbed: Path, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "training": {**SETTINGS["training"], "epochs": 20}}  # type: ignore[dict-item]
    call: Callable[..., list[int]] = ranks("gloo", 3).call
    assert call(train_run, settings, str(tmp_path / "run")) == [0, 20]
    straight = ranks("gloo", 2).call(train_run, {**settings}, str(tmp_path / "straight"))
    assert straight == [0, 20]
    assert ranks("gloo", 2).call(train_run, {}, str(tmp_path / "run"), 40) == [20, 40]
    assert ranks("gloo", 2).call(train_run, {}, str(tmp_path / "straight"), 40) == [20, 40]
    ours, theirs = (load_file(tmp_path / one / "checkpoints/last.safetensors") for one in ("run", "straight"))
    for name in theirs:
        if name.startswith("model."):
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-3, atol=1e-4)
    assert np.load(tmp_path / "run/assignment.npy").max() == 1
    assert "parts: 2" in (tmp_path / "run/config.yaml").read_text()
