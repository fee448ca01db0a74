"""HaloPlan: who sends which rows to whom."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.distributed.ledger import BACKWARD, FORWARD, Ledger
from shoal.distributed.messages import HaloExchange, Wire
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.partitioning.part import Part

if TYPE_CHECKING:
    from shoal.distributed.cover import Items


class HaloPlan:
    """A part's messages. Forward, boundary rows are sent and halo rows received; backward, their gradients return.

    `thinned` makes a plan of fewer rows, for one epoch, that uses the same wire.

    Args:
        wire: encoding of messages, and their buffers.
        items: what linear aggregations exchange instead of rows (`shoal.distributed.cover`), None for rows.

    Attributes:
        halo_offsets, num_halo, num_sent: offsets of the received rows by owner; numbers of rows received and sent.
        halo_scale: factor of everything received; above 1 in a thinned plan, in place of what is left out.
        edge_norms: factors on every local and, unless None, on every halo entry; None for no factors.
        overlaps: whether messages overlap with this rank's computing.
        total_items: rows and sums that all ranks send in an exchange by covers, None without covers.
        is_fixed: whether it is used in many epochs, so that separate patterns for each peer pay off.
    """

    overlaps = True
    halo_scale = 1.0
    edge_norms: tuple[Tensor, Tensor | None] | None = None
    is_fixed = True
    total_items: int | None = None

    def __init__(
        self,
        part: Part,
        transport: Transport,
        ledger: Ledger,
        wire: Wire | None = None,
        *,
        items: Items | None = None,
    ) -> None:
        if part.num_parts != transport.size or part.rank != transport.rank:
            raise ShoalError(
                f"part {part.rank} of {part.num_parts} was given to rank {transport.rank} of {transport.size}: "
                "start as many ranks as there are parts"
            )
        self.part = part
        self.transport = transport
        self.overlaps = self.overlaps and not transport.needs_progress
        self.ledger = ledger
        self.wire = Wire() if wire is None else wire
        self.items = items
        self.halo_offsets, self.num_halo, self.num_sent = part.halo_offsets, part.num_halo, part.num_sent
        self.halo_spans = list_spans(part.halo_offsets, part.rank)
        self.send_spans = list_spans(part.send_offsets, part.rank)

    @cached_property
    def send_rows(self) -> Tensor:
        """Local rows to send, by receiver."""
        return torch.from_numpy(np.ascontiguousarray(self.part.send_rows, np.int64))

    @cached_property
    def returning(self) -> Adjacency:
        """Operator that adds row k of the returned gradients to the local rows that message row k was made of."""
        return collect_columns(self.part.send_rows, self.part.num_local)

    @cached_property
    def send_ids(self) -> np.ndarray:
        """An id for each of the rows sent, int64."""
        return np.ascontiguousarray(self.part.n_id[self.part.send_rows], np.int64)

    @cached_property
    def halo_ids(self) -> np.ndarray:
        """An id for each of the rows received, int64."""
        return np.ascontiguousarray(self.part.halo_id, np.int64)

    @property
    def num_received(self) -> int:
        """Rows, or rows and sums, received in one exchange."""
        return self.num_halo if self.items is None else len(self.items.ids)

    def thinned(
        self,
        part: Part,
        *,
        halo_scale: float = 1.0,
        edge_norms: tuple[Tensor, Tensor | None] | None = None,
        items: Items | None = None,
    ) -> HaloPlan:
        """The plan of a part with fewer rows, entries or items; every rank makes one at the same time."""
        plan = HaloPlan(part, self.transport, self.ledger, self.wire, items=items)
        plan.halo_scale, plan.edge_norms = halo_scale, edge_norms
        plan.is_fixed = False
        return plan

    @property
    def num_messages(self) -> int:
        """Messages this rank sends in a forward exchange."""
        return len(self.send_spans)

    def start_forward(self, h: Tensor, layer: int) -> HaloExchange:
        """Start sending the boundary rows of h (num_local, f); halo rows arrive in the exchange's `rows`."""
        exchange = self.wire.start(self, FORWARD, layer, h.shape[1], h.dtype)
        for q, a, b in self.send_spans:
            self.pack(h, q, a, b, exchange.outgoing[a:b])
            exchange.send(q, a, b)
        return exchange

    def pack(self, h: Tensor, peer: int, first: int, last: int, out: Tensor) -> None:
        """Fill `out` with the message to a peer: rows first … last-1 of those sent."""
        take_rows(h, self.send_rows[first:last], out)

    def start_backward(self, width: int, dtype: torch.dtype, layer: int) -> HaloExchange:
        """Start receiving the gradients of rows sent; the caller sends those of rows received."""
        return self.wire.start(self, BACKWARD, layer, width, dtype)

    def enter(self, layer: int, direction: str) -> None:
        """Record the start of an exchange."""
        self.ledger.begin(layer, direction)
        self.transport.phase = (
            f"the {direction} exchange of layer {layer}" if layer else "the exchange of features"
        )


def list_spans(offsets: np.ndarray, rank: int) -> list[tuple[int, int, int]]:
    """(peer, first, last) for every peer whose span is not empty.

    The rank after this one comes first, so that not all ranks begin by sending to the same one.
    """
    spans = [(q, int(a), int(b)) for q, (a, b) in enumerate(pairwise(offsets)) if b > a]
    return sorted(spans, key=lambda span: (span[0] - rank) % (len(offsets) - 1))


def collect_columns(rows: np.ndarray, num_rows: int) -> Adjacency:
    """The pattern (num_rows × k) with a one at (rows[j], j), columns increasing in each row."""
    indptr = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=indptr[1:])
    columns = np.argsort(rows, kind="stable").astype(np.int32)
    return Adjacency(torch.from_numpy(indptr), torch.from_numpy(columns), len(rows), checked=True)


def take_rows(h: Tensor, rows: Tensor, out: Tensor) -> None:
    """`out[i] = h[rows[i]]`, rounded where out is bfloat16."""
    if out.dtype == h.dtype:
        torch.index_select(h.detach(), 0, rows, out=out)
    else:
        out.copy_(h.detach()[rows])
