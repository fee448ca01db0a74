"""GlooTransport: torch.distributed's TCP transport, which moves data in threads of its own."""

from __future__ import annotations

import ipaddress
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch.distributed as dist
import torch.distributed.nn.functional  # (close(): imported after ranks have met, it would keep their group)
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store
from torch.distributed.rendezvous import rendezvous

from shoal.distributed.attempt import begin_attempt
from shoal.distributed.detect import STORE_FD, Launch
from shoal.distributed.slurm import find_first_host, pick_port
from shoal.distributed.token import (
    SignedStore,
    TokenError,
    check_connections,
    check_tokens,
    notice_no_token,
    read_token,
)
from shoal.distributed.transport import LAST_WORD, TRANSPORTS, Exchange, RankGone, Transport, as_bytes
from shoal.errors import ShoalError

_BACKLOG = 2048  # ranks that connect at once


@TRANSPORTS.register
class GlooTransport(Transport):
    """Ranks connected by gloo; `store` is that of their rendezvous, in which a rank that ends early reports why."""

    name = "gloo"

    def __init__(self, rank: int, size: int, store: Any, limit: float, token: bytes | None = None) -> None:
        super().__init__(limit)
        self.rank, self.size = rank, size
        self._store: Any = PrefixStore("shoal", store)
        self._limit = timedelta(seconds=limit)
        self._gone: set[int] = set()
        self._store_is_lost = False
        if dist.is_initialized():
            return
        self._met_at = store  # keeps the Python subclass of the store alive
        if token is not None:
            self._store, self._met_at = SignedStore(self._store, token), SignedStore(store, token)
        try:
            check_tokens(self._store, rank, size, self._limit)
            dist.init_process_group(
                "gloo", store=self._met_at, rank=rank, world_size=size, timeout=self._limit
            )
            if token is not None:
                check_connections(token, rank, size, self._limit)
        except RuntimeError as error:
            raise self.explain(error, None) from None

    @classmethod
    def open(cls, launch: Launch, limit: float) -> GlooTransport:
        """Join the other ranks at MASTER_ADDR and MASTER_PORT, by default those of Slurm's variables."""
        if launch.launcher != "torchrun":
            os.environ.update({"RANK": str(launch.rank), "WORLD_SIZE": str(launch.size)})
            if launch.launcher == "slurm":
                os.environ.setdefault("MASTER_ADDR", find_first_host(os.environ))
                os.environ.setdefault("MASTER_PORT", str(pick_port(os.environ.get("SLURM_JOB_ID", "0"))))
            elif "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
                raise ShoalError(
                    "gloo under mpiexec needs the address of the rendezvous: set MASTER_ADDR and MASTER_PORT, or leave out SHOAL_TRANSPORT=gloo"
                )
        host, port, within = os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"], timedelta(seconds=limit)
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        try:
            if rank == 0 and (door := _open_door(host, int(port))) is not None:
                waits = STORE_FD not in os.environ
                store: Any = TCPStore(
                    host, int(port), size, True, within, wait_for_workers=waits, master_listen_fd=door
                )
            else:
                store, rank, size = next(rendezvous("env://", timeout=within))
            if _is_agents():
                store = begin_attempt(store, rank, size, within)
        except (RuntimeError, ValueError) as error:
            raise RankGone(
                f"rank {rank} of {size} did not meet the others at {host}:{port} within {limit:.0f} s "
                f"({_first_line(error)}): check MASTER_ADDR and MASTER_PORT, and that every rank was started"
            ) from None
        token = read_token()
        transport = cls(rank, size, store, limit, token)
        if token is None and rank == 0:
            notice_no_token(size)
        return transport

    @classmethod
    def join_group(cls, limit: float | None = None) -> GlooTransport:
        """The ranks of the process group that the caller's program has initialised, by default with its timeout."""
        if limit is None:
            group = dist.group.WORLD
            assert group is not None
            limit = group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
        return cls(dist.get_rank(), dist.get_world_size(), _get_default_store(), limit)

    def start(self, receives: dict[int, Tensor]) -> Exchange:
        return _GlooExchange(self, receives)

    def sum(self, tensor: Tensor) -> Tensor:
        self.wait(dist.all_reduce(tensor, async_op=True), None)
        return tensor

    def broadcast(self, tensor: Tensor, root: int) -> Tensor:
        if tensor.numel():
            self.wait(dist.broadcast(as_bytes(tensor), root, async_op=True), root)
        return tensor

    def sum_to(self, tensor: Tensor, root: int) -> Tensor:
        if tensor.numel():
            self.wait(dist.reduce(tensor, root, async_op=True), None)
        return tensor

    def wait(self, work: Any, peer: int | None) -> None:
        """Wait for a message within the time limit; an error names the peer."""
        try:
            work.wait(self._limit)
        except RuntimeError as error:
            raise self.explain(error, peer) from None

    def explain(self, error: RuntimeError, peer: int | None) -> RankGone:
        """The error that names the lost rank, which may be another one than the rank that was waited for.

        Every rank whose wait fails reports in the store which rank it waited for. Following these reports leads to a rank
        without a report: the lost one.
        """
        self._report({"peer": peer, "phase": self.phase})
        reports = self._read_reports(range(self.size))
        seen = {self.rank}
        while peer is not None and peer not in seen and (said := reports.get(peer)) and "peer" in said:
            seen.add(peer)
            peer = said["peer"]
        told = [q for q, said in reports.items() if "reason" in said]
        if told:
            return RankGone(
                f"rank {told[0]} stopped in {self.phase}: {reports[told[0]]['reason']}", told=True
            )
        if peer is None or peer in reports:
            self._gone = {q for q in range(self.size) if q not in reports and q != self.rank}
        else:
            self._gone = {peer}
        who = "a rank"
        if self._gone:
            who = f"rank{'s' if len(self._gone) > 1 else ''} {', '.join(map(str, sorted(self._gone)))}"
        return RankGone(
            f"{who} did not answer in {self.phase} (limit {self.limit:.0f} s): {_first_line(error)}; "
            "see the output of that rank, or give slow ranks more time with SHOAL_TIMEOUT=SECONDS"
        )

    def leave(self, reason: str) -> None:
        self._report({"reason": reason})

    def hears_same(self, reason: str) -> bool:
        return self._read_reports([0]).get(0, {}).get("reason") == reason

    def linger(self, limit: float) -> None:
        """The store is in rank 0's process, which waits until the others have read it and reported that they leave."""
        if self.rank != 0:
            self._ask_store(lambda: self._store.set(f"left/{self.rank}", ""), LAST_WORD)
            return
        leaving = [f"left/{q}" for q in range(1, self.size) if q not in self._gone]

        def wait_for_all() -> None:
            deadline = time.monotonic() + limit
            while leaving and not self._store.check(leaving) and time.monotonic() < deadline:
                time.sleep(0.05)

        self._ask_store(wait_for_all, limit + LAST_WORD)

    def close(self) -> None:
        """Destroy the process group, whose threads end with it if nothing else references it.

        A thread that still runs when Python exits, and then frees a tensor, aborts the process. Functions of
        torch.distributed.nn hold the default group of their import time, as the default of an argument.
        """
        if self.rank != 0:
            self.linger(0)
        if dist.is_initialized():
            dist.destroy_process_group()

    def _report(self, content: dict[str, Any]) -> None:
        self._ask_store(lambda: self._store.set(f"stopped/{self.rank}", json.dumps(content)), LAST_WORD)

    def _read_reports(self, asked: Sequence[int]) -> dict[int, dict[str, Any]]:
        """Reports of the ranks in `asked` that have stopped; waits a few seconds for them, or until one has a reason."""
        found: dict[int, dict[str, Any]] = {}

        def read() -> None:
            deadline = time.monotonic() + LAST_WORD
            while time.monotonic() < deadline:
                for q in asked:
                    if q not in found and self._store.check([f"stopped/{q}"]):
                        with suppress(TokenError):  # not written by a rank of this run
                            found[q] = json.loads(self._store.get(f"stopped/{q}"))
                if len(found) == len(asked) or any("reason" in said for said in found.values()):
                    break
                time.sleep(0.05)

        self._ask_store(read, LAST_WORD + 0.5)
        return dict(found)

    def _ask_store(self, action: Callable[[], None], limit: float) -> None:
        """Use the store for at most `limit` seconds, and never again after a timeout.

        Rank 0 may be dead or unreachable: torch then waits until the system's own timeout.
        """
        if self._store_is_lost:
            return

        def act() -> None:
            with suppress(RuntimeError, ValueError):
                action()

        asking = threading.Thread(target=act, daemon=True)
        asking.start()
        asking.join(limit)
        self._store_is_lost = asking.is_alive()


class _GlooExchange(Exchange):
    def __init__(self, transport: GlooTransport, receives: dict[int, Tensor]) -> None:
        self._transport = transport
        self._received = [
            (peer, _start(dist.irecv, transport, tensor, peer)) for peer, tensor in receives.items()
        ]
        self._sent: list[tuple[int, Any]] = []

    def send(self, peer: int, tensor: Tensor) -> None:
        self._sent.append((peer, _start(dist.isend, self._transport, tensor, peer)))

    def arrivals(self) -> Iterator[int]:
        for peer, work in self._received:
            self._transport.wait(work, peer)
            yield peer

    def finish(self) -> None:
        for peer, work in self._sent:
            self._transport.wait(work, peer)


def _open_door(host: str, port: int) -> int | None:
    """The listening socket of rank 0's store: its launcher's, or one at the given address.

    None where torch has to open it on all addresses of this host: a gateway's address is not this host's, and a host name
    that resolves to 127.0.1.1 here, as in Debian's /etc/hosts, resolves to another address elsewhere. torchrun has its
    own store.
    """
    if STORE_FD in os.environ:
        return int(os.environ[STORE_FD])
    if _is_agents():
        return None
    for address in find_addresses(host):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with suppress(OSError):
            return socket.create_server((address, port), family=family, backlog=_BACKLOG).detach()
    return None


def _is_agents() -> bool:
    """Whether torchrun keeps the store where ranks meet."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def find_addresses(host: str) -> list[str]:
    """The IP addresses by which other hosts may know `host`; of localhost the loopback address."""
    if host == "localhost":
        return ["127.0.0.1"]
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    try:
        known = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    found = dict.fromkeys(str(one[4][0]) for one in known)
    parsed = {address: ipaddress.ip_address(address) for address in found}
    return [address for address, one in parsed.items() if not one.is_loopback and not one.is_link_local]


def _start(begin: Any, transport: GlooTransport, tensor: Tensor, peer: int) -> Any:
    try:
        return begin(as_bytes(tensor), peer)
    except RuntimeError as error:  # a broken connection shows at the next message
        raise transport.explain(error, peer) from None


def _first_line(error: BaseException) -> str:
    """Gloo's message without the source location at its start."""
    line = str(error).splitlines()[0] if str(error) else type(error).__name__
    return line.split("] ", 1)[1] if line.startswith("[/") and "] " in line else line
