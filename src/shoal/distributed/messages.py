"""Wire: what rows travel as between ranks, shared by all plans of a rank. HaloExchange: one exchange under way."""

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
    """How a rank's messages travel, and the buffers they come into.

    These settings apply to training steps. Features, exchanged once, and what evaluation exchanges travel as they are
    and are waited for, so that scores are those of the model whatever training did.

    Two buffers serve every layer and both directions, because an exchange ends before the next begins: `halo`
    holds one row for each halo row, `boundary` one for each row sent. They grow to the widest layer and stay. Stale
    exchanges, which end a step later, have buffers of their own.

    Args:
        messages: the type rows travel as, one of `codec.MESSAGES`.
        stale: keeps what a step uses of the step before; None to wait for every exchange.
        seed: decides how int8 and int4 round.

    Attributes:
        step: the optimizer step under way, None outside of training.
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
        """Begin an exchange of a plan; the same one on every rank."""
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
        """Let go of buffers that input features, wider than any layer, have grown."""
        self._memory.clear()


class HaloExchange:
    """An exchange under way: what is put into `outgoing` is sent span by span, what arrives is in `rows`.

    Args:
        turn: which of the layer's exchanges in a step of training; None for rows as they are.
        place: keeps its buffers apart from those of others, (of what is sent, of what comes).
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
        self.letters, self._arriving = self.outgoing, self.rows  # what the transport sees
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
        """Send the bytes that `letters` of an exchange before had; they have been counted then."""
        content = as_bytes(self.letters)
        if letters.numel() != content.numel():
            raise ShoalError(
                f"what rank {self.plan.part.rank} had under way in layer {self.layer} has {letters.numel():,} bytes, expected {content.numel():,}: resume with the parts and settings that the run began with"
            )
        content.copy_(letters)
        for q, a, b in self.send_spans:
            self._exchange.send(q, self.letters[a:b])

    def arrivals(self) -> Iterator[int]:
        """Yields each peer whose rows are here; only the waiting in between counts as exposed."""
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
        """All rows, once they are here and those sent have left."""
        for _ in self.arrivals():
            pass
        self.finish()
        return self.rows

    def finish(self) -> None:
        """Wait until all rows have arrived; the time counts as exposed communication."""
        if not self._has_left:
            with self.plan.ledger.timing(EXPOSED):
                self._exchange.finish()
            self._has_left = True

    def progress(self) -> None:
        """Let messages advance while this rank computes."""
        self._exchange.progress()
