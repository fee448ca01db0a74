"""StepProfile: where the time of one training step goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from shoal.distributed.ledger import Ledger
from shoal.kernels.dispatch import timing_kernels

AGGREGATING = ("multiply", "gat_attention")  # operations of `shoal.kernels` that aggregate neighbours
_DENSE = ("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot")
_SPARSE = ("index_add", "index_add_", "scatter_add", "scatter_add_", "scatter_reduce", "_sparse_mm")


class StepProfile:
    """Profiles one training step, the first after an epoch of compilation and warm-up. Off until `is_on` is set.

    The profiled step is part of training: nothing is computed twice, and results do not change.

    Attributes:
        found: `epoch`; `seconds` of the step without waiting; and of these the seconds of `aggregation` (products with
            the adjacency, attention) and `dense` (matrix products) on this rank. None before the step.
    """

    def __init__(self, model: nn.Module, ledger: Ledger) -> None:
        self._model, self._ledger = model, ledger
        self.is_on = False
        self.found: dict[str, float] | None = None
        self._first: int | None = None  # the epoch that warms up

    def watching(self, epoch: int) -> AbstractContextManager[None]:
        """A context for the next step: the profiler, or nothing."""
        if not self.is_on or self.found is not None:
            return nullcontext()
        self._first = epoch if self._first is None else self._first
        if epoch == self._first or _is_compiled(self._model):
            return nullcontext()
        return self._watch(epoch)

    @contextmanager
    def _watch(self, epoch: int) -> Iterator[None]:
        ledger = self._ledger
        waited, clock, started = sum(ledger.seconds.values()), _OperatorClock(), time.perf_counter()
        with timing_kernels() as kernels, clock:
            yield
        seconds = time.perf_counter() - started - (sum(ledger.seconds.values()) - waited)
        aggregation = clock.sparse + sum(kernels[name] for name in AGGREGATING)
        self.found = {
            "epoch": epoch,
            "seconds": seconds,
            "aggregation": aggregation,
            "dense": clock.dense,
        }


class _OperatorClock(TorchDispatchMode):
    """Sums the seconds of torch's dense and sparse products, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = self.sparse = 0.0


def _run_operator(
    self: _OperatorClock, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
) -> Any:
    started = time.perf_counter()
    result = func(*args, **(kwargs or {}))
    name = func.overloadpacket.__name__
    if name in _DENSE:
        self.dense += time.perf_counter() - started
    elif name in _SPARSE:
        self.sparse += time.perf_counter() - started
    return result


# If it is defined in the class body, torch wraps it in code that imports all of torch._dynamo, which takes seconds.
_OperatorClock.__torch_dispatch__ = _run_operator  # type: ignore[assignment]


def _is_compiled(model: nn.Module) -> bool:
    """Whether the model is compiled by `torch.compile`: its operators cannot be timed."""
    return any(type(one).__name__ == "OptimizedModule" for one in model.modules())
