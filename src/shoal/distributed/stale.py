"""StaleHalos: a step uses what the step before received, so that messages have a whole step to travel (PipeGCN)."""

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
    """What each exchange of a step brought in the step before, which this step uses (PipeGCN).

    A step's messages have until the next one to travel. The first step, which has none before it, waits. What is used
    depends on steps only, never on when messages come.

    Args:
        smoothing: share of what was used before in what is used next; the rest is what came. 0 for what came alone.
    """

    def __init__(self, smoothing: float = 0.0) -> None:
        self.smoothing = smoothing
        self._lanes: dict[tuple[int, str, int], _Lane] = {}

    def start(
        self, plan: HaloPlan, direction: str, layer: int, turn: int, width: int, dtype: torch.dtype
    ) -> HaloExchange:
        """Begin an exchange whose rows the next epoch uses; returns the one that this epoch uses."""
        lane = self._lanes.setdefault((layer, direction, turn), _Lane())
        place = f" of {layer} {direction} {turn}"
        takes_turns = not self.smoothing and plan.wire.codec is None  # what came is read while the next comes

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
        """What the step before brought, averaged with what that one used."""
        came = exchange.wait()
        if not self.smoothing:
            return came
        if lane.used is None:
            lane.used = came.to(dtype, copy=True)
        else:
            lane.used.mul_(self.smoothing).add_(came, alpha=1 - self.smoothing)
        return lane.used

    def settle(self) -> None:
        """Wait for everything under way; a step that follows uses it."""
        for lane in self._lanes.values():
            if lane.exchange is not None:
                lane.exchange.wait()

    def export(self) -> dict[str, Tensor]:
        """What a rank needs to go on exactly: the bytes it sent last, which it will send again, and averages."""
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
        """Go on from what `export` gave."""
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
    """One exchange of every step: that of the last step, perhaps under way, and the average that was used then.

    `resumed` has the bytes that were under way when a checkpoint was written.
    """

    def __init__(self) -> None:
        self.exchange: HaloExchange | None = None
        self.used: Tensor | None = None
        self.resumed: Tensor | None = None
        self.even = False


class _StaleExchange(HaloExchange):
    """What is used of the step before, while this step's exchange is on its way."""

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
