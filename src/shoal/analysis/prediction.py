"""Prediction: the predicted cost of an epoch across ranks; Load: what it is predicted from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LayerExchange:
    """One exchange of a step: `width` values for every row, in a layer counted from 1.

    Attributes:
        overlaps: whether the product with local columns runs meanwhile and partial sums may be sent; a softmax needs
            all columns first.
        item_bytes: bytes of a value that is sent unencoded; None for the exchange's own type.
    """

    layer: int
    direction: str
    width: int
    overlaps: bool = True
    item_bytes: int | None = None


@dataclass(frozen=True)
class Prediction:
    """Predicted cost of an epoch of training; times are in seconds.

    Attributes:
        num_bytes, num_messages: of all ranks together, exactly what the transport will count; with a boundary rate, its mean.
        exchanges: of a step.
        seconds: of each exchange, in order, in all steps.
        exposed: of each exchange, without what overlaps with the product with local columns; for stale exchanges,
            without what overlaps with the epoch's computing.
        reduce: all-reduces of the loss, of the gradients and of batch norm.
        compute: of the slowest rank; 0 where the machine has no rates.
        steps: of an epoch.
        sampling: drawing batches and cutting them into ranks' shares, as measured here; choosing the halo rows of a boundary rate.
        memory: bytes of every rank's process in training, estimated (`rank_memory`).
        modelled: bytes of every rank by BNS-GCN's formula, as in `ranks.json`.
        norm_sums: bytes of each all-reduce of batch norm in a step; `num_bytes` has no bytes of all-reduces.
        norms: seconds of these all-reduces in all steps, which `reduce` includes.
    """

    num_bytes: int
    num_messages: int
    exchanges: tuple[LayerExchange, ...]
    seconds: tuple[float, ...]
    exposed: tuple[float, ...]
    reduce: float
    compute: float
    steps: int = 1
    sampling: float = 0.0
    memory: tuple[int, ...] = ()
    modelled: tuple[int, ...] = ()
    norm_sums: tuple[int, ...] = ()
    norms: float = 0.0

    @property
    def communication(self) -> float:
        """Seconds of all exchanges, overlapped or exposed."""
        return sum(self.seconds)

    @property
    def epoch(self) -> float:
        """Seconds of an epoch: drawing batches, compute, exposed communication and all-reduces."""
        return self.sampling + self.compute + sum(self.exposed) + self.reduce

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON; `compute` is None where the machine's rates are unknown."""
        totals = {"communication": self.communication, "epoch": self.epoch}
        return asdict(self) | totals | {"compute": self.compute or None}


@dataclass(frozen=True)
class Load:
    """Rows and entries that ranks hold and send in a step.

    Attributes:
        rows: {overlaps: (rows that rank q sends to rank r in an exchange, the probability that it sends any)}, (P, P) each.
        ids: bytes of the lists of kept rows, (P, P).
        entries: in local and in halo columns, (P, 2); None where only communication is known.
        held: local and halo rows, (P, 2).
    """

    rows: dict[bool, tuple[np.ndarray, np.ndarray]]
    ids: np.ndarray
    entries: np.ndarray | None
    held: np.ndarray


def add_steps(steps: Sequence[Prediction], scale: float = 1.0) -> Prediction:
    """An epoch of several steps, each of them taken `scale` times."""

    def total(values: Iterable[float]) -> float:
        return scale * float(sum(values))

    return replace(
        steps[0],
        num_bytes=round(total(one.num_bytes for one in steps)),
        num_messages=round(total(one.num_messages for one in steps)),
        seconds=tuple(total(each) for each in zip(*(one.seconds for one in steps))),
        exposed=tuple(total(each) for each in zip(*(one.exposed for one in steps))),
        reduce=total(one.reduce for one in steps),
        compute=total(one.compute for one in steps),
        steps=round(total(one.steps for one in steps)),
        sampling=total(one.sampling for one in steps),
        norms=total(one.norms for one in steps),
    )
