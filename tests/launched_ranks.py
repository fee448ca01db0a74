"""Starting real ranks for tests: processes that meet over gloo, or under mpiexec."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

TESTS = Path(__file__).resolve().parent


@dataclass
class Ended:
    """How a group of ranks ended: exit codes and what each wrote (MPI's write to one stream)."""

    codes: list[int]
    texts: list[str]

    def check(self) -> None:
        assert not any(self.codes), "\n".join(text for text in self.texts if text)


def free_port() -> int:
    """A port below those that the system gives to clients, which might take it before it is used."""
    while True:
        with socket.socket() as door, suppress(OSError):
            door.bind(("127.0.0.1", random.randrange(12_000, 32_000)))
            return int(door.getsockname()[1])


def rank_environment(**settings: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
    paths = [str(TESTS.parent / "src"), str(TESTS)]
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "GLOO_SOCKET_IFNAME": "lo",
        "SHOAL_THREADS": "1",
        "SHOAL_REPORT": os.environ.get("SHOAL_REPORT", "0"),
        "SHOAL_TOKEN": "the token of the tests' ranks",
        **settings,
    }


def find_mpiexec() -> str:
    """The command that starts MPI's ranks; skips where there is none."""
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if mpiexec is None:
        pytest.skip("mpiexec is not installed")
    return mpiexec


def start_ranks(
    num_ranks: int,
    *command: object,
    transport: str = "gloo",
    output: int | IO[Any] = subprocess.PIPE,
    **settings: str,
) -> list[subprocess.Popen[str]]:
    """Start `python COMMAND` on every rank: a process each, or mpiexec's; each leads a group of its own."""
    line = [sys.executable, *map(str, command)]
    if transport == "mpi":
        lines = [[find_mpiexec(), "-n", str(num_ranks), *line]]
        environments = [rank_environment(**settings)]
    else:
        meeting = {"WORLD_SIZE": str(num_ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        lines = [line] * num_ranks
        environments = [rank_environment(RANK=str(rank), **(meeting | settings)) for rank in range(num_ranks)]
    return [
        subprocess.Popen(
            line,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for line, environment in zip(lines, environments)
    ]


def run_ranks(num_ranks: int, *command: object, limit: float = 240, **settings: str) -> Ended:
    """Run `python COMMAND` on every rank; all are ended when the limit is over."""
    started = start_ranks(num_ranks, *command, **settings)
    deadline = time.monotonic() + limit
    try:
        texts = [process.communicate(timeout=max(1, deadline - time.monotonic()))[0] for process in started]
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return Ended([process.returncode for process in started], texts)
