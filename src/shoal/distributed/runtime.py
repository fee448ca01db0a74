"""Which rank this process is, who started it, and the cores it may use."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shoal.distributed.transport import LocalTransport, Transport, read_limit
from shoal.errors import ShoalError, unknown_name
from shoal.threads import available_cores, set_threads

TRANSPORTS = ("gloo", "mpi")
_MPI_SIZES = {
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
    "MV2_COMM_WORLD_SIZE": "MV2_COMM_WORLD_RANK",
}
_FIRST_PORT, _NUM_PORTS = 15000, 20000


@dataclass(frozen=True)
class Launch:
    """How this process was started: `launcher` is torchrun, slurm, mpi or none."""

    launcher: str
    transport: str
    rank: int
    size: int


def detect_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """Read from the environment who started this process. SHOAL_TRANSPORT=gloo|mpi overrides the transport.

    torchrun goes before MPI and MPI before Slurm: the inner launcher's variables are the ones that hold.
    """
    asked = environment.get("SHOAL_TRANSPORT")
    if asked is not None and asked not in TRANSPORTS:
        raise unknown_name("transport", asked, TRANSPORTS, "SHOAL_TRANSPORT")
    if "RANK" in environment and "WORLD_SIZE" in environment and "MASTER_ADDR" in environment:
        rank, size = _read_numbers(environment, "RANK", "WORLD_SIZE")
        return Launch("torchrun", asked or "gloo", rank, size)
    for size_name, rank_name in _MPI_SIZES.items():
        if size_name in environment and "SLURM_STEP_NUM_TASKS" not in environment:
            rank, size = _read_numbers(environment, rank_name, size_name)
            return Launch("mpi", asked or "mpi", rank, size)
    if "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:  # inside srun, not beside it
        rank, size = _read_numbers(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
        return Launch("slurm", asked or "gloo", rank, size)
    return Launch("none", "local", 0, 1)


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


def _read_numbers(environment: Mapping[str, str], rank: str, size: str) -> tuple[int, int]:
    try:
        numbers = int(environment[rank]), int(environment[size])
    except (KeyError, ValueError):
        raise ShoalError(
            f"{rank} is {environment.get(rank)!r} and {size} is {environment.get(size)!r}: expected numbers from the launcher"
        ) from None
    return numbers
