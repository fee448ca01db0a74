"""Joining the ranks of a job and leaving them: error messages and exit codes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from shoal.distributed.detect import LAST_WORD_FD, LAUNCHER, LOST, Launch, detect_launch
from shoal.distributed.runtime import open_transport
from shoal.distributed.transport import KEPT, LAST_WORD, RankGone, Transport, read_limit
from shoal.errors import ShoalError
from shoal.kernels.jit import silence_notice

_DEATH_SIGNAL = 1  # prctl's PR_SET_PDEATHSIG
_MEETING = 30.0  # seconds of a rendezvous to report an error that was found before it


def follow_launcher() -> None:
    """Kill this rank when the `shoal --workers` that started it ends, in whatever way."""
    if LAUNCHER in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != int(os.environ[LAUNCHER]):
            os._exit(1)


@contextmanager
def joined_ranks() -> Iterator[Transport]:
    """Yield the transport to the other ranks. An error inside the block ends this process, with one sentence from one rank.

    A rank that ends early sends the others its reason, so that they report it instead of their own broken wait. An error
    that rank 0 has too is printed by rank 0 alone. The process exits without joining threads of the transport, which may
    wait for a dead peer forever.
    """
    launch = detect_launch()
    transport: Transport | None = None
    if launch.rank != 0:
        silence_notice()
    try:
        transport = open_transport(launch)
        yield transport
    except BaseException as error:
        if launch.size == 1:
            raise
        _end_rank(error, launch.rank, transport or getattr(error, "transport", None))
    else:
        transport.close()


def end_early(sentence: str, launch: Launch) -> None:
    """Report an error found before rendezvous to the other ranks, then exit."""
    transport: Transport | None = None
    with suppress(ShoalError):
        os.environ["SHOAL_TIMEOUT"] = str(min(read_limit(), _MEETING))
        transport = open_transport(launch)
    _end_rank(ShoalError(sentence), launch.rank, transport)


def _end_rank(error: BaseException, rank: int, transport: Transport | None) -> None:
    code = 1
    if isinstance(error, KeyboardInterrupt):
        code, sentence = 128 + getattr(error, "signal", signal.SIGINT), str(error) or "interrupted"
        quiet = rank != 0
    elif isinstance(error, ShoalError):
        code, sentence = 2, str(error)
        quiet = getattr(error, "told", False)
        if isinstance(error, RankGone) and not quiet and LAST_WORD_FD in os.environ:
            code, quiet = LOST, True  # the launcher decides whether to restart
            os.write(int(os.environ[LAST_WORD_FD]), sentence.encode())
    elif isinstance(error, SystemExit):
        code, sentence, quiet = int(error.code or 0), "", True
    else:
        import traceback

        sentence, quiet = "".join(traceback.format_exception(error)), False
    tells = transport is not None and not isinstance(error, RankGone)
    reason = sentence.strip().splitlines()[-1] if sentence else "it ended"
    if transport is not None and tells:
        with suppress(KeyboardInterrupt):  # a second one: it is ending already
            transport.leave(reason)
            quiet = quiet or (rank != 0 and transport.hears_same(reason))
    if not quiet:
        print(
            f"shoal: {f'rank {rank}: ' if rank or code == 1 else ''}{sentence}", file=sys.stderr, flush=True
        )
    if transport is not None:
        with suppress(KeyboardInterrupt):
            transport.linger(LAST_WORD if code > 128 else KEPT)
    sys.stdout.flush()
    if transport is not None and (abort := getattr(transport, "abort", None)) is not None:
        abort(code)
    os._exit(code)
