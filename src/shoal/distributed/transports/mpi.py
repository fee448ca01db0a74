"""MPITransport: messages by mpi4py, in order of arrival."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import torch
from torch import Tensor

from shoal.distributed.detect import TOKEN, Launch
from shoal.distributed.token import MESSAGE, TokenError, find_strangers, read_token
from shoal.distributed.transport import LAST_WORD, TRANSPORTS, Exchange, RankGone, Transport, as_bytes
from shoal.errors import ShoalError, missing_extra

_ROWS, _ALIVE, _ENDED = 1, 2, 3  # tags
_LONGEST = 4000  # bytes of a reason
_ROLL_CALL = 2.0
_SPIN = 200  # polls before a waiting rank yields its core
_NAP = 2e-4


@TRANSPORTS.register
class MPITransport(Transport):
    """Ranks of MPI.COMM_WORLD. Waits poll, so that they can time out, and so that ranks that share a core yield it.

    MPI moves large messages only during calls: `Exchange.progress` is called between pieces of work.
    """

    name = "mpi"
    in_any_order = True
    needs_progress = True

    def __init__(self, limit: float) -> None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            if "libmpi" in str(error):
                raise ShoalError(
                    f"mpi4py finds no MPI library ({error}): install one, or pip install 'shoal[mpi]'"
                ) from None
            raise missing_extra("mpi4py", "mpi", "running under mpiexec") from None
        super().__init__(limit)
        self.mpi = MPI
        self.comm = MPI.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()

    @classmethod
    def open(cls, launch: Launch, limit: float) -> MPITransport:
        """Join MPI.COMM_WORLD. The launcher decides who takes part; a rank with SHOAL_TOKEN authenticates the others too."""
        token = read_token() if TOKEN in os.environ else None
        transport = cls(limit)
        try:
            transport.check_tokens(token)
        except TokenError as error:
            error.transport = transport  # reports the error to the others
            raise
        return transport

    def check_tokens(self, token: bytes | None) -> None:
        """Raise if a rank does not hold `token`; all ranks exchange proofs, with a token or without."""
        self.phase = "the exchange of run tokens"
        strangers = find_strangers(token or b"", self.rank, self.size, self._swap)
        if token is not None and strangers:
            who = f"rank{'s' if len(strangers) > 1 else ''} {', '.join(map(str, strangers))}"
            raise TokenError(
                f"{who} and rank {self.rank} hold different run tokens: give all ranks the same {TOKEN} "
                f"(mpiexec -genv {TOKEN} SECRET, or -x {TOKEN}), or none"
            )

    def _swap(self, messages: dict[int, bytes]) -> dict[int, bytes]:
        received = {q: torch.zeros(MESSAGE, dtype=torch.uint8) for q in messages}
        exchange = self.start(received)
        for q, content in messages.items():
            exchange.send(q, torch.frombuffer(bytearray(content), dtype=torch.uint8))
        for _ in exchange.arrivals():
            pass
        exchange.finish()
        return {q: into.numpy().tobytes() for q, into in received.items()}

    def start(self, receives: dict[int, Tensor]) -> Exchange:
        return _MPIExchange(self, receives)

    def sum(self, tensor: Tensor) -> Tensor:
        buffer = tensor.detach().numpy()
        self.wait(self.comm.Iallreduce(self.mpi.IN_PLACE, buffer))
        return tensor

    def broadcast(self, tensor: Tensor, root: int) -> Tensor:
        self.wait(self.comm.Ibcast(as_bytes(tensor).numpy(), root))
        return tensor

    def sum_to(self, tensor: Tensor, root: int) -> Tensor:
        buffer = tensor.detach().numpy()
        at_root = self.rank == root
        sent, kept = (self.mpi.IN_PLACE, buffer) if at_root else (buffer, None)
        self.wait(self.comm.Ireduce(sent, kept, self.mpi.SUM, root))
        return tensor

    def wait(self, request: Any) -> None:
        """Wait for a collective operation."""
        self.poll(request.Test, lambda: None)

    def poll(self, test: Callable[[], Any], missing: Callable[[], int | None]) -> None:
        """Call `test` until it returns true; after the limit, raise with the rank that is `missing`, None if unknown."""
        deadline = time.monotonic() + self.limit
        polls = 0
        while not test():
            polls += 1
            if polls < _SPIN:
                continue
            if polls < 10 * _SPIN:
                os.sched_yield()
            else:
                time.sleep(_NAP)
            if time.monotonic() > deadline:
                raise self._name_missing(missing())

    def _name_missing(self, peer: int | None) -> RankGone:
        """The error that names missing ranks: those that do not report that they are alive."""
        others = [q for q in range(self.size) if q != self.rank]
        token = bytearray(1)
        for q in others:
            self.comm.Isend([token, self.mpi.BYTE], q, _ALIVE)
        silent = set(others)
        deadline = time.monotonic() + _ROLL_CALL
        while silent and time.monotonic() < deadline:
            silent -= {q for q in silent if self.comm.Iprobe(q, _ALIVE)}
            time.sleep(0.02)
        named = [peer] if peer is not None and (peer in silent or not silent) else sorted(silent)
        who = f"rank{'s' if len(named) > 1 else ''} {', '.join(map(str, named))}" if named else "a rank"
        return RankGone(
            f"{who} did not answer in {self.phase} within {self.limit:.0f} s: see the output of that rank, "
            "or give slow ranks more time with SHOAL_TIMEOUT=SECONDS"
        )

    def leave(self, reason: str) -> None:
        self._said = reason.encode()[:_LONGEST]  # kept until it is sent
        for q in range(self.size):
            if q != self.rank:
                self.comm.Isend([self._said, self.mpi.BYTE], q, _ENDED)

    def hears_same(self, reason: str) -> bool:
        deadline = time.monotonic() + LAST_WORD
        while time.monotonic() < deadline:
            state = self.mpi.Status()
            if self.comm.Iprobe(0, _ENDED, state):
                heard = bytearray(state.Get_count(self.mpi.BYTE))
                self.comm.Recv([heard, self.mpi.BYTE], 0, _ENDED)
                return bytes(heard) == reason.encode()[:_LONGEST]
            time.sleep(0.02)
        return False

    def linger(self, limit: float) -> None:
        """Rank 0 waits until all others have reported why they end: its own end aborts them."""
        if self.rank != 0:
            return
        deadline = time.monotonic() + min(limit, LAST_WORD)
        silent = {q for q in range(self.size) if q != self.rank}
        while silent and time.monotonic() < deadline:
            silent -= {q for q in silent if self.comm.Iprobe(q, _ENDED)}
            time.sleep(0.02)
        time.sleep(0.1)  # for ranks that print a reason of their own

    def abort(self, code: int) -> None:
        """Abort every rank, after mpiexec has read this rank's output; MPI cannot end single ranks."""
        deadline = time.monotonic() + LAST_WORD
        while any(map(_count_unread, (sys.stdout, sys.stderr))) and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)  # for mpiexec to pass it on
        self.comm.Abort(code)


def _count_unread(stream: TextIO) -> int:
    """Bytes in a pipe that have not been read yet; 0 for anything but a pipe."""
    try:
        if not stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode):
            return 0
        return int.from_bytes(fcntl.ioctl(stream.fileno(), termios.FIONREAD, bytes(4)), sys.byteorder)
    except OSError:
        return 0


class _MPIExchange(Exchange):
    def __init__(self, transport: MPITransport, receives: dict[int, Tensor]) -> None:
        self._transport = transport
        self._peers = list(receives)
        self._received = [
            transport.comm.Irecv(as_bytes(tensor).numpy(), peer, _ROWS) for peer, tensor in receives.items()
        ]
        self._sent: list[Any] = []
        self._receivers: list[int] = []

    def send(self, peer: int, tensor: Tensor) -> None:
        self._receivers.append(peer)
        self._sent.append(self._transport.comm.Isend(as_bytes(tensor).numpy(), peer, _ROWS))

    def arrivals(self) -> Iterator[int]:
        request, null = self._transport.mpi.Request, self._transport.mpi.REQUEST_NULL
        for _ in self._peers:
            arrived: list[int] = []

            def test(arrived: list[int] = arrived) -> bool:
                index, done = request.Testany(self._received)
                if done:
                    arrived.append(index)
                return bool(done)

            def missing() -> int:
                return next(q for q, r in zip(self._peers, self._received) if r != null)

            self._transport.poll(test, missing)
            yield self._peers[arrived[0]]

    def finish(self) -> None:
        request, null = self._transport.mpi.Request, self._transport.mpi.REQUEST_NULL

        def missing() -> int | None:
            return next((q for q, r in zip(self._receivers, self._sent) if r != null), None)

        self._transport.poll(lambda: request.Testall(self._sent), missing)

    def progress(self) -> None:
        if self._received:
            self._transport.comm.Iprobe(self._transport.mpi.ANY_SOURCE, _ROWS)
