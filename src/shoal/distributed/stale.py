"""StaleHalos: a step uses halo rows of the previous step, so that messages overlap with a whole step (PipeGCN)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shoal.distributed.messages import HaloExchange
from shoal.distributed.transport import as_bytes

if TYPE_CHECKING:
    from shoal.distributed.halo import HaloPlan


class StaleHalos:
    """Halo rows and gradients of the previous step, which this step uses (PipeGCN).

    Messages of a step are awaited in the next one. The first step waits for its own. Which rows are used depends on the
    step only, never on when messages arrive.

    Args:
        smoothing: weight of the previous value in the moving average of received rows; 0 for the received rows alone.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing
        self._lanes: dict[tuple[int, str, int], _Lane] = {}

    def start(
        self, plan: HaloPlan, direction: str, layer: int, turn: int, width: int, dtype: torch.dtype
    ) -> HaloExchange:
        """Start an exchange whose rows the next step uses; returns the one that this step uses."""
        lane = self._lanes.setdefault((layer, direction, turn), _Lane())
        place = f" of {layer} {direction} {turn}"
        takes_turns = (
            not self.smoothing and plan.wire.codec is None
        )  # double buffering: rows are read while the next ones arrive

        def begin() -> HaloExchange:
            lane.even ^= takes_turns
            place_of_rows = f"{place} {lane.even}"
            return HaloExchange(plan, direction, layer, width, dtype, turn, (place, place_of_rows))

        if lane.resumed is not None:
            lane.exchange = begin()
            lane.exchange.send_again(lane.resumed)
            lane.resumed = None
        used = None if lane.exchange is None else self._take(lane, lane.exchange, dtype)
        lane.exchange = begin()
        return lane.exchange if used is None else _StaleExchange(lane.exchange, used)

    def _take(self, lane: _Lane, exchange: HaloExchange, dtype: torch.dtype) -> Tensor:
        """Rows that were exchanged in the previous step, averaged with those it used."""
        came = exchange.wait()
        if not self.smoothing:
            return came
        if lane.used is None:
            lane.used = came.to(dtype, copy=True)
        else:
            lane.used.mul_(self.smoothing).add_(came, alpha=1 - self.smoothing)
        return lane.used

    def settle(self) -> None:
        """Wait for all exchanges in flight; the next step uses them."""
        for lane in self._lanes.values():
            if lane.exchange is not None:
                lane.exchange.wait()

    def export(self) -> dict[str, Tensor]:
        """State to resume exactly: the bytes sent last, which will be sent again, and moving averages."""
        tensors: dict[str, Tensor] = {}
        for key, lane in self._lanes.items():
            name = ".".join(map(str, key))
            sent = lane.resumed if lane.exchange is None else as_bytes(lane.exchange.letters)
            assert sent is not None
            tensors[f"{name}.sent"] = sent
            if lane.used is not None:
                tensors[f"{name}.used"] = lane.used
        return tensors

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the state from `export`."""
        self.settle()
        self._lanes.clear()
        for name, tensor in tensors.items():
            layer, direction, turn, what = name.split(".")
            lane = self._lanes.setdefault((int(layer), direction, int(turn)), _Lane())
            if what == "sent":
                lane.resumed = tensor
            else:
                lane.used = tensor


class _Lane:
    """One exchange of every step: that of the last step, perhaps in flight, and the average that was used then.

    `resumed` has the bytes that were in flight when a checkpoint was written.
    """

    def __init__(self) -> None:
        self.exchange: HaloExchange | None = None
        self.used: Tensor | None = None
        self.resumed: Tensor | None = None
        self.even = False


class _StaleExchange(HaloExchange):
    """Rows of the previous step, while this step's exchange is in flight."""

    def __init__(self, coming: HaloExchange, used: Tensor) -> None:
        self._coming, self.rows, self.outgoing = coming, used, coming.outgoing

    def send(self, peer: int, first: int, last: int) -> None:
        self._coming.send(peer, first, last)

    def arrivals(self) -> Iterator[int]:
        return (q for q, _, _ in self._coming._spans)

    def finish(self) -> None:
        pass

    def progress(self) -> None:
        self._coming.progress()
