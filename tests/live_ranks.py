"""Ranks that stay alive from test to test: real processes that meet once and then run one job after another."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any

from launched_ranks import TESTS, start_ranks

MEETING, ENDING = 120.0, 60.0  # seconds
MOST = 10  # processes that are kept at a time: gloo with 1, 2 and 3 ranks and MPI with 4


class LiveRanks:
    """A group of ranks. After a job that failed, or took too long, none of them is left."""

    def __init__(self, transport: str, num_ranks: int) -> None:
        self.size = num_ranks
        self._output = TemporaryFile("w+")  # noqa: SIM115 (of all ranks, as long as they live)
        self._doors: dict[int, socket.socket] = {}
        self._unread: dict[int, bytes] = {}
        self._started: list[subprocess.Popen[str]] = []
        with TemporaryDirectory(prefix="ranks-") as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"{folder}/door")
            listener.listen(num_ranks)
            line = (TESTS / "rank_process.py", f"{folder}/door")
            self._started = start_ranks(num_ranks, *line, transport=transport, output=self._output)
            try:
                self._meet(listener)
            except BaseException:
                self.kill()
                raise

    @property
    def alive(self) -> bool:
        return bool(self._doors)

    def call(self, function: Callable[..., Any], *arguments: Any, limit: float = 240) -> Any:
        """What `function(transport, *arguments)`, called on every rank, returns on rank 0; all of it passes as JSON."""
        job = json.dumps([function.__module__, function.__name__, arguments])
        try:
            return self._run(job, function.__name__, time.monotonic() + limit)
        except BaseException:  # the others wait for the one that failed, or work on
            self.kill()
            raise

    def end(self) -> None:
        """Let the ranks take leave of each other; each must end well and leave no thread of the transport."""
        try:
            for door in self._doors.values():
                door.sendall(b"null\n")
            codes = [process.wait(timeout=ENDING) for process in self._started]
            assert not any(codes), f"ranks ended with {codes}: {self._read_output()}"
        finally:
            self.kill()

    def kill(self) -> None:
        for process in self._started:  # each leads a group of its own
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for door in self._doors.values():
            door.close()
        self._doors = {}
        self._output.close()

    def _meet(self, listener: socket.socket) -> None:
        """Accept every rank's connection; each says its number when it has met the others."""
        listener.settimeout(0.2)
        deadline = time.monotonic() + MEETING
        strangers: list[socket.socket] = []
        try:
            while len(strangers) < self.size:
                assert time.monotonic() < deadline, f"ranks did not start: {self._read_output()}"
                assert all(process.poll() is None for process in self._started), self._read_output()
                with suppress(TimeoutError):
                    strangers.append(listener.accept()[0])
            for stranger in strangers:
                stranger.settimeout(max(1, deadline - time.monotonic()))
                said = stranger.makefile().readline()
                assert said, f"a rank did not meet the others: {self._read_output()}"
                self._doors[int(said)] = stranger
        finally:
            for stranger in strangers:
                if stranger not in self._doors.values():
                    stranger.close()

    def _run(self, job: str, name: str, deadline: float) -> Any:
        for door in self._doors.values():
            door.sendall(f"{job}\n".encode())
        self._unread = dict.fromkeys(self._doors, b"")
        answers: dict[int, Any] = {}
        while len(answers) < self.size:
            waiting = {self._doors[rank]: rank for rank in self._doors if rank not in answers}
            ready, _, _ = select.select(list(waiting), [], [], max(0, deadline - time.monotonic()))
            assert ready, f"ranks {sorted(waiting.values())} did not finish {name} in time"
            for door in ready:
                rank = waiting[door]
                said = door.recv(1 << 16)
                assert said, f"rank {rank} died in {name}: {self._read_output()}"
                self._unread[rank] += said
                if said.endswith(b"\n"):
                    answers[rank] = json.loads(self._unread[rank])
                    assert "error" not in answers[rank], f"rank {rank}: {answers[rank]['error']}"
        return answers[0]["answer"]

    def _read_output(self) -> str:
        self._output.seek(0)
        return self._output.read()


class RankPool:
    """The live ranks of a test session: one group for each transport and number of ranks, started when first asked for."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, int], LiveRanks] = {}  # the last used one last

    def __call__(self, transport: str, num_ranks: int) -> LiveRanks:
        key = (transport, num_ranks)
        group = self._groups.pop(key, None)
        if group is None or not group.alive:
            self._groups = {other: group for other, group in self._groups.items() if group.alive}
            while self._groups and sum(size for _, size in self._groups) + num_ranks > MOST:
                self._groups.pop(next(iter(self._groups))).end()
            group = LiveRanks(transport, num_ranks)
        self._groups[key] = group
        return group

    def end(self) -> None:
        while self._groups:
            group = self._groups.popitem()[1]
            if group.alive:
                group.end()
