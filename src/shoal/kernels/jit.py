"""How kernels are compiled: cached on disk, without the GIL, on a thread-safe layer where there is one."""

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

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


@intrinsic
def next_chunk(typingctx, counter):
    """Atomically take the next number from `counter` (an int64 array of one element).

    Numba splits a `prange` evenly beforehand; threads that take chunks as they go keep busy when another
    process holds one of the cores.
    """

    def codegen(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        return builder.atomic_rmw("add", array.data, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(counter), codegen
