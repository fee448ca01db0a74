"""HaloPlan: who sends which rows to whom, with buffers that are allocated once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.distributed.ledger import BACKWARD, EXPOSED, FORWARD, INPUT, Ledger
from shoal.distributed.transport import Exchange, Transport
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.partitioning.part import Part

if TYPE_CHECKING:
    from shoal.distributed.cover import Items


class HaloPlan:
    """A part's messages. Forward, boundary rows go out and halo rows come in; backward, their gradients return.

    Two buffers serve every layer and both directions, because an exchange ends before the next begins: `halo`
    holds one row for each halo row, `boundary` one for each row sent. They grow to the widest layer and stay.

    A plan of fewer rows, made for one epoch, is `thinned`: it uses the same buffers.

    Args:
        message_dtype: what rows travel as, None for as they are; bfloat16 halves the bytes of float32.
        items: what linear aggregations exchange instead of rows (`shoal.distributed.cover`), None for rows.

    Attributes:
        halo_offsets, num_halo, num_sent: what is received, by owner, and how much is sent.
        halo_scale: what everything received counts for; above 1 where some of it was left out of a thinned plan.
        edge_norms: factors on every local and, unless None, on every halo entry; None for no factors.
        overlaps: whether rows travel while this rank computes.
        total_items: rows and sums that all ranks send in an exchange by covers, None without covers.
        is_fixed: whether it serves many epochs, so that patterns made for each peer are worth their time.
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
        message_dtype: torch.dtype | None = None,
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
        self.message_dtype = message_dtype
        self.items = items
        self.halo_offsets, self.num_halo, self.num_sent = part.halo_offsets, part.num_halo, part.num_sent
        self.halo_spans = list_spans(part.halo_offsets, part.rank)
        self.send_spans = list_spans(part.send_offsets, part.rank)
        self._memory: dict[str, Tensor] = {}

    @cached_property
    def send_rows(self) -> Tensor:
        """Local rows to send, by receiver."""
        return torch.from_numpy(np.ascontiguousarray(self.part.send_rows, np.int64))

    @cached_property
    def returning(self) -> Adjacency:
        """Column k of this operator adds row k of what comes back to the local rows it was made of."""
        return collect_columns(self.part.send_rows, self.part.num_local)

    @property
    def num_received(self) -> int:
        """Rows, or rows and sums, that come in one exchange."""
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
        plan = HaloPlan(part, self.transport, self.ledger, self.message_dtype, items=items)
        plan._memory = self._memory
        plan.halo_scale, plan.edge_norms = halo_scale, edge_norms
        plan.is_fixed = False
        return plan

    @property
    def num_messages(self) -> int:
        """Messages this rank sends in a forward exchange."""
        return len(self.send_spans)

    def buffer(self, name: str, num_rows: int, width: int, dtype: torch.dtype) -> Tensor:
        """The first rows of a buffer as a matrix, its content arbitrary."""
        wanted = num_rows * width * dtype.itemsize
        if name not in self._memory or self._memory[name].numel() < wanted:
            self._memory[name] = torch.empty(wanted, dtype=torch.uint8)
        return self._memory[name][:wanted].view(dtype).view(num_rows, width)

    def halo_buffer(self, width: int, dtype: torch.dtype, layer: int) -> Tensor:
        return self.buffer("halo", self.num_halo, width, self._travel_dtype(dtype, layer))

    def boundary_buffer(self, width: int, dtype: torch.dtype, layer: int) -> Tensor:
        return self.buffer("boundary", self.num_sent, width, self._travel_dtype(dtype, layer))

    def release(self) -> None:
        """Let go of buffers that input features, wider than any layer, have grown."""
        self._memory.clear()

    def start_forward(self, h: Tensor, layer: int) -> HaloExchange:
        """Send the boundary rows of h (num_local, f); the halo rows come into `halo`."""
        halo = self.halo_buffer(h.shape[1], h.dtype, layer)
        boundary = self.boundary_buffer(h.shape[1], h.dtype, layer)
        self._enter(layer, FORWARD)
        exchange = self.transport.start({q: halo[a:b] for q, a, b in self.halo_spans})
        for q, a, b in self.send_spans:
            self.pack(h, q, a, b, boundary[a:b])
            self._send(exchange, layer, FORWARD, q, boundary[a:b])
        return HaloExchange(self, exchange, halo)

    def pack(self, h: Tensor, peer: int, first: int, last: int, out: Tensor) -> None:
        """Fill `out` with what goes to a peer, numbers first to last-1 of what is sent."""
        take_rows(h, self.send_rows[first:last], out)

    def start_backward(self, width: int, dtype: torch.dtype, layer: int) -> HaloExchange:
        """Be ready for the gradients of the boundary rows, which come into `boundary`; `send_back` sends ours."""
        boundary = self.boundary_buffer(width, dtype, layer)
        self._enter(layer, BACKWARD)
        exchange = self.transport.start({q: boundary[a:b] for q, a, b in self.send_spans})
        return HaloExchange(self, exchange, boundary)

    def send_back(self, exchange: HaloExchange, layer: int, peer: int, gradients: Tensor) -> None:
        """Send gradients of the halo rows that `peer` owns, a slice of the halo buffer."""
        self._send(exchange.exchange, layer, BACKWARD, peer, gradients)

    def _send(self, exchange: Exchange, layer: int, direction: str, peer: int, rows: Tensor) -> None:
        exchange.send(peer, rows)
        self.ledger.count(layer, direction, peer, rows.numel() * rows.element_size())

    def _enter(self, layer: int, direction: str) -> None:
        self.ledger.begin(layer, direction)
        self.transport.phase = (
            f"the {direction} exchange of layer {layer}" if layer else "the exchange of features"
        )

    def _travel_dtype(self, dtype: torch.dtype, layer: int) -> torch.dtype:
        """Features, exchanged once, travel as they are."""
        return dtype if self.message_dtype is None or layer == INPUT else self.message_dtype


class HaloExchange:
    """An exchange under way and the buffer its rows come into."""

    def __init__(self, plan: HaloPlan, exchange: Exchange, rows: Tensor) -> None:
        self.plan = plan
        self.exchange = exchange
        self.rows = rows

    def arrivals(self) -> Iterator[int]:
        """Yields each peer whose rows are here; only the waiting in between counts as exposed."""
        waiting = iter(self.exchange.arrivals())
        while True:
            with self.plan.ledger.timing(EXPOSED):
                peer = next(waiting, None)
            if peer is None:
                return
            yield peer

    def wait(self) -> Tensor:
        """All rows, once they are here and those sent have left."""
        for _ in self.arrivals():
            pass
        self.finish()
        return self.rows

    def finish(self) -> None:
        with self.plan.ledger.timing(EXPOSED):
            self.exchange.finish()

    def progress(self) -> None:
        self.exchange.progress()


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
    return Adjacency(torch.from_numpy(indptr), torch.from_numpy(columns), len(rows))


def take_rows(h: Tensor, rows: Tensor, out: Tensor) -> None:
    """`out[i] = h[rows[i]]`, rounded where out is bfloat16."""
    if out.dtype == h.dtype:
        torch.index_select(h.detach(), 0, rows, out=out)
    else:
        out.copy_(h.detach()[rows])
