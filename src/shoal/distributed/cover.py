"""CoverPlan: an exact exchange for linear aggregations that sends partial sums where they are fewer than rows.

A rank that needs many rows of an owner for few rows of its own receives sums of those rows instead. A minimum vertex cover
for each pair of ranks decides which rows are sent as rows and which in sums (`shoal.partitioning.cover`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from shoal.distributed.halo import HaloPlan, list_spans
from shoal.distributed.ledger import IDS, INPUT, Ledger
from shoal.distributed.transport import Transport
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor
from shoal.kernels.patterns import count_up, select_rows
from shoal.kernels.spmm import multiply
from shoal.partitioning.cover import Cover, count_items, cover_halo, list_cover
from shoal.partitioning.part import Part

_ORDER_BYTES = torch.tensor([8, 4, 4, 4])  # of an id, a sum's length, a row's place, a weight


@dataclass(frozen=True, eq=False)
class Items:
    """The items that a rank receives and sends by covers; an item is a row or a sum of rows.

    Attributes:
        ids: int64, of the items received: a row's node; -1 - (P · receiving node + owner) for a sum.
        offsets: int64 (P + 1,), where those of each owner begin.
        indptr, indices: the pattern (num_local × received) of what is added to each local row.
        send_ids, send_offsets: the same for the items sent, by receiver.
        send_indptr, send_indices: the pattern (sent × num_local) of the local rows that each item adds.
        values, send_values: weights of the entries of both patterns, None for 1.
    """

    ids: np.ndarray
    offsets: np.ndarray
    indptr: Tensor
    indices: Tensor
    send_ids: np.ndarray
    send_offsets: np.ndarray
    send_indptr: Tensor
    send_indices: Tensor
    values: Tensor | None = None
    send_values: Tensor | None = None

    def thin(self, kept: np.ndarray, sent: np.ndarray) -> Items:
        """Only the items `kept` of those received and `sent` of those sent, one bool for each."""
        number = np.cumsum(kept) - 1
        keep = as_tensor(kept)[self.indices.long()]
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), keep.cumsum(0)])[self.indptr]
        send_indptr, entries = select_rows(self.send_indptr, as_tensor(np.flatnonzero(sent)))
        return Items(
            self.ids[kept],
            count_before(kept)[self.offsets],
            indptr,
            as_tensor(number.astype(np.int32))[self.indices[keep].long()],
            self.send_ids[sent],
            count_before(sent)[self.send_offsets],
            send_indptr,
            self.send_indices[entries],
            None if self.values is None else self.values[keep],
            None if self.send_values is None else self.send_values[entries],
        )


def find_cover(part: Part) -> np.ndarray:
    """Which halo rows of a part are received as rows: as stored with it, or computed now."""
    if part.keep is not None:
        return part.keep
    return cover_halo(part.halo_indptr, part.halo_indices, part.halo_offsets)


def count_received(part: Part) -> np.ndarray:
    """(P,): rows and sums that a part receives from each owner by minimum covers."""
    return count_items(part.halo_indptr, part.halo_indices, part.halo_offsets, find_cover(part))


def exchange_items(part: Part, transport: Transport, ledger: Ledger) -> Items:
    """A rank's items; a collective call. Every rank sends the owners of its halo rows a list of the rows and sums it needs."""
    cover = list_cover(part.halo_indptr, part.halo_indices, part.halo_offsets, find_cover(part))
    ids = identify_items(cover, part.halo_id, part.n_id)
    sizes = {q: torch.empty(4, dtype=torch.int64) for q, _, _ in list_spans(part.send_offsets, part.rank)}
    orders = {q: _write_order(part, cover, ids, q) for q, _, _ in list_spans(part.halo_offsets, part.rank)}
    transport.phase = "the exchange of requested sums"
    told = {q: torch.tensor([len(one) for one in order]) for q, order in orders.items()}
    _tell(transport, ledger, sizes, told)
    heard = {q: torch.empty(int(size @ _ORDER_BYTES), dtype=torch.uint8) for q, size in sizes.items()}
    told = {
        q: as_tensor(np.concatenate([one.view(np.uint8) for one in order])) for q, order in orders.items()
    }
    _tell(transport, ledger, heard, told)
    sent = {q: _read_order(part, q, heard[q], sizes[q]) for q in sorted(heard)}
    counts = [len(sent[q][0]) if q in sent else 0 for q in range(part.num_parts)]
    send_ids, lengths, rows, send_weights = (
        torch.cat([torch.empty(0, dtype=dtype), *(one[field] for one in sent.values())])
        for field, dtype in enumerate((torch.int64, torch.int64, torch.int64, torch.float32))
    )
    weights = None
    if part.halo_weight is not None:
        own = part.halo_weight[cover.entries] if len(cover.entries) else np.empty(0, np.float32)
        weights = as_tensor(np.where(cover.entries >= 0, own, np.float32(1)))
    return Items(
        ids,
        cover.offsets,
        as_tensor(cover.indptr),
        as_tensor(cover.indices),
        send_ids.numpy(),
        np.cumsum([0, *counts]),
        count_up(lengths),
        rows.to(torch.int32),
        weights,
        None if weights is None else send_weights,
    )


def identify_items(
    cover: Cover, columns: np.ndarray, readers: np.ndarray, *, owner: int | None = None
) -> np.ndarray:
    """The ids of a cover's items, from the nodes of its columns and of its reading rows. Owned by `owner`; None: by the peers."""
    num_parts = len(cover.offsets) - 1
    ids = np.empty(len(cover.source), np.int64)
    ids[cover.is_row] = columns[cover.source[cover.is_row]]
    peers = np.repeat(np.arange(num_parts), np.diff(cover.offsets))[~cover.is_row]
    ids[~cover.is_row] = -1 - (
        readers[cover.source[~cover.is_row]] * num_parts + (peers if owner is None else owner)
    )
    return ids


def _write_order(part: Part, cover: Cover, ids: np.ndarray, q: int) -> list[np.ndarray]:
    """The request to owner q: ids of the items, number of rows in each sum, positions of all rows, and weights.

    Positions are those in q's list of rows to send: first of single rows, then of each sum's. Only weighted graphs have
    weights, those of the rows in sums.
    """
    a, b = cover.offsets[q], cover.offsets[q + 1]
    rows = cover.source[a:b][cover.is_row[a:b]]
    first = int((~cover.is_row[:a]).sum())
    starts = cover.sum_indptr[first : first + (b - a) - len(rows) + 1]
    entries = cover.sum_entries[starts[0] : starts[-1]]
    places = np.concatenate([rows, part.halo_indices[entries]]) - part.halo_offsets[q]
    weights = np.empty(0, np.float32) if part.halo_weight is None else part.halo_weight[entries]
    kinds = (np.int64, np.int32, np.int32, np.float32)
    content = zip((ids[a:b], np.diff(starts), places, weights), kinds)
    return [np.ascontiguousarray(one, dtype) for one, dtype in content]


def _read_order(part: Part, q: int, content: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(ids, number of rows in each item, these rows, their weights) of the items that rank q requests."""
    ids, sums, places, weights = content.split((sizes * _ORDER_BYTES).tolist())
    ids, sums, places = ids.view(torch.int64), sums.view(torch.int32).long(), places.view(torch.int32).long()
    lengths = torch.cat([sums.new_ones(len(ids) - len(sums)), sums])
    given = weights.view(torch.float32)
    return (
        ids,
        lengths,
        as_tensor(np.ascontiguousarray(part.send_rows, np.int64))[places + int(part.send_offsets[q])],
        torch.cat([torch.ones(len(places) - len(given)), given]),
    )


def _tell(
    transport: Transport, ledger: Ledger, receives: dict[int, Tensor], sends: dict[int, Tensor]
) -> None:
    ledger.begin(INPUT, IDS)
    exchange = transport.start(receives)
    for q, message in sends.items():
        exchange.send(q, message)
        ledger.count(INPUT, IDS, q, message.nbytes)
    for _ in exchange.arrivals():
        pass
    exchange.finish()


class CoverPlan(HaloPlan):
    """The messages of one kind of aggregation by covers: items in place of halo rows, made of boundary rows.

    Owners apply the column scales, so that received items are added unscaled.

    Args:
        rows: the plan of rows with items, whose wire it shares.
        column_scale: factor of each local row in the aggregation, None for 1.
    """

    def __init__(self, rows: HaloPlan, column_scale: Tensor | None) -> None:
        items = rows.items
        assert items is not None
        super().__init__(rows.part, rows.transport, rows.ledger, rows.wire)
        self.items: Items = items
        self.is_fixed, self.halo_scale = rows.is_fixed, rows.halo_scale
        self.halo_offsets, self.num_halo, self.num_sent = items.offsets, len(items.ids), len(items.send_ids)
        self.halo_ids, self.send_ids = items.ids, items.send_ids
        self.halo_spans = list_spans(items.offsets, self.part.rank)
        self.send_spans = list_spans(items.send_offsets, self.part.rank)
        made = Adjacency(
            items.send_indptr,
            items.send_indices,
            self.part.num_local,
            values=items.send_values,
            column_scale=column_scale,
            checked=True,
        )
        self._made = {q: made.slice_rows(a, b) for q, a, b in self.send_spans}
        self.returning = made.transpose()

    def pack(self, h: Tensor, peer: int, first: int, last: int, out: Tensor) -> None:
        if out.dtype == h.dtype:
            multiply(self._made[peer], h.detach(), out)
        else:
            out.copy_(multiply(self._made[peer], h.detach()))


def count_before(marks: np.ndarray) -> np.ndarray:
    """How many marks are set before each place, (n + 1,)."""
    counts = np.zeros(len(marks) + 1, np.int64)
    np.cumsum(marks, out=counts[1:])
    return counts
