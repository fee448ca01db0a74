"""Layer-wise inference: which rows a layer computes, in which chunks, and where matrices of all nodes are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from shoal.block import Block
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.gather import gather_rows
from shoal.kernels.row_sets import Rows, grow_rows, take_operator_rows
from shoal.kernels.spmm import spmm
from shoal.label_columns import JoinedRows
from shoal.memory import read_ahead
from shoal.scratch import Matrix, Scratch, split_columns

Input = Tensor | Adjacency
Stored = Tensor | Adjacency | EncodedRows | JoinedRows  # a matrix of all nodes
ROWS_AT_ONCE = 1 << 15
ENTRIES_AT_ONCE = 1 << 21  # most entries of a chunk, unless a single row has more
_PICKED_BYTES = 12  # per entry of a selected row: its column and its position
_NODE_BYTES = 24  # degrees, scales, masks
_WORTH_READING = 1 << 18  # smallest read-ahead, in bytes
_WORTH_CHOOSING = 0.9  # above this share of the entries, all rows are computed


@dataclass
class RowSet:
    """The rows that are needed: those in `mask`, or all if None. They are `count` rows with `entries` edges."""

    count: int
    entries: int
    mask: Tensor | None = None


@dataclass
class LayerWork:
    """How one layer's rows are computed.

    Attributes:
        needed: the rows of the result, then the rows they read one hop away, two hops away, and so on.
        dtype: type of the weights.
    """

    needed: Sequence[RowSet]
    scratch: Scratch = field(default_factory=Scratch)
    rows_at_once: int = ROWS_AT_ONCE
    dtype: torch.dtype = torch.float32

    def chunks(self, num_rows: int, indptr: Tensor | None = None, hop: int = 0) -> Iterator[Rows]:
        """The rows needed `hop` hops away from the result, in increasing order.

        A chunk spans at most `rows_at_once` row numbers; with `indptr` it also has a limited number of entries.
        """
        mask = self.needed[hop].mask
        for start in range(0, num_rows, self.rows_at_once):
            end = min(start + self.rows_at_once, num_rows)
            rows: Rows = slice(start, end)
            if mask is not None:
                chosen = mask[start:end].nonzero()[:, 0] + start
                if len(chosen) == 0:
                    continue
                rows = chosen if len(chosen) < end - start else rows
            yield from [rows] if indptr is None else _split_by_entries(rows, indptr)

    def take(self, adj: Adjacency, hop: int = 0) -> Iterator[tuple[Rows, Adjacency]]:
        """The chunks of `chunks`, each with its rows of the operator."""
        for rows in self.chunks(adj.num_rows, adj.indptr, hop):
            start, end = _find_span(rows)
            first, last = int(adj.indptr[start]), int(adj.indptr[end])
            read_behind(adj.indices, first, last)
            yield rows, take_operator_rows(adj, rows)

    def multiply(
        self, adj: Adjacency, z: Tensor | list[Matrix], hop: int = 0
    ) -> Iterator[tuple[Rows, Tensor]]:
        """Yields (rows, those rows of `adj · z`)."""
        slices = [z] if isinstance(z, Tensor) else [one.tensor for one in z]
        return self.combine(adj, slices, lambda rows, part, number: spmm(part, slices[number]), hop)

    def combine(
        self,
        adj: Adjacency,
        slices: Sequence[Tensor],
        compute: Callable[[Rows, Adjacency, int], Tensor],
        hop: int = 0,
    ) -> Iterator[tuple[Rows, Tensor]]:
        """Yields (rows, results of `compute(rows, the operator's rows, number of the slice)` for all slices, side by side).

        One slice is finished for all rows before the next, so that only one must stay in memory.
        """
        if len(slices) == 1:
            for rows, part in self.take(adj, hop):
                yield rows, compute(rows, part, 0)
            return
        done = []
        for number in range(len(slices)):
            pieces = ((rows, compute(rows, part, number)) for rows, part in self.take(adj, hop))
            done.append(self.store(adj.num_rows, pieces))
        for rows in self.chunks(adj.num_rows, adj.indptr, hop):
            yield rows, torch.cat([one.tensor[rows] for one in done], dim=1)
        for one in done:
            one.close()

    def store(self, num_rows: int, pieces: Iterator[tuple[Rows, Tensor]]) -> Matrix:
        """A matrix filled with pieces."""
        made: Matrix | None = None
        for rows, values in pieces:
            if made is None:
                made = self.scratch.make(num_rows, values.shape[1], self.dtype)
            made.write(rows, values)
        made = made or self.scratch.make(num_rows, 0, self.dtype)
        made.settle()
        return made

    def project(self, h: Stored, weight: Tensor, hop: int = 1) -> AbstractContextManager[list[Matrix]]:
        """`h W` of the rows needed `hop` hops away, kept inside the `with` block. Rows of h are read in order."""
        pieces = (
            (rows, multiply_weight(read_rows(h, rows), weight))
            for rows in self.chunks(count_rows(h), hop=hop)
        )
        return self.hold(count_rows(h), weight.shape[1], pieces)

    def normalize(self, h: Stored, norm: Callable[[Input], Input]) -> Matrix:
        """`norm` of the rows of h that the layer reads, as a matrix of all rows."""
        pieces = (
            (rows, norm(read_rows(h, rows))) for rows in self.chunks(count_rows(h), hop=len(self.needed) - 1)
        )
        return self.store(count_rows(h), pieces)  # type: ignore[arg-type]

    @contextmanager
    def hold(
        self, num_rows: int, width: int, pieces: Iterator[tuple[Rows, Tensor]], unit: int = 1
    ) -> Iterator[list[Matrix]]:
        """A matrix filled with pieces, kept inside the `with` block.

        A matrix larger than `scratch.near` is split into slices of columns, each a multiple of `unit` wide.
        """
        near = self.scratch.near
        most = width if near is None else near // max(num_rows * self.dtype.itemsize, 1)
        slices = [(unit * a, unit * b) for a, b in split_columns(width // unit, most // unit)]
        made = [self.scratch.make(num_rows, end - start, self.dtype) for start, end in slices]
        try:
            for rows, values in pieces:
                for matrix, (start, end) in zip(made, slices):
                    matrix.write(rows, values[:, start:end])
            for matrix in made:
                matrix.settle()
            yield made
        finally:
            for matrix in made:
                matrix.close()

    def is_near(self, h: Stored) -> bool:
        """Whether rows of h can be read in any order: h is not encoded, and fits in `scratch.near` bytes."""
        near = self.scratch.near
        return isinstance(h, Tensor) and (near is None or h.numel() * h.element_size() <= near)


def count_chunk_bytes(layers: Iterable[tuple[int, int]], num_rows: int, num_entries: int) -> int:
    """Bytes that inference holds beside matrices of all nodes, from the (in, out) widths of its layers.

    They are a chunk of a layer's input, products and result, a second copy of the result while it is written, the
    selected rows of the pattern, and vectors and masks of all nodes.
    """
    widest = max((before + 4 * after for before, after in layers), default=0)
    rows, entries = min(num_rows, ROWS_AT_ONCE), min(num_entries, ENTRIES_AT_ONCE)
    return 4 * rows * widest + _PICKED_BYTES * entries + _NODE_BYTES * num_rows


def recall_plan(block: Block, hops: Sequence[int | None], rows: Tensor | None) -> list[list[RowSet]]:
    """`plan_rows`, cached for the last `rows`: each evaluation asks for the same split."""
    if rows is None:
        return plan_rows(block.indptr, block.indices, hops, None)
    known = block.planned
    if known is None or known[0] != hops or not torch.equal(known[1], rows):
        plan = plan_rows(block.indptr, block.indices, hops, rows)
        block.planned = known = (list(hops), rows.clone(), plan)
    found: list[list[RowSet]] = known[2]
    return found


def plan_rows(
    indptr: Tensor, indices: Tensor, hops: Sequence[int | None], rows: Tensor | None
) -> list[list[RowSet]]:
    """The rows each layer needs for the result in the mask `rows`: for each layer, hops + 1 sets.

    `hops` are the aggregations of each layer; None for one that always computes all rows. A set with most of the entries
    becomes all rows, because selecting rows costs more than it saves.
    """
    everything = RowSet(len(indptr) - 1, len(indices))
    plan = []
    current = everything
    if rows is not None:
        current = _measure(indptr, rows, everything)
    for count in reversed(hops):
        if count is None:
            current = everything
        layer = [current]
        for _ in range(count or 0):
            if current.mask is not None:
                current = _measure(indptr, grow_rows(indptr, indices, current.mask)[0], everything)
            layer.append(current)
        plan.append(layer)
    return plan[::-1]


def _measure(indptr: Tensor, mask: Tensor, everything: RowSet) -> RowSet:
    count = int(mask.sum())
    if count == everything.count:
        return everything
    chunk = 1 << 22
    entries = 0
    for start in range(0, len(mask), chunk):
        part = mask[start : start + chunk]
        entries += int((indptr[start : start + chunk + 1].diff() * part).sum())
    many = entries + count > _WORTH_CHOOSING * (everything.entries + everything.count)
    return everything if many else RowSet(count, entries, mask)


def _split_by_entries(rows: Rows, indptr: Tensor) -> Iterator[Rows]:
    """The chunk in pieces of at most ENTRIES_AT_ONCE entries, or of a single row."""
    if isinstance(rows, slice):
        if int(indptr[rows.stop] - indptr[rows.start]) <= ENTRIES_AT_ONCE:
            yield rows
            return
        counts = indptr[rows.start : rows.stop + 1].diff()
    else:
        counts = indptr[rows + 1] - indptr[rows]
        if int(counts.sum()) <= ENTRIES_AT_ONCE:
            yield rows
            return
    ends = counts.cumsum(0)
    first = 0
    while first < len(counts):
        before = int(ends[first - 1]) if first else 0
        last = max(int(torch.searchsorted(ends, before + ENTRIES_AT_ONCE, right=True)), first + 1)
        if isinstance(rows, slice):
            yield slice(rows.start + first, rows.start + last)
        else:
            yield rows[first:last]
        first = last


def multiply_weight(h: Input, weight: Tensor) -> Tensor:
    """`h W` for dense features, or for sparse ones without making them dense. W is (f_in, f_out)."""
    return spmm(h, weight) if isinstance(h, Adjacency) else h @ weight


def _find_span(rows: Rows) -> tuple[int, int]:
    """(first, last + 1) of increasing rows."""
    return (rows.start, rows.stop) if isinstance(rows, slice) else (int(rows[0]), int(rows[-1]) + 1)


def read_behind(stored: Tensor, start: int, end: int) -> None:
    """Read ahead: ask the system to load as many rows after `end` as there are from `start` to `end`."""
    last = min(2 * end - start, len(stored))
    size = stored[:1].numel() * stored.element_size()
    if (last - end) * size >= _WORTH_READING and stored.is_contiguous() and stored.device.type == "cpu":
        read_ahead(stored.data_ptr() + end * size, (last - end) * size)


def read_rows(h: Stored, rows: Rows) -> Input:
    """`select_rows` of a chunk of increasing rows, with read-ahead of the next chunk if h is a mapped file."""
    if not isinstance(h, Adjacency | JoinedRows) and (isinstance(rows, slice) or len(rows)):
        read_behind(as_tensor(h.codes) if isinstance(h, EncodedRows) else h, *_find_span(rows))
    return select_rows(h, rows)


def select_rows(h: Stored, rows: Rows) -> Input:
    """Rows of dense or sparse features. A slice is a view, the full slice is h itself. Encoded rows are decoded."""
    if isinstance(h, JoinedRows):
        return h.take(rows)
    if isinstance(h, EncodedRows):
        return gather_rows(h, torch.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows)
    if not isinstance(rows, slice):
        return take_operator_rows(h, rows) if isinstance(h, Adjacency) else h[rows]
    start, end = rows.start, rows.stop
    if isinstance(h, Adjacency):
        return h.take_first(end) if start == 0 else h.slice_rows(start, end)
    return h if (start, end) == (0, h.shape[0]) else h[start:end]


def count_rows(h: Stored) -> int:
    """Rows of a dense or sparse matrix."""
    return h.num_rows if isinstance(h, Adjacency) else h.shape[0]
