"""PointToPoint: only the rows needed travel, between the ranks concerned (VLDB'22); sampled with a boundary rate (BNS-GCN)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import torch

from shoal.batch import Batch
from shoal.distributed.boundary import WAYS, BoundarySampler
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import Ledger
from shoal.distributed.transport import Transport
from shoal.partitioning.part import Part
from shoal.settings import Choices, Null, Seed, Share, check_settings

_MESSAGES = {"float32": None, "bfloat16": torch.bfloat16}


@EXCHANGES.register
class PointToPoint(ExchangeMethod):
    """Non-blocking messages between the ranks that need rows of each other, overlapped with the local product."""

    name = "p2p"

    @check_settings
    def __init__(
        self,
        *,
        messages: Annotated[
            str, Choices(tuple(_MESSAGES)), "type rows travel as; bfloat16 halves the bytes"
        ] = "float32",
        boundary_rate: Annotated[
            float, Share, "share of the halo rows that an epoch keeps, BNS-GCN's p"
        ] = 1.0,
        last_boundary_rate: Annotated[
            float | None, Share, Null("boundary_rate"), "rate of the last epoch, reached in equal steps"
        ] = None,
        boundary_sampling: Annotated[
            str, Choices(WAYS), "what is sampled: halo nodes, edges into the halo, or all edges"
        ] = "nodes",
        seed: Seed = 0,
    ) -> None:
        self.messages = messages
        self.boundary_rate = boundary_rate
        self.last_boundary_rate = last_boundary_rate
        self.boundary_sampling = boundary_sampling
        self.seed = seed

    @property
    def thins(self) -> bool:
        return self.boundary_rate < 1 or self.last_boundary_rate not in (None, 1)

    @property
    def item_bytes(self) -> int:
        return 2 if _MESSAGES[self.messages] is not None else 4

    def make_plan(self, part: Part, transport: Transport, ledger: Ledger) -> HaloPlan:
        return HaloPlan(part, transport, ledger, _MESSAGES[self.messages])

    def count_rows(self, parts: Sequence[Part]) -> np.ndarray:
        return np.stack([np.diff(part.send_offsets) for part in parts])

    def make_sampler(self, batch: Batch, plan: HaloPlan) -> BoundarySampler:
        return BoundarySampler(
            batch,
            plan,
            rate=self.boundary_rate,
            last_rate=self.last_boundary_rate,
            way=self.boundary_sampling,
            seed=self.seed,
        )

    def describe(self) -> str:
        if not self.thins:
            return ""
        last = self.last_boundary_rate
        rates = f"{self.boundary_rate}" if last is None else f"{self.boundary_rate} to {last}"
        return f"boundary rate {rates} ({self.boundary_sampling})"
