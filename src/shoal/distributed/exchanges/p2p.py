"""PointToPoint: ranks send each other only the rows they need (VLDB'22), or covers of rows and sums.

A boundary rate samples them (BNS-GCN).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Annotated, Self

import numpy as np

from shoal.aggregation import AGGREGATIONS
from shoal.batch import Batch
from shoal.distributed.boundary import WAYS, BoundarySampler, count_crossing, find_rate
from shoal.distributed.codec import AS_THEY_ARE, CODECS, MESSAGES, count_row_bytes
from shoal.distributed.cover import count_received, exchange_items
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import Ledger
from shoal.distributed.messages import Wire
from shoal.distributed.stale import StaleHalos
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.partitioning.part import Part
from shoal.settings import Choices, Null, Range, Rate, Seed, Share, check_settings

_WORTH = 0.98  # covers are used up to this ratio of items to rows: sums are computed before anything is sent


def pays(items: int, rows: int) -> bool:
    """Whether covers send so many fewer rows that they are used."""
    return items < rows and items <= _WORTH * rows


@EXCHANGES.register
class PointToPoint(ExchangeMethod):
    """Non-blocking messages between the ranks that need rows of each other, overlapped with the local product."""

    name = "p2p"

    @check_settings
    def __init__(
        self,
        *,
        messages: Annotated[
            str,
            Choices(MESSAGES),
            "type of rows in training messages; bfloat16, int8, int4: a half, quarter, eighth of the bytes",
        ] = "float32",
        cover: Annotated[
            bool | None,
            Null("if covers send fewer rows and no boundary rate is set"),
            "send partial sums in place of rows where one sum replaces several rows",
        ] = None,
        boundary_rate: Annotated[float, Share, "share of halo rows kept in an epoch, BNS-GCN's p"] = 1.0,
        last_boundary_rate: Annotated[
            float | None, Share, Null("boundary_rate"), "rate of the last epoch, reached in equal steps"
        ] = None,
        boundary_sampling: Annotated[
            str,
            Choices(WAYS),
            "what is sampled: halo nodes, edges into the halo, or as many of all edges",
        ] = "nodes",
        sample_input: Annotated[
            bool,
            "sample the first layer too: exchange the kept rows' features in every epoch, as BNS-GCN does",
        ] = False,
        staleness: Annotated[
            int,
            Range(0, 1),
            "epochs by which halo rows are stale; 1 overlaps messages with computing (PipeGCN)",
        ] = 0,
        smoothing: Annotated[
            float, Rate, "weight of the previous value in the moving average of stale halo rows (PipeGCN)"
        ] = 0.0,
        seed: Seed = 0,
    ) -> None:
        self.messages = messages
        self.staleness, self.smoothing = staleness, smoothing
        self.cover = cover
        self.boundary_rate = boundary_rate
        self.last_boundary_rate = last_boundary_rate
        self.boundary_sampling = boundary_sampling
        self.sample_input = sample_input
        self.seed = seed
        if sample_input and not self.thins:
            raise ShoalError(
                "sample_input samples the first layer's halo input and the boundary rate is 1: add boundary_rate, or leave out sample_input"
            )
        if sample_input and cover:
            raise ShoalError("sample_input exchanges rows of features: leave out cover=true, or sample_input")
        if staleness and self.thins:
            raise ShoalError(
                "staleness uses the whole halo of the previous epoch: leave out the boundary rate, or staleness"
            )
        if smoothing and not staleness:
            raise ShoalError(
                f"smoothing is {smoothing} and halos are not stale: add staleness=1, or leave it out"
            )

    @property
    def thins(self) -> bool:
        return self.boundary_rate < 1 or self.last_boundary_rate not in (None, 1)

    @property
    def is_stale(self) -> bool:
        return self.staleness > 0

    @property
    def is_coded(self) -> bool:
        return self.messages in CODECS

    def row_bytes(self, width: int, item_bytes: int = 4) -> int:
        return count_row_bytes(self.messages, width, item_bytes)

    def make_plan(
        self, part: Part, transport: Transport, ledger: Ledger, kinds: Iterable[str] = AGGREGATIONS
    ) -> HaloPlan:
        items, total = None, 0
        if self.covers(kinds):
            transport.phase = "the choice between rows and sums"
            counts = np.array([count_received(part).sum(), part.num_halo])
            total, rows = transport.gather(counts).sum(0).tolist()
            if self.cover or pays(total, rows):
                items = exchange_items(part, transport, ledger)
        stale = StaleHalos(self.smoothing) if self.is_stale else None
        wire = Wire(self.messages, stale=stale, seed=self.seed)
        plan = HaloPlan(part, transport, ledger, wire, items=items)
        plan.total_items = total if items is not None else None
        return plan

    def covers(self, kinds: Iterable[str]) -> bool:
        """Whether any aggregation may use covers.

        A boundary rate samples rows, unless cover=true asks for rows and sums. Their variance is larger: a dropped sum
        drops all its rows.
        """
        linear = [AGGREGATIONS[kind].weighted for kind in kinds]
        if self.cover and not any(linear):
            raise ShoalError(
                "partition.cover=true sends partial sums and attention needs whole rows: leave it out"
            )
        if self.cover and self.thins and (self.boundary_sampling != "nodes" or not all(linear)):
            raise ShoalError(
                "cover=true samples rows and sums: expected boundary_sampling=nodes and a model without attention; or leave out cover"
            )
        return any(linear) and (not self.thins if self.cover is None else self.cover)

    def count_rows(self, parts: Sequence[Part], *, linear: bool = True) -> np.ndarray:
        rows = np.stack([np.diff(part.halo_offsets) for part in parts], axis=1)
        if not (linear and self.covers(["sum"])):
            return rows
        items = np.stack([count_received(part) for part in parts], axis=1)
        return items if self.cover or pays(items.sum(), rows.sum()) else rows

    def settle(self, parts: Sequence[Part]) -> Self:
        chosen = copy(self)
        if self.cover is None:
            chosen.cover = bool(self.count_rows(parts).sum() < sum(part.num_halo for part in parts))
        return chosen

    def at_epoch(self, epoch: int, epochs: int) -> Self:
        """The same with the epoch's rate as a constant one; all epochs use covers, or none does."""
        chosen = copy(self)
        if self.last_boundary_rate is not None:
            chosen.cover = bool(self.cover)
            chosen.boundary_rate = find_rate(self.boundary_rate, self.last_boundary_rate, epoch, epochs)
            chosen.last_boundary_rate = None
            chosen.sample_input = self.sample_input and chosen.thins
        return chosen

    def expect_rows(self, parts: Sequence[Part], *, linear: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """A row is kept with probability p; where entries are sampled, unless all entries that read it are dropped."""
        rows = self.count_rows(parts, linear=linear)
        p = self.boundary_rate
        if not self.thins or self.boundary_sampling == "nodes":
            return rows * p, 1 - (1 - p) ** rows
        lost = 1 - self.expect_entries(parts)[1]
        kept, entries = np.zeros(rows.shape), np.zeros(rows.shape)
        for r, part in enumerate(parts):
            reads = np.bincount(part.halo_indices, minlength=part.num_halo)
            owner = np.repeat(np.arange(len(parts)), np.diff(part.halo_offsets))
            kept[:, r] = np.bincount(owner, 1 - lost**reads, len(parts))
            entries[:, r] = np.bincount(owner, reads, len(parts))
        return kept, 1 - lost**entries

    def expect_entries(self, parts: Sequence[Part]) -> tuple[float, float]:
        p = self.boundary_rate
        if self.boundary_sampling != "dropedge":
            return 1.0, p
        crossing, total = np.sum([count_crossing(part) for part in parts], axis=0)
        kept = 1 - (1 - p) * crossing / max(total, 1)
        return kept, kept

    def count_ids(self, parts: Sequence[Part]) -> np.ndarray:
        """One bit for every row, to its owner."""
        rows = self.count_rows(parts)
        return -(-rows.T // 8) if self.thins and self.expect_entries(parts)[1] > 0 else np.zeros_like(rows)

    @property
    def samples_input(self) -> bool:
        return self.sample_input

    def make_sampler(self, batch: Batch, plan: HaloPlan) -> BoundarySampler:
        return BoundarySampler(
            batch,
            plan,
            rate=self.boundary_rate,
            last_rate=self.last_boundary_rate,
            way=self.boundary_sampling,
            sample_input=self.sample_input,
            seed=self.seed,
        )

    def describe(self) -> str:
        said = [] if self.messages == AS_THEY_ARE else [f"{self.messages} messages"]
        if self.thins:
            last = self.last_boundary_rate
            rates = f"{self.boundary_rate}" if last is None else f"{self.boundary_rate} to {last}"
            layers = ", input too" if self.sample_input else ""
            said.append(f"boundary rate {rates} ({self.boundary_sampling}{layers})")
        if self.is_stale:
            smoothed = f", smoothed by {self.smoothing}" if self.smoothing else ""
            said.append(f"halos of the previous epoch{smoothed}")
        return "; ".join(said)
