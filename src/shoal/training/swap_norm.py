"""SwappedBatchNorm: batch norm over the rows of swapped parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch import Tensor

from shoal.distributed.batch_norm import SyncBatchNorm


class _Measured(Exception):
    """Raised once a part's rows are summed: what follows the norm cannot be computed yet."""


class SwappedBatchNorm(SyncBatchNorm):
    """Exact batch norm over all parts: one pass over the parts computes the sums, a second one uses them.

    Forward and backward have separate sums. Running statistics are updated once per step.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._totals: dict[bool, Tensor] = {}
        self._measures: bool | None = None  # the direction that is measured now
        self._is_remembered = True

    @contextmanager
    def measuring(self, *, backward: bool) -> Iterator[None]:
        """A context in which the sums of a direction are computed anew. Each part is computed inside `until_measured`."""
        self._totals.pop(backward, None)
        self._measures = backward
        self._is_remembered = backward
        try:
            yield
        finally:
            self._measures = None

    def until_measured(self) -> suppress:
        """A context that ends once a part's rows are summed."""
        return suppress(_Measured)

    def add_up(self, sums: Tensor, *, backward: bool = False) -> Tensor:
        if self._measures is backward:
            known = self._totals.get(backward)
            self._totals[backward] = sums if known is None else known + sums
            raise _Measured
        return self._totals.get(backward, sums)

    def remember(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running statistics, once for all parts of a step."""
        if not self._totals or not self._is_remembered:
            self._is_remembered = True
            super().remember(mean, variance)

    def forget(self) -> None:
        """Drop the sums after a step; until the next one it is an ordinary batch norm."""
        self._totals.clear()
