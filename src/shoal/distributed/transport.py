"""Transport: communication between ranks. Implementations are in `transports/`; a single rank has LocalTransport."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from shoal.distributed.detect import Launch
from shoal.errors import ShoalError
from shoal.registry import Registry

DEFAULT_LIMIT = 300.0
KEPT = 10.0  # seconds that a failed rank 0 waits for ranks that are still busy
LAST_WORD = 3.0  # seconds for ranks to exchange the reasons of their ends


def read_limit() -> float:
    """Seconds that a wait on a peer may take: SHOAL_TIMEOUT, else 300."""
    asked = os.environ.get("SHOAL_TIMEOUT")
    if asked is None:
        return DEFAULT_LIMIT
    try:
        limit = float(asked)
    except ValueError:
        limit = -1.0
    if not 0 < limit < 1e7:
        raise ShoalError(f"SHOAL_TIMEOUT is {asked!r}: expected a number of seconds above 0")
    return limit


def as_bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor's memory as bytes: every transport carries every dtype."""
    return tensor.detach().view(-1).view(torch.uint8)


class RankGone(ShoalError):
    """A peer did not answer in time, or its connection broke; `told` if the peer has reported the reason."""

    def __init__(self, sentence: str, *, told: bool = False) -> None:
        super().__init__(sentence)
        self.told = told


class Exchange(ABC):
    """Messages in flight. Receives are posted at once, sends follow as they are ready."""

    @abstractmethod
    def send(self, peer: int, tensor: Tensor) -> None:
        """Start sending; `tensor` stays untouched until `finish`."""

    @abstractmethod
    def arrivals(self) -> Iterator[int]:
        """Yield each peer when its message has arrived: by rank, or in order of arrival."""

    @abstractmethod
    def finish(self) -> None:
        """Wait for all sends to complete."""

    def progress(self) -> None:  # noqa: B027 (a transport that moves data by itself has nothing to do)
        """Let the transport move data; only transports without threads of their own need it."""


class Transport(ABC):
    """One rank's communication with the others.

    Every wait takes at most `limit` seconds; a wait that fails raises a RankGone that names the missing rank and
    `phase`, which callers keep up to date.
    """

    name: str
    rank: int
    size: int
    in_any_order = False  # whether `arrivals` yields in order of arrival
    needs_progress = False  # whether data moves only during calls of `progress` and waits

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.phase = "starting"

    @classmethod
    @abstractmethod
    def open(cls, launch: Launch, limit: float) -> Transport:
        """Join the other ranks of a launch; every wait then takes at most `limit` seconds."""

    @abstractmethod
    def start(self, receives: dict[int, Tensor]) -> Exchange:
        """Post receives from these peers into contiguous tensors; returns the exchange, for sends."""

    @abstractmethod
    def sum(self, tensor: Tensor) -> Tensor:
        """Replace a contiguous tensor by its sum over all ranks, the same bits on each."""

    @abstractmethod
    def broadcast(self, tensor: Tensor, root: int) -> Tensor:
        """Fill a contiguous tensor with that of `root`."""

    @abstractmethod
    def sum_to(self, tensor: Tensor, root: int) -> Tensor:
        """Sum a contiguous tensor over all ranks at `root`; elsewhere its content is lost."""

    def barrier(self) -> None:
        """Wait for every rank."""
        self.sum(torch.zeros(1, dtype=torch.int64))

    def gather(self, values: np.ndarray) -> np.ndarray:
        """(size, k): the k numbers of every rank, on every rank."""
        table = torch.zeros(self.size, len(values), dtype=torch.from_numpy(values[:0]).dtype)
        table[self.rank] = torch.from_numpy(values)
        return self.sum(table).numpy()

    def gather_texts(self, text: str) -> list[str]:
        """One string of every rank, on every rank."""
        content = np.frombuffer(text.encode(), np.uint8)
        lengths = self.gather(np.array([len(content)]))[:, 0]
        padded = np.zeros(int(lengths.max()), np.int64)
        padded[: len(content)] = content
        table = self.gather(padded).astype(np.uint8)
        return [table[q, : lengths[q]].tobytes().decode() for q in range(self.size)]

    def leave(self, reason: str) -> None:  # noqa: B027 (not every transport can still send)
        """Report to the others, if possible, why this rank ends early."""

    def hears_same(self, reason: str) -> bool:
        """Whether rank 0 ends for the same reason; waits a few seconds for its report."""
        return False

    def linger(self, limit: float) -> None:  # noqa: B027
        """Before a rank ends early: wait, if needed, until the others have received the reason, at most `limit` seconds."""

    def close(self) -> None:  # noqa: B027
        """Leave the other ranks, after all work is done."""


TRANSPORTS: Registry[type[Transport]] = Registry("transport", "shoal.distributed.transports")


class _NoMessages(Exchange):
    def send(self, peer: int, tensor: Tensor) -> None:
        raise ShoalError(f"a single rank has no rank {peer} to send to")

    def arrivals(self) -> Iterator[int]:
        return iter(())

    def finish(self) -> None:
        pass


@TRANSPORTS.register
class LocalTransport(Transport):
    """A single rank, without messages."""

    name = "local"

    def __init__(self, limit: float = DEFAULT_LIMIT) -> None:
        super().__init__(limit)
        self.rank, self.size = 0, 1

    @classmethod
    def open(cls, launch: Launch, limit: float) -> Transport:
        return cls(limit)

    def start(self, receives: dict[int, Tensor]) -> Exchange:
        return _NoMessages()

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def broadcast(self, tensor: Tensor, root: int) -> Tensor:
        return tensor

    def sum_to(self, tensor: Tensor, root: int) -> Tensor:
        return tensor
