"""ExchangeMethod: how ranks exchange halo rows; one file each in `exchanges/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from shoal.aggregation import AGGREGATIONS
from shoal.batch import Batch
from shoal.distributed.boundary import BoundarySampler
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import Ledger
from shoal.distributed.transport import Transport
from shoal.partitioning.part import Part
from shoal.registry import Registry

STALE_BATCHES = "staleness needs the same halo rows in every epoch and a sampler changes them: leave out the sampler, or staleness"


class ExchangeMethod(ABC):
    """A way to exchange halo rows. Its constructor declares its settings.

    Attributes:
        serves_batches: whether it can exchange the rows of sampled mini-batches.
        is_collective: whether all ranks take part in every message, so that nothing overlaps.
    """

    name: ClassVar[str]
    serves_batches: ClassVar[bool] = True
    is_collective: ClassVar[bool] = False

    @property
    def thins(self) -> bool:
        """Whether some epochs exchange less than the whole halo."""
        return False

    @property
    def is_stale(self) -> bool:
        """Whether an epoch uses halo rows of the previous one."""
        return False

    @property
    def is_coded(self) -> bool:
        """Whether values are encoded as integers, which takes computing."""
        return False

    def row_bytes(self, width: int, item_bytes: int = 4) -> int:
        """Bytes of a row in a training message, of `width` values that have `item_bytes` in the model."""
        return width * item_bytes

    @abstractmethod
    def make_plan(
        self, part: Part, transport: Transport, ledger: Ledger, kinds: Iterable[str] = AGGREGATIONS
    ) -> HaloPlan:
        """The halo plan of a part, for a model with these kinds of aggregation; a collective call."""

    @abstractmethod
    def count_rows(self, parts: Sequence[Part], *, linear: bool = True) -> np.ndarray:
        """(P, P): rows, or rows and sums, that rank q sends to rank r in one exchange.

        `linear`: whether owners may compute partial sums of the aggregation, which attention does not allow.
        """

    def expect_rows(self, parts: Sequence[Part], *, linear: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """(P, P) twice: mean rows that rank q sends to rank r in an exchange, and the probability that it sends any."""
        rows = self.count_rows(parts, linear=linear)
        return rows, (rows > 0).astype(float)

    def expect_entries(self, parts: Sequence[Part]) -> tuple[float, float]:
        """Mean share of the entries in local and in halo columns that an epoch keeps."""
        return 1.0, 1.0

    def count_ids(self, parts: Sequence[Part]) -> np.ndarray:
        """(P, P): bytes of the list of kept halo rows that rank q sends to rank r in every epoch."""
        return np.zeros((len(parts), len(parts)), np.int64)

    def settle(self, parts: Sequence[Part]) -> ExchangeMethod:
        """The same method with its choice between rows and covers fixed for all mini-batches of these parts."""
        return self

    def at_epoch(self, epoch: int, epochs: int) -> ExchangeMethod:
        """The same method as it is in one of `epochs` epochs, counted from 0."""
        return self

    @property
    def samples_input(self) -> bool:
        """Whether the first layer's halo features are exchanged in every epoch."""
        return False

    def covers(self, kinds: Iterable[str]) -> bool:
        """Whether sums may be sent in place of rows for some of a model's kinds of aggregation."""
        return False

    def make_sampler(self, batch: Batch, plan: HaloPlan) -> BoundarySampler:
        """The sampler of an epoch's batch: all rows of the part, with the halo rows that the epoch keeps."""
        return BoundarySampler(batch, plan)

    def describe(self) -> str:
        """What makes the exchange inexact, in a few words; empty if it is exact."""
        return ""


EXCHANGES: Registry[type[ExchangeMethod]] = Registry("exchange", "shoal.distributed.exchanges")
