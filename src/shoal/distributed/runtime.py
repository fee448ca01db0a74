"""Meeting the other ranks, and the cores this one may use."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping

import numpy as np

from shoal.distributed.detect import Launch, detect_launch
from shoal.distributed.transport import LocalTransport, Transport, read_limit
from shoal.errors import ShoalError
from shoal.threads import available_cores, set_threads

_FIRST_PORT, _NUM_PORTS = 15000, 20000


def open_transport(launch: Launch | None = None) -> Transport:
    """Meet the other ranks; alone, there is nobody to meet."""
    launch = launch or detect_launch()
    limit = read_limit()
    if launch.launcher == "none":
        return LocalTransport(limit)
    if launch.transport == "mpi":
        from shoal.distributed.mpi import MPITransport

        return MPITransport(limit)
    if launch.launcher != "torchrun":
        os.environ.update({"RANK": str(launch.rank), "WORLD_SIZE": str(launch.size)})
        if launch.launcher == "slurm":
            os.environ.setdefault("MASTER_ADDR", find_first_host(os.environ))
            os.environ.setdefault("MASTER_PORT", str(pick_port(os.environ.get("SLURM_JOB_ID", "0"))))
        elif "MASTER_ADDR" not in os.environ or "MASTER_PORT" not in os.environ:
            raise ShoalError(
                "gloo under mpiexec does not know where ranks meet: set MASTER_ADDR and MASTER_PORT, or leave out SHOAL_TRANSPORT=gloo"
            )
    from shoal.distributed.gloo import GlooTransport

    return GlooTransport.from_environment(limit)


def find_first_host(environment: Mapping[str, str]) -> str:
    """The host of a Slurm job's rank 0, by scontrol where it is there, else read from the list of nodes."""
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    try:
        listed = subprocess.run(
            ["scontrol", "show", "hostnames", nodes], capture_output=True, text=True, timeout=20, check=True
        ).stdout.split()
        if listed:
            return listed[0]
    except (OSError, subprocess.SubprocessError):
        pass
    found = re.match(r"([^\[,]+)(?:\[(\d+))?", nodes)  # node[003-007,9],other → node003
    if found is None:
        raise ShoalError("Slurm names no nodes in SLURM_STEP_NODELIST: set MASTER_ADDR to the first host")
    return found[1] + (found[2] or "")


def pick_port(job: str) -> int:
    """A port that all ranks of a job agree on without talking."""
    digits = re.sub(r"\D", "", job) or "0"
    return _FIRST_PORT + int(digits) % _NUM_PORTS


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


def agree(transport: Transport, what: str, value: int) -> None:
    """Refuse to go on where ranks hold different values of what must be the same."""
    values = transport.gather(np.array([value]))[:, 0]
    if (values != values[0]).any():
        other = int(np.flatnonzero(values != values[0])[0])
        raise ShoalError(
            f"rank {other} has {what} {values[other]} where rank 0 has {values[0]}: start all ranks with the same command and data"
        )
