"""Starting ranks on this machine, and ending them well: what each prints, and with which code it exits."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from shoal.distributed.detect import Launch, detect_launch
from shoal.distributed.runtime import open_transport
from shoal.distributed.transport import KEPT, LAST_WORD, RankGone, Transport, read_limit
from shoal.errors import ShoalError
from shoal.kernels.jit import silence_notice

_MEETING = 30.0  # seconds in which ranks that found an error before they met still meet


def start_workers(num_workers: int, job: dict[str, Any]) -> int:
    """Do a job on so many ranks of this machine, started by torch's elastic launcher; returns the exit code.

    Every rank runs `shoal _rank FILE` with the job in the file. Ranks that fail or are interrupted say so
    themselves; nothing is restarted.
    """
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _quiet_launcher()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    settings: dict[str, Any] = {
        "min_nodes": 1,
        "max_nodes": 1,
        "nproc_per_node": num_workers,
        "run_id": f"shoal-{os.getpid()}",
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "127.0.0.1:0",
        "max_restarts": 0,
        "monitor_interval": 0.1,
        "local_addr": "127.0.0.1",
    }
    try:
        with TemporaryDirectory(prefix="shoal-workers-") as logs:  # the launcher never removes its own
            settings["logs_specs"] = DefaultLogsSpecs(log_dir=logs)
            file = Path(logs, "job.yaml")
            file.write_text(yaml.safe_dump(job))
            elastic_launch(LaunchConfig(**settings), sys.executable)("-m", "shoal", "_rank", str(file))
    except ChildFailedError as error:
        codes = [failure.exitcode for failure in error.failures.values()]
        said = [code for code in codes if code > 0]
        if not said:
            rank, failure = error.get_first_failure()
            print(f"shoal: rank {rank} was ended by signal {-failure.exitcode}", file=sys.stderr)
        return 130 if 130 in codes else min(said, default=1)
    except (SignalException, KeyboardInterrupt):
        return 130
    return 0


def _quiet_launcher() -> None:
    """The launcher's own log repeats what ranks say. Each of its loggers has set a level of its own."""
    import logging

    for name in list(logging.root.manager.loggerDict):
        if name.startswith("torch.distributed.elastic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def joined_ranks() -> Iterator[Transport]:
    """The transport to the other ranks; an error inside ends this process with one sentence on the right rank.

    A rank that ends early tells the others why, so that they name the reason and not their own broken wait. An error
    that rank 0 has too is said by rank 0 alone.
    It ends without waiting for threads of the transport, which may never come back from a dead peer.
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
        _end_rank(error, launch.rank, transport)
    else:
        transport.close()


def end_early(sentence: str, launch: Launch) -> None:
    """End a rank that found an error before it met the others, who learn of it, or have found the same."""
    transport: Transport | None = None
    with suppress(ShoalError):
        os.environ["SHOAL_TIMEOUT"] = str(min(read_limit(), _MEETING))
        transport = open_transport(launch)
    _end_rank(ShoalError(sentence), launch.rank, transport)


def _end_rank(error: BaseException, rank: int, transport: Transport | None) -> None:
    code = 1
    if isinstance(error, KeyboardInterrupt):
        code, sentence = 130, str(error) or "interrupted"
        quiet = rank != 0
    elif isinstance(error, ShoalError):
        code, sentence = 2, str(error)
        quiet = getattr(error, "told", False)
    elif isinstance(error, SystemExit):
        code, sentence, quiet = int(error.code or 0), "", True
    else:
        import traceback

        sentence, quiet = "".join(traceback.format_exception(error)), False
    tells = transport is not None and not isinstance(error, RankGone)
    reason = sentence.strip().splitlines()[-1] if sentence else "it ended"
    if transport is not None and tells:
        with suppress(KeyboardInterrupt):  # another one: it is ending already
            transport.leave(reason)
            quiet = quiet or (rank != 0 and transport.hears_same(reason))
    if not quiet:
        print(
            f"shoal: {f'rank {rank}: ' if rank or code == 1 else ''}{sentence}", file=sys.stderr, flush=True
        )
    if transport is not None:
        with suppress(KeyboardInterrupt):
            transport.linger(LAST_WORD if code == 130 else KEPT)
    sys.stdout.flush()
    if transport is not None and (abort := getattr(transport, "abort", None)) is not None:
        abort(code)
    os._exit(code)
