"""Dispatch of kernels: the implementations of every operation, by device type and dtype.

    @implements("dropout")                                # plain torch: the fallback for all devices and dtypes
    @implements("dropout", "cpu", (torch.float32,))       # a kernel for one type of device and these dtypes

    kernel_of("dropout", h)(h, rate, key, n_id)           # the one for h

A public operation checks its arguments and calls the implementation for its tensors, so that neither it nor its callers
depend on the device. Implementations take and return tensors.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

ANY = "any"
F = TypeVar("F", bound=Callable[..., Any])
FLOATS = (torch.float32, torch.float64)


class Kernel(NamedTuple):
    """An implementation and the dtypes it is for; None for all."""

    function: Callable[..., Any]
    dtypes: Collection[torch.dtype] | None = None


KERNELS: dict[str, dict[str, Kernel]] = {}
_watching: list[dict[str, float]] = []  # what `timing_kernels` fills, at most one


def implements(
    operation: str, device: str = ANY, dtypes: Collection[torch.dtype] | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that registers a function as an operation's implementation on a type of device."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS.setdefault(operation, {})[device] = Kernel(function, dtypes)
        return function

    return enter


def kernel_of(operation: str, like: Tensor) -> Callable[..., Any]:
    """The implementation of an operation for the device and dtype of `like`."""
    kernels = KERNELS[operation]
    found = kernels.get(like.device.type)
    if found is None or (found.dtypes is not None and like.dtype not in found.dtypes):
        found = kernels[ANY]
    return timed(operation)(found.function) if _watching else found.function


@contextmanager
def timing_kernels() -> Iterator[dict[str, float]]:
    """Yield a dict of operation → seconds spent in its kernels inside the block."""
    spent: dict[str, float] = defaultdict(float)
    _watching.append(spent)
    try:
        yield spent
    finally:
        _watching.remove(spent)


def timed(operation: str) -> Callable[[F], F]:
    """A decorator that adds a function's run time to an operation's total inside `timing_kernels`."""

    def enter(function: F) -> F:
        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not _watching:
                return function(*args, **kwargs)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                _watching[-1][operation] += time.perf_counter() - started

        return run  # type: ignore[return-value]

    return enter
