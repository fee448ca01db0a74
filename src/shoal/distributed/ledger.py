"""Ledger: bytes and messages that a rank sent, by layer, direction and peer, and its time by kind."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
FORWARD, BACKWARD, IDS = "forward", "backward", "ids"
INPUT = 0  # the "layer" of exchanges before training
EXPOSED, REDUCE, IDLE, SAMPLING = "exposed", "reduce", "idle", "sampling"
KINDS = (EXPOSED, REDUCE, IDLE, SAMPLING)


@dataclass
class Ledger:
    """Counts every message that leaves this rank and every second it does not compute.

    Kinds of seconds: `exposed` is waiting for rows, beyond the overlap with the local product; `reduce` is the
    all-reduce of gradients and norms; `idle` is waiting for slower ranks before that; `sampling` is drawing what an
    epoch exchanges and sending the lists to owners. The rest of an epoch is computing.

    Attributes:
        sent: (layer, direction, peer) → [bytes, messages]; layers count aggregations from 1. Lists of rows
            to send have the direction `ids` and layer 0.
        seconds: kind → seconds.
        exchanges: (layer, direction) of every exchange started, also if this rank sent nothing: the same on every rank.
        hidden: seconds in which messages overlapped with computing; part of computing.
    """

    sent: dict[tuple[int, str, int], list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    exchanges: set[tuple[int, str]] = field(default_factory=set)
    hidden: float = 0.0

    def begin(self, layer: int, direction: str) -> None:
        """Record that an exchange took place, whether bytes were sent or not."""
        self.exchanges.add((layer, direction))

    def count(self, layer: int, direction: str, peer: int, num_bytes: int, messages: int = 1) -> None:
        """Add bytes and messages sent to a peer in an exchange."""
        entry = self.sent[layer, direction, peer]
        entry[0] += num_bytes
        entry[1] += messages

    @contextmanager
    def timing(self, kind: str) -> Iterator[None]:
        """Add the block's seconds to a kind of waiting."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] += time.perf_counter() - started

    def time_each(self, kind: str, source: Iterator[T]) -> Iterator[T]:
        """Yield from `source`; the time until each item counts as `kind`."""
        while True:
            with self.timing(kind):
                found = next(source, None)
            if found is None:
                return
            yield found

    @property
    def num_bytes(self) -> int:
        """Bytes sent since the last `take`."""
        return sum(entry[0] for entry in self.sent.values())

    @property
    def num_messages(self) -> int:
        """Messages sent since the last `take`."""
        return sum(entry[1] for entry in self.sent.values())

    def take(self) -> Ledger:
        """Return what was counted since the last call, and reset all counts."""
        taken = Ledger(dict(self.sent), dict(self.seconds), set(self.exchanges), self.hidden)
        self.sent.clear()
        self.exchanges.clear()
        self.seconds.update(dict.fromkeys(KINDS, 0.0))
        self.hidden = 0.0
        return taken

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Do not count what happens inside the block."""
        kept = self.take()
        try:
            yield
        finally:
            self.take()
            self.sent.update(kept.sent)
            self.seconds.update(kept.seconds)
            self.exchanges.update(kept.exchanges)
            self.hidden = kept.hidden
