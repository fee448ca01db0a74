"""Live ranks keep their promises to tests: a failure is told, none outlives its group, none outlives the session."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launched_ranks import TESTS, rank_environment


def find_ranks(transport):
    """The process ids of all ranks. Called on ranks."""
    return [int(text) for text in transport.gather_texts(str(os.getpid()))]


def fail_on_last(transport):
    if transport.rank == transport.size - 1:
        raise ValueError("no luck")
    transport.barrier()


def die_on_last(transport):
    if transport.rank == transport.size - 1:
        os._exit(9)
    transport.barrier()


def is_running(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until_gone(processes: list[int]) -> None:
    deadline = time.monotonic() + 30
    while any(map(is_running, processes)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("transport", "job", "said"), [("gloo", die_on_last, "died"), ("mpi", fail_on_last, "no luck")]
)
def test_a_job_that_fails_is_told_and_leaves_no_rank(transport, job, said, ranks):
    group = ranks(transport, 2)
    processes = group.call(find_ranks)
    assert len(set(processes)) == 2
    assert group.call(find_ranks) == processes
    with pytest.raises(AssertionError, match=said):
        group.call(job)
    assert not group.alive
    wait_until_gone(processes)


# A session that is killed while one answer is not read yet and one rank waits for the other.
KILLED = """
import os, time
from live_ranks import LiveRanks
from test_live_ranks import find_ranks
ranks = LiveRanks("gloo", 2)
print(*ranks.call(find_ranks), flush=True)
for rank in (0, 1, 0):
    ranks._doors[rank].sendall(b'["test_live_ranks", "find_ranks", []]\\n')
time.sleep(1)
os.kill(os.getpid(), 9)
"""


def test_ranks_end_with_the_session_that_started_them():
    killed = subprocess.run(
        [sys.executable, "-c", KILLED],
        env=rank_environment(),
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=120,
    )
    processes = [int(word) for word in killed.stdout.split()]
    assert len(processes) == 2, killed.stderr
    wait_until_gone(processes)
