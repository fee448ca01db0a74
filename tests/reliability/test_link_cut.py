"""The link between two hosts is cut in the middle of an epoch: ranks wait for it, and no longer than their limit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_lost_ranks import COMMAND, SETTINGS, await_checkpoint, check_same, finish

from hosts import run_inside, set_link
from launched_ranks import rank_environment
from live_ranks import RankPool
from patience import LONGEST
from rank_runs import train_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LONGEST)]
LIMIT = 20


def start(hosts: list[str], folder: Path) -> list[subprocess.Popen[str]]:
    """A rank on each host."""
    meeting = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.77.0.1",
        "MASTER_PORT": "29533",
        "GLOO_SOCKET_IFNAME": "eth0",
    }
    started = []
    for rank, host in enumerate(hosts):
        environment = rank_environment(RANK=str(rank), SHOAL_TIMEOUT=str(LIMIT), **meeting)
        line = run_inside(host, sys.executable, "-m", "shoal", *COMMAND, "--out", str(folder))
        started.append(
            subprocess.Popen(
                line,
                env=environment,
                stderr=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
    await_checkpoint(folder, started[0])
    return started


def test_a_run_goes_on_when_the_link_is_back(two_hosts: list[str], ranks: RankPool, tmp_path: Path) -> None:
    ranks("gloo", 2).call(train_run, SETTINGS, str(tmp_path / "undisturbed"))
    folder = tmp_path / "run"
    started = start(two_hosts, folder)
    set_link(two_hosts[1], "down")
    records = len((folder / "metrics.jsonl").read_text().splitlines())
    time.sleep(5)
    assert [process.poll() for process in started] == [None, None]
    assert len((folder / "metrics.jsonl").read_text().splitlines()) <= records + 2  # it waits
    set_link(two_hosts[1], "up")
    for process in started:
        code, _, error = finish(process)
        assert code == 0, error
    check_same(folder, tmp_path / "undisturbed", ())


def test_ranks_whose_link_stays_cut_end_in_time_and_name_each_other(
    two_hosts: list[str], tmp_path: Path
) -> None:
    started = start(two_hosts, tmp_path / "run")
    set_link(two_hosts[1], "down")
    began = time.monotonic()
    for rank, process in enumerate(started):
        code, _, error = finish(process)
        seconds = time.monotonic() - began
        assert code == 2, error
        assert f"rank {1 - rank} did not answer" in error
        assert seconds < LIMIT + 5
    set_link(two_hosts[1], "up")
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "shoal", "train", "--resume", str(tmp_path / "run"), "--workers", "2"],
            env=rank_environment(),
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    ]
    code, _, error = finish(started[0])
    assert code == 0, error
