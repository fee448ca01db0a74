"""Ranks started on this machine: monitored, sent signals, and all restarted when one is lost."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from types import FrameType
from typing import Any

import yaml

from shoal.distributed.detect import JOB, LAST_WORD_FD, LAUNCHER, LOST, STORE_FD, TOKEN
from shoal.memory import anonymous_memory

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
_LAST_WORDS = 6.0  # seconds for ranks to report a lost peer
_ENDING = 16.0  # seconds for ranks to end after another's error
_NAP = 0.05


def start_workers(num_workers: int, job: dict[str, Any], *, max_restarts: int = 0) -> int:
    """Run a job on `num_workers` ranks of this machine; returns the exit code.

    Every rank runs `shoal _rank` and reads the job from stdin. Ranks report errors and interruptions themselves. When
    one is lost (killed, or silent for longer than the others wait), all are restarted, at most `max_restarts` times:
    training then resumes from its last checkpoint. An error ends the job, since it would occur again.
    """
    workers = _Workers(num_workers, yaml.safe_dump(job | {"launcher": anonymous_memory()}))
    with workers.forwarding():
        for turn in count(1):
            workers.start()
            try:
                lost = workers.watch()
            finally:
                workers.end()
            if lost is None:
                break
            if (stopped := workers.signal) is not None:  # between two attempts, when no rank could receive it
                print(f"shoal: ended by {signal.Signals(stopped).name}", file=sys.stderr)
                return 128 + stopped
            if turn > max_restarts:
                for sentence in workers.last_words or [lost]:
                    print(f"shoal: {sentence}", file=sys.stderr)
                return 2
            said = f"all ranks start again from the last checkpoint ({turn} of {max_restarts})"
            print(f"notice: {lost}: {said}", file=sys.stderr, flush=True)
    return workers.code


class _Workers:
    """The processes of one attempt, and the reports of those that lost a peer."""

    def __init__(self, count: int, job: str) -> None:
        self.count, self.job = count, job
        self.name = f"workers {os.getpid()} {secrets.token_hex(8)}"
        self.token = secrets.token_hex(32)
        self.code = 0
        self.last_words: list[str] = []
        self.signal: int | None = None
        self._ranks: list[subprocess.Popen[bytes]] = []
        self._words: list[int] = []

    def start(self) -> None:
        """Start every rank. Rank 0 gets the listening socket of the rendezvous, which no other host reaches."""
        self._ranks, self._words, self.last_words = [], [], []
        with socket.create_server(("127.0.0.1", 0), backlog=max(128, self.count)) as door:
            common = {
                "WORLD_SIZE": str(self.count),
                "MASTER_ADDR": "127.0.0.1",
                JOB: self.name,
                TOKEN: self.token,
            }
            common |= {"MASTER_PORT": str(door.getsockname()[1]), LAUNCHER: str(os.getpid())}
            common["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
            for rank in range(self.count):
                reads, writes = os.pipe()
                self._words.append(reads)
                own = {"RANK": str(rank), LAST_WORD_FD: str(writes)}
                passed = [writes]
                if rank == 0:
                    own[STORE_FD] = str(door.fileno())
                    passed.append(door.fileno())
                process = subprocess.Popen(
                    [sys.executable, "-m", "shoal", "_rank"],
                    stdin=subprocess.PIPE,
                    env={**os.environ, **common, **own},
                    pass_fds=passed,
                    start_new_session=True,  # Ctrl-C reaches this process alone, which passes it on
                )
                os.close(writes)
                self._ranks.append(process)
                assert process.stdin is not None
                with suppress(BrokenPipeError), process.stdin:
                    process.stdin.write(self.job.encode())
        if self.signal is not None:  # some ranks started after it
            self._pass_on(self.signal)

    def watch(self) -> str | None:
        """Wait until all have ended; returns which rank was lost, None if the job has ended with `code`."""
        deadline: float | None = None
        while (codes := [process.poll() for process in self._ranks]).count(None):
            ended = [code for code in codes if code]
            if any(code < 0 for code in ended) and self.signal is None:
                break  # the others cannot continue, and have nothing to save
            if deadline is None and ended:
                deadline = time.monotonic() + (_LAST_WORDS if LOST in ended else _ENDING)
            if deadline is not None and time.monotonic() > deadline:
                break
            time.sleep(_NAP)
        self.last_words = [said for said in map(_read_words, self._words) if said]
        return self._judge(codes)

    def _judge(self, codes: list[int | None]) -> str | None:
        """Which rank was lost, from the exit codes (None: still running); sets `code` if none was."""
        killed = {rank: -code for rank, code in enumerate(codes) if code is not None and code < 0}
        said = [code for code in codes if code is not None and code > 0 and code != LOST]
        if self.signal is not None:
            self.code = 128 + self.signal if any(codes) or None in codes else 0
            if self.code and not said:
                print(f"shoal: ended by {signal.Signals(self.signal).name}", file=sys.stderr)
            return None
        if killed:
            rank, number = next(iter(killed.items()))
            return f"rank {rank} was ended by signal {number}"
        if said:
            stopped = [code for code in said if code > 128]
            self.code = stopped[0] if stopped else min(said)
            return None
        if LOST in codes:
            silent = [str(rank) for rank, code in enumerate(codes) if code is None]
            return f"rank {', '.join(silent)} did not answer" if silent else "ranks lost each other"
        return None

    def end(self) -> None:
        """Kill the remaining ranks."""
        for process in self._ranks:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for handle in self._words:
            os.close(handle)
        self._words = []

    def _pass_on(self, number: int) -> None:
        for process in self._ranks:
            if process.poll() is None:
                process.send_signal(number)

    @contextmanager
    def forwarding(self) -> Iterator[None]:
        """Forward signals to the ranks; the first one decides the exit code."""

        def forward(number: int, frame: FrameType | None) -> None:
            self.signal = self.signal or number
            self._pass_on(number)

        before = {number: signal.signal(number, forward) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _read_words(handle: int) -> str:
    """A rank's report; empty if there is none yet."""
    os.set_blocking(handle, False)
    try:
        return os.read(handle, 1 << 16).decode(errors="replace").strip()
    except BlockingIOError:
        return ""
