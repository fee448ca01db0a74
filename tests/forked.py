"""Processes forked from the test's own, which start in no time because everything is imported and compiled."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# Forked processes have no threads but one: with these variables neither torch nor Numba needs more.
FORKABLE = {"NUMBA_NUM_THREADS": "1", "NUMBA_THREADING_LAYER": "workqueue", "SHOAL_THREADS": "1"}


def fork(action: Callable[[], Any]) -> int:
    """Do `action` in a forked process; returns its number. It ends with 0, or 1 after an exception, and cleans up nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # newer Pythons warn of threads, which a test's process has from other tests
        pid = os.fork()
    if pid:
        return pid
    try:
        action()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def wait(pid: int) -> int:
    """How a process ended: its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def holding(enter: Callable[[], Any]) -> Iterator[int]:
    """A forked process that holds what `enter` gave while the block runs; then it is killed."""
    reads, writes = os.pipe()

    def hold() -> None:
        kept = enter()
        os.write(writes, b".")
        signal.pause()
        del kept

    pid = fork(hold)
    os.close(writes)
    try:
        assert os.read(reads, 1) == b".", "the forked process failed"
        yield pid
    finally:
        os.close(reads)
        os.kill(pid, signal.SIGKILL)
        wait(pid)
