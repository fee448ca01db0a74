"""SwappedBatchNorm: batch norm over the rows of parts that are worked on one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from torch import Tensor

from shoal.distributed.batch_norm import SyncBatchNorm


class _Measured(Exception):
    """A part's rows are measured: what follows the norm cannot be computed yet."""


class SwappedBatchNorm(SyncBatchNorm):
    """The exact batch norm of all parts: a pass over the parts measures the sums, another one uses them.

    Forward and backward have sums of their own. Running statistics are updated once a step.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._totals: dict[bool, Tensor] = {}
        self._measures: bool | None = None  # the direction that is measured now
        self._is_remembered = True

    @contextmanager
    def measuring(self, *, backward: bool) -> Iterator[None]:
        """Add up the sums of a direction anew; the work of every part is done inside `until_measured`."""
        self._totals.pop(backward, None)
        self._measures = backward
        self._is_remembered = backward
        try:
            yield
        finally:
            self._measures = None

    def until_measured(self) -> suppress:
        """Ends the block once a part's rows are measured."""
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
        """A step is done: until the next one it is a batch norm like any other."""
        self._totals.clear()
