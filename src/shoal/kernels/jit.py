"""How kernels are compiled: cached on disk, without the GIL, on a thread-safe layer where there is one."""

from collections.abc import Callable
from typing import Any

import numba
from numba import njit

# OpenMP and TBB let several Python threads run parallel kernels at once; workqueue does not.
numba.config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a sequential kernel. Safe to call from any Python thread."""
    compiled: Callable[..., Any] = njit(cache=True, nogil=True)(function)
    return compiled


def parallel_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel whose `prange` loops use the thread budget. Called by one Python thread at a time."""
    compiled: Callable[..., Any] = njit(cache=True, nogil=True, parallel=True)(function)
    return compiled
