"""The launcher of this process, read from the environment. Imports little, because every command uses it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from shoal.errors import ShoalError

# Environment variables that `shoal --workers` sets for the ranks it starts.
JOB = "SHOAL_JOB"  # the same after a restart
TOKEN = "SHOAL_TOKEN"  # a secret that authenticates ranks (`token`)
LAUNCHER = "SHOAL_LAUNCHER"  # its process id
STORE_FD = "SHOAL_STORE_FD"  # listening socket of the rendezvous, for rank 0
LAST_WORD_FD = "SHOAL_LAST_WORD_FD"  # pipe for a rank to report a lost peer
LOST = 75  # exit code of a rank that lost a peer: the job may be restarted

_MPI_SIZES = {
    "OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK",
    "PMI_SIZE": "PMI_RANK",
    "MV2_COMM_WORLD_SIZE": "MV2_COMM_WORLD_RANK",
}


@dataclass(frozen=True)
class Launch:
    """How this process was started: `launcher` is torchrun, slurm, mpi or none."""

    launcher: str
    transport: str
    rank: int
    size: int


def detect_launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """Detect the launcher of this process from the environment. SHOAL_TRANSPORT overrides the transport.

    torchrun takes precedence over MPI, and MPI over Slurm: the inner launcher's variables are the valid ones.
    """
    asked = environment.get("SHOAL_TRANSPORT")
    if "RANK" in environment and "WORLD_SIZE" in environment and "MASTER_ADDR" in environment:
        rank, size = _read_numbers(environment, "RANK", "WORLD_SIZE")
        return Launch("torchrun", asked or "gloo", rank, size)
    for size_name, rank_name in _MPI_SIZES.items():
        if size_name in environment and "SLURM_STEP_NUM_TASKS" not in environment:
            rank, size = _read_numbers(environment, rank_name, size_name)
            return Launch("mpi", asked or "mpi", rank, size)
    if (
        "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment
    ):  # inside srun, not only in its allocation
        rank, size = _read_numbers(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
        return Launch("slurm", asked or "gloo", rank, size)
    return Launch("none", "local", 0, 1)


def name_job(environment: Mapping[str, str] = os.environ) -> str | None:
    """The job of this process, which a restart of its ranks keeps; None if unknown.

    torchrun without a rendezvous id calls every job `none`: then the launcher's process identifies it.
    """
    if JOB in environment:
        return environment[JOB]
    if "TORCHELASTIC_RUN_ID" in environment:
        name = environment["TORCHELASTIC_RUN_ID"]
        return f"torchrun {_describe_parent() if name == 'none' else name}"
    if "SLURM_JOB_ID" in environment:
        return f"slurm {environment['SLURM_JOB_ID']}"
    return None


def _describe_parent() -> str:
    """The parent process, by its id and start time."""
    try:
        with open(f"/proc/{os.getppid()}/stat") as file:
            began = file.read().rpartition(")")[2].split()[19]
    except OSError:
        began = ""
    return f"{os.getppid()} {began}"


def _read_numbers(environment: Mapping[str, str], rank: str, size: str) -> tuple[int, int]:
    try:
        numbers = int(environment[rank]), int(environment[size])
    except (KeyError, ValueError):
        raise ShoalError(
            f"{rank} is {environment.get(rank)!r} and {size} is {environment.get(size)!r}: expected numbers from the launcher"
        ) from None
    return numbers
