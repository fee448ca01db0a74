"""BroadcastPlan: the exchange of CAGNET's 1D algorithm, which broadcasts every rank's rows. The baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from shoal.aggregation import AGGREGATIONS
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.halo import HaloPlan, collect_columns
from shoal.distributed.ledger import BACKWARD, EXPOSED, FORWARD, Ledger
from shoal.distributed.messages import HaloExchange
from shoal.distributed.transport import Transport
from shoal.partitioning.part import Part


@EXCHANGES.register
class Broadcast(ExchangeMethod):
    """Every rank's rows to every rank, one rank after the other: the baseline."""

    name = "broadcast"
    serves_batches = False
    is_collective = True

    def make_plan(
        self, part: Part, transport: Transport, ledger: Ledger, kinds: Iterable[str] = AGGREGATIONS
    ) -> HaloPlan:
        return BroadcastPlan(part, transport, ledger)

    def count_rows(self, parts: Sequence[Part], *, linear: bool = True) -> np.ndarray:
        sizes = np.array([part.num_local for part in parts])
        return np.repeat(sizes[:, None], len(sizes), axis=1) * (1 - np.eye(len(sizes), dtype=np.int64))


class BroadcastPlan(HaloPlan):
    """A HaloPlan by collectives: forward, a broadcast of all rows of each rank in turn; backward, a reduction to each rank.

    Traffic does not depend on the partition: a rank receives every row of the graph and uses those of its halo. Nothing
    overlaps, since a broadcast involves all ranks. Rows are sent unencoded.
    """

    overlaps = False

    def __init__(self, part: Part, transport: Transport, ledger: Ledger) -> None:
        super().__init__(part, transport, ledger)
        transport.phase = "the exchange of row numbers"
        self.sizes = transport.gather(np.array([part.num_local]))[:, 0].tolist()
        numbers = torch.empty(part.num_halo, dtype=torch.int64)
        exchange = transport.start({q: numbers[a:b] for q, a, b in self.halo_spans})
        for q, a, b in self.send_spans:
            exchange.send(q, self.send_rows[a:b])
        for _ in exchange.arrivals():
            pass
        exchange.finish()
        self.owner_rows = {
            q: numbers[a:b] for q, a, b in self.halo_spans
        }  # row numbers of the halo at its owners
        self.returning = collect_columns(np.arange(part.num_local), part.num_local)

    @property
    def num_messages(self) -> int:
        return self.transport.size - 1 if self.part.num_local else 0

    def start_forward(self, h: Tensor, layer: int) -> HaloExchange:
        self.enter(layer, FORWARD)
        halo = self.wire.buffer("halo", self.num_halo, h.shape[1], h.dtype)
        return _Broadcasts(self, h.detach().contiguous(), halo, layer)

    def start_backward(self, width: int, dtype: torch.dtype, layer: int) -> HaloExchange:
        self.enter(layer, BACKWARD)
        own = self.wire.buffer("own", self.part.num_local, width, dtype)
        return _Sums(self, own, self.wire.buffer("halo", self.num_halo, width, dtype), layer)

    def count_all(self, layer: int, direction: str, sizes: list[int], row_bytes: int) -> None:
        """Count rows sent to every other rank, `sizes[q]` of them to rank q."""
        for q, size in enumerate(sizes):
            if q != self.transport.rank and size:
                self.ledger.count(layer, direction, q, size * row_bytes)


class _Broadcasts(HaloExchange):
    def __init__(self, plan: BroadcastPlan, h: Tensor, halo: Tensor, layer: int) -> None:
        self.plan, self.h, self.rows, self.layer = plan, h, halo, layer

    def arrivals(self) -> Iterator[int]:
        plan, width = self.plan, self.h.shape[1]
        assert isinstance(plan, BroadcastPlan)
        spans = {q: (a, b) for q, a, b in plan.halo_spans}
        own = [len(self.h)] * plan.transport.size
        plan.count_all(self.layer, FORWARD, own, width * self.h.element_size())
        for root, size in enumerate(plan.sizes):
            rows = self.h
            if root != plan.transport.rank:
                rows = plan.wire.buffer("broadcast", size, width, self.h.dtype)
            with plan.ledger.timing(EXPOSED):
                plan.transport.broadcast(rows, root)
            if root in spans:
                first, last = spans[root]
                torch.index_select(rows, 0, plan.owner_rows[root], out=self.rows[first:last])
                yield root

    def finish(self) -> None:
        pass

    def progress(self) -> None:
        pass


class _Sums(HaloExchange):
    def __init__(self, plan: BroadcastPlan, own: Tensor, outgoing: Tensor, layer: int) -> None:
        self.plan, self.rows, self.outgoing, self.layer = plan, own, outgoing, layer
        self.gradients: dict[int, Tensor] = {}

    def send(self, peer: int, first: int, last: int) -> None:
        self.gradients[peer] = self.outgoing[first:last]

    def arrivals(self) -> Iterator[int]:
        plan, width = self.plan, self.rows.shape[1]
        assert isinstance(plan, BroadcastPlan)
        plan.count_all(self.layer, BACKWARD, plan.sizes, width * self.rows.element_size())
        for root, size in enumerate(plan.sizes):
            rows = self.rows
            if root != plan.transport.rank:
                rows = plan.wire.buffer("broadcast", size, width, self.rows.dtype)
            rows.zero_()
            if root in self.gradients:
                rows.index_copy_(0, plan.owner_rows[root], self.gradients[root])
            with plan.ledger.timing(EXPOSED):
                plan.transport.sum_to(rows, root)
        return iter(())

    def finish(self) -> None:
        pass

    def progress(self) -> None:
        pass
