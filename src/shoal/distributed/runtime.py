"""Joining the other ranks, and this rank's share of cores and memory."""

from __future__ import annotations

import os
import socket

import numpy as np
import torch.distributed as dist

from shoal.distributed.detect import Launch, detect_launch
from shoal.distributed.transport import TRANSPORTS, LocalTransport, Transport, read_limit
from shoal.errors import ShoalError, unknown_name
from shoal.memory import anonymous_memory, available_memory, set_memory_budget
from shoal.threads import available_cores, set_threads


def open_transport(launch: Launch | None = None) -> Transport:
    """Join the other ranks; a single process gets a LocalTransport."""
    launch = launch or detect_launch()
    limit = read_limit()
    for name in (launch.transport, os.environ.get("SHOAL_TRANSPORT", launch.transport)):
        if name not in TRANSPORTS:
            raise unknown_name("transport", name, TRANSPORTS, "SHOAL_TRANSPORT")
    if launch.transport == LocalTransport.name and launch.size > 1:
        raise ShoalError(
            f"transport local is for one rank and there are {launch.size}: leave out SHOAL_TRANSPORT"
        )
    return TRANSPORTS[launch.transport].open(launch, limit)


def default_transport() -> Transport:
    """The process group that the caller's program has initialised (`torch.distributed`), or this process alone."""
    if dist.is_available() and dist.is_initialized():
        from shoal.distributed.transports.gloo import GlooTransport

        return GlooTransport.join_group(read_limit() if "SHOAL_TIMEOUT" in os.environ else None)
    return LocalTransport(read_limit())


def share_cores(transport: Transport, threads: int | None = None) -> int:
    """Give this rank its share of its host's cores, pinned to them; returns its number of threads.

    Ranks on a host that may all use the same cores split them evenly; where the launcher has bound each rank
    to cores of its own, these are used. With more ranks than cores each has one thread and none is pinned.
    `threads`, or SHOAL_THREADS, decides the number instead.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    transport.phase = "the sharing of cores"
    said = transport.gather_texts(f"{socket.gethostname()} {','.join(map(str, cores))}")
    sharing = [q for q in range(transport.size) if said[q] == said[transport.rank]]
    share = max(1, available_cores() // len(sharing))
    if len(sharing) > 1 and len(cores) >= len(sharing):
        place = sharing.index(transport.rank) * share
        for task in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["0"]:
            try:
                os.sched_setaffinity(int(task), cores[place : place + share])
            except OSError:  # a thread that has ended meanwhile
                continue
    if threads is None and "SHOAL_THREADS" not in os.environ:
        threads = share
    return set_threads(threads)


def share_memory(transport: Transport, budget: int | None = None, launcher: int = 0) -> None:
    """Give this rank its share of its host's memory budget, or of its free memory; a single rank has all of it.

    The process that started the ranks holds `launcher` bytes of the budget.
    """
    transport.phase = "the sharing of memory"
    ranks = transport.gather_texts(socket.gethostname()).count(socket.gethostname())
    if budget is None and ranks > 1:
        budget = ranks * anonymous_memory() + available_memory()
    elif budget is not None:
        budget = max(budget - launcher, 0)
    set_memory_budget(None if budget is None else budget // ranks)


def agree(transport: Transport, what: str, value: int) -> None:
    """Raise if ranks hold different values of `what`; a collective call."""
    values = transport.gather(np.array([value]))[:, 0]
    if (values != values[0]).any():
        other = int(np.flatnonzero(values != values[0])[0])
        raise ShoalError(
            f"rank {other} has {what} {values[other]} where rank 0 has {values[0]}: start all ranks with the same command and data"
        )
