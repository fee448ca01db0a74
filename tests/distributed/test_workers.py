"""Ranks that a launcher starts hear of signals that came before they were there."""

import os
import signal

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
