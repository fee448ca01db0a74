"""Host and port of a Slurm job's rendezvous, from its variables."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping

from shoal.errors import ShoalError

_FIRST_PORT, _NUM_PORTS = 15000, 20000


def find_first_host(environment: Mapping[str, str]) -> str:
    """The host of a Slurm job's rank 0: from scontrol, or from the list of nodes if there is no scontrol."""
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
    """A port by the job's number: all ranks choose the same without a message."""
    digits = re.sub(r"\D", "", job) or "0"
    return _FIRST_PORT + int(digits) % _NUM_PORTS
