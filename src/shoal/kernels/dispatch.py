"""The table of kernels: for every operation, what computes it on which type of device.

    @implements("dropout")                                # plain torch: wherever nothing else is given
    @implements("dropout", "cpu", (torch.float32,))       # a kernel for one type of device and these dtypes

    kernel_of("dropout", h)(h, rate, key, n_id)           # the one for h

A public operation checks its arguments and calls the implementation for its tensors, so that neither it nor what
stands on it knows devices. Implementations take and return tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import torch
from torch import Tensor

ANY = "any"
FLOATS = (torch.float32, torch.float64)


class Kernel(NamedTuple):
    """An implementation and the dtypes it is for; None for all."""

    function: Callable[..., Any]
    dtypes: Collection[torch.dtype] | None = None


KERNELS: dict[str, dict[str, Kernel]] = {}


def implements(
    operation: str, device: str = ANY, dtypes: Collection[torch.dtype] | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that enters a function as an operation's implementation on a type of device."""

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
    return found.function
