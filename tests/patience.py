"""Waiting for processes on a machine that may be busy: as long as they work, and not much longer."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from typing import Any

import psutil
import pytest

STILL = 120.0  # seconds without work after which a process hangs
LEAST_WORK = 0.05  # processor seconds in that time
LONGEST = 1800.0


def slow(test: Any) -> Any:
    """Mark a test that takes long, on a busy machine much longer."""
    return pytest.mark.slow(pytest.mark.timeout(LONGEST)(test))


def _count_work(pid: int) -> float:
    """Processor seconds of a process, all it started, and those of them that have ended."""
    total = 0.0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                total += sum(one.cpu_times()[:4])
    return total


def await_end(process: subprocess.Popen[str], still: float = STILL) -> tuple[str, str]:
    """What a process wrote until its end; one that does no work for `still` seconds is killed, with its group, and fails."""
    began = since = time.monotonic()
    done = 0.0
    while True:
        try:
            out, error = process.communicate(timeout=1)
            return out or "", error or ""
        except subprocess.TimeoutExpired:
            now, work = time.monotonic(), _count_work(process.pid)
            if abs(work - done) > LEAST_WORK:
                done, since = work, now
            if now - since < still and now - began < LONGEST:
                continue
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, error = process.communicate()
            raise AssertionError(
                f"no end after {now - began:.0f} s, no work for {now - since:.0f} s: {out or ''} {error or ''}"
            ) from None
