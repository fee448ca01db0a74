"""Ranks that a launcher starts hear of signals that came before they were there."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launched_ranks import rank_environment
from shoal.distributed.workers import _Workers


def test_a_signal_that_came_before_the_ranks_were_started_ends_them() -> None:
    workers = _Workers(2, "{}")
    with workers.forwarding():
        os.kill(os.getpid(), signal.SIGTERM)  # as between two turns
        workers.start()
        try:
            assert workers.watch() is None
        finally:
            workers.end()
    assert workers.code == 128 + signal.SIGTERM


# A rank that needs no Python: in the first turn rank 0 is killed, and the launcher gets a signal a moment later.
LOST_RANK = """#!/bin/sh
if [ "$RANK" = 0 ] && mkdir "$0.turn" 2>/dev/null; then
    (sleep {delay}; kill -TERM $SHOAL_LAUNCHER) &
    kill -9 $$
fi
trap 'exit 143' TERM
for i in $(seq 400); do sleep 0.05; done
"""
LAUNCH = """
import sys
from shoal.distributed.workers import start_workers
sys.executable = sys.argv[1]
sys.exit(start_workers(2, {}, max_restarts=3))
"""


@pytest.mark.parametrize("delay", [0, 0.05, 0.2])
def test_a_signal_while_lost_ranks_are_started_again_ends_the_job(tmp_path: Path, delay: float) -> None:
    rank = tmp_path / "rank"
    rank.write_text(LOST_RANK.format(delay=delay))
    rank.chmod(0o700)
    line = [sys.executable, "-c", LAUNCH, str(rank)]
    done = subprocess.run(line, env=rank_environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert done.stderr.count("start again") <= 1
