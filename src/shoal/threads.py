"""The one place that decides how many threads torch, its BLAS and the Numba kernels use."""

import os

import numba
import torch

from shoal.checks import MAX_THREADS
from shoal.errors import ShoalError


def available_cores() -> int:
    """Cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_threads(count: int | None = None) -> int:
    """Give torch and Numba `count` threads each (they never run at the same time); returns the count.

    Without a count, `SHOAL_THREADS` decides, then the cores this process may use. `OMP_NUM_THREADS` is
    ignored on purpose: torchrun sets it to 1 for every process.
    """
    if count is None:
        asked = os.environ.get("SHOAL_THREADS")
        if asked is not None and not asked.isdigit():
            raise ShoalError(f"SHOAL_THREADS is {asked!r}: expected a number of threads")
        count = int(asked) if asked else available_cores()
    if not 1 <= count <= MAX_THREADS:
        raise ShoalError(f"{count} threads asked for: expected 1 to {MAX_THREADS}")
    torch.set_num_threads(count)
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))
    return count
