"""How kernels are compiled: cached on disk, without the GIL, on a thread-safe layer where there is one."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.core import event
from numba.extending import intrinsic

from shoal.kernels.compile_once import compile_once

# OpenMP and TBB let several Python threads run parallel kernels at once; workqueue does not.
numba.config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a sequential kernel. Safe to call from any Python thread."""
    compiled: Callable[..., Any] = compile_once(njit(cache=True, nogil=True)(function))
    return compiled


def parallel_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel whose `prange` loops use the thread budget. Called by one Python thread at a time."""
    compiled: Callable[..., Any] = compile_once(njit(cache=True, nogil=True, parallel=True)(function))
    return compiled


_WORK_PER_THREAD = 1 << 16  # multiply-adds that are worth waking a thread for


@contextmanager
def worker_threads(work: int) -> Iterator[int]:
    """How many threads to run a parallel kernel with: torch's number, or fewer for little work.

    Inside the block Numba wakes no other threads. Waiting for a second thread takes longer than a small product.
    """
    before = numba.get_num_threads()
    count = max(1, min(torch.get_num_threads(), before, work // _WORK_PER_THREAD))
    numba.set_num_threads(count)
    try:
        yield count
    finally:
        numba.set_num_threads(before)


@kernel
def new_counter():
    """A counter for `next_chunk`. A function of its own: in a parallel kernel, filling it would be a parallel loop."""
    return np.zeros(1, np.int64)


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


def load_kernels() -> None:
    """Load what all kernels need (some 25 MB), so that later measurements of memory include it."""
    new_counter()


class _CompileNotice(event.Listener):
    """Prints once that kernels are being compiled, which makes the first run slow; counts kernels and seconds."""

    said = False
    count = 0
    seconds = 0.0

    def __init__(self) -> None:
        self._running: list[float] = []  # nested: a kernel is compiled within its caller's compilation

    def on_start(self, event: Any) -> None:
        self._running.append(time.perf_counter())
        module = getattr(event.data.get("dispatcher"), "__module__", None) or ""
        if not module.startswith("shoal."):
            return
        self.count += 1
        if not self.said:
            self.said = True
            print(
                "shoal: compiling kernels that no earlier command used (up to a minute); they are cached for the next one",
                file=sys.stderr,
            )

    def on_end(self, event: Any) -> None:
        started = self._running.pop()
        if not self._running:
            self.seconds += time.perf_counter() - started


_notice = _CompileNotice()
event.register("numba:compile", _notice)


def count_compiled() -> int:
    """Number of kernels that this process has compiled so far; those read from the cache do not count."""
    return _notice.count


def compile_seconds() -> float:
    """Seconds that this process has spent compiling kernels."""
    return _notice.seconds


def silence_notice() -> None:
    """Do not print that kernels are being compiled: another rank does."""
    _notice.said = True
