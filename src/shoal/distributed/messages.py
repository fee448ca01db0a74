"""Wire: encoding and buffers of a rank's messages, shared by all its plans. HaloExchange: one exchange in flight."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from shoal.distributed.codec import AS_THEY_ARE, CODECS, HALVED, Codec, make_stream
from shoal.distributed.ledger import EXPOSED, FORWARD, INPUT
from shoal.distributed.transport import as_bytes
from shoal.errors import ShoalError

if TYPE_CHECKING:
    from shoal.distributed.halo import HaloPlan
    from shoal.distributed.stale import StaleHalos


class Wire:
    """Encoding of a rank's messages, and their buffers.

    The settings apply to training steps. Features and evaluation are exchanged unencoded and without staleness, so that
    scores do not depend on them.

    Two buffers serve every layer and both directions, because an exchange ends before the next begins: `halo`
    holds one row for each halo row, `boundary` one for each row sent. They grow to the widest layer and are kept. Stale
    exchanges, which end a step later, have buffers of their own.

    Args:
        messages: type of rows in messages, one of `codec.MESSAGES`.
        stale: keeps halo rows of the previous step; None to wait for every exchange.
        seed: of the stochastic rounding of int8 and int4.

    Attributes:
        step: the current optimizer step, None outside of training.
    """

    def __init__(
        self, messages: str = AS_THEY_ARE, *, stale: StaleHalos | None = None, seed: int = 0
    ) -> None:
        self.codec: Codec | None = CODECS.get(messages)
        self.halves = messages == HALVED
        self.stale = stale
        self.seed = seed
        self.step: int | None = None
        self._turns: Counter[tuple[int, str]] = Counter()
        self._memory: dict[str, Tensor] = {}

    @contextmanager
    def training(self, step: int) -> Iterator[None]:
        """Exchanges inside the block belong to an optimizer step."""
        self.step = step
        self._turns.clear()
        try:
            yield
        finally:
            self.step = None

    def start(
        self, plan: HaloPlan, direction: str, layer: int, width: int, dtype: torch.dtype
    ) -> HaloExchange:
        """Start an exchange of a plan; a collective call."""
        if self.step is None or layer == INPUT:
            return HaloExchange(plan, direction, layer, width, dtype)
        turn = self._turns[layer, direction]  # a layer may aggregate several times
        self._turns[layer, direction] += 1
        if self.stale is not None:
            return self.stale.start(plan, direction, layer, turn, width, dtype)
        return HaloExchange(plan, direction, layer, width, dtype, turn)

    def buffer(self, name: str, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """The first rows of a buffer as a matrix, its content arbitrary."""
        wanted = num_rows * width * dtype.itemsize
        if name not in self._memory or self._memory[name].numel() < wanted:
            self._memory[name] = torch.empty(wanted, dtype=torch.uint8)
        return self._memory[name][:wanted].view(dtype).view(num_rows, width)

    def release(self) -> None:
        """Free the buffers, which wide input features have grown beyond what layers need."""
        self._memory.clear()


class HaloExchange:
    """An exchange in flight: `outgoing` holds the rows to send, span by span, `rows` those received.

    Args:
        turn: number of the exchange among those of its layer in a training step; None for unencoded rows.
        place: names of own buffers to (send, receive), for exchanges that cannot share them.
    """

    def __init__(
        self,
        plan: HaloPlan,
        direction: str,
        layer: int,
        width: int,
        dtype: torch.dtype,
        turn: int | None = None,
        place: tuple[str, str] = ("", ""),
    ) -> None:
        self.plan, self.layer, self.direction = plan, layer, direction
        wire = plan.wire
        self._codec = None if turn is None else wire.codec
        is_forward = direction == FORWARD
        ends = [("boundary", plan.num_sent), ("halo", plan.num_halo)]
        self.send_spans, self._spans = plan.send_spans, plan.halo_spans
        if not is_forward:
            ends.reverse()
            self.send_spans, self._spans = self._spans, self.send_spans
        if turn is not None and wire.halves:
            dtype = torch.bfloat16
        self.outgoing, self.rows = (
            wire.buffer(name + own, size, width, dtype) for (name, size), own in zip(ends, place)
        )
        self.letters, self._arriving = self.outgoing, self.rows  # what the transport sends and receives
        if self._codec is not None:
            assert turn is not None
            assert wire.step is not None
            num_bytes = self._codec.row_bytes(width)
            self.letters, self._arriving = (
                wire.buffer(f"coded {name}{own}", size, num_bytes, torch.uint8)
                for (name, size), own in zip(ends, place)
            )
            self._ids = plan.send_ids if is_forward else plan.halo_ids
            self._stream = make_stream(
                wire.seed, wire.step, layer, int(is_forward), turn, plan.transport.rank
            )
        self._has_arrived = self._has_left = False
        plan.enter(layer, direction)
        self._exchange = plan.transport.start({q: self._arriving[a:b] for q, a, b in self._spans})
        self._started = time.perf_counter()

    def send(self, peer: int, first: int, last: int) -> None:
        """Send rows first … last-1 of `outgoing`."""
        letters = self.letters[first:last]
        if self._codec is not None:
            self._codec.encode(self.outgoing[first:last], self._ids[first:last], self._stream, letters)
        self._exchange.send(peer, letters)
        self.plan.ledger.count(self.layer, self.direction, peer, letters.numel() * letters.element_size())

    def send_again(self, letters: Tensor) -> None:
        """Send the bytes `letters` of an earlier exchange again; they were counted then."""
        content = as_bytes(self.letters)
        if letters.numel() != content.numel():
            raise ShoalError(
                f"the stored messages of rank {self.plan.part.rank} in layer {self.layer} have {letters.numel():,} bytes, expected {content.numel():,}: resume with the parts and settings that the run started with"
            )
        content.copy_(letters)
        for q, a, b in self.send_spans:
            self._exchange.send(q, self.letters[a:b])

    def arrivals(self) -> Iterator[int]:
        """Yield each peer when its rows have arrived; only the waiting counts as exposed."""
        if self._has_arrived:
            return
        waiting = iter(self._exchange.arrivals())
        if self._spans or self.send_spans:
            self.plan.ledger.hidden += time.perf_counter() - self._started
        spans = {q: (a, b) for q, a, b in self._spans}
        while True:
            with self.plan.ledger.timing(EXPOSED):
                peer = next(waiting, None)
            if peer is None:
                break
            if self._codec is not None:
                first, last = spans[peer]
                self._codec.decode(self._arriving[first:last], self.rows[first:last])
            yield peer
        self._has_arrived = True

    def wait(self) -> Tensor:
        """Wait for all receives and sends; returns the received rows."""
        for _ in self.arrivals():
            pass
        self.finish()
        return self.rows

    def finish(self) -> None:
        """Wait until all rows have been sent; the time counts as exposed communication."""
        if not self._has_left:
            with self.plan.ledger.timing(EXPOSED):
                self._exchange.finish()
            self._has_left = True

    def progress(self) -> None:
        """Let messages advance while this rank computes."""
        self._exchange.progress()
