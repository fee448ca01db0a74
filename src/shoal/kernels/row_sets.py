"""Subsets of a pattern's rows: the columns they read, taking some rows, and adding self loops as rows are taken."""

from __future__ import annotations

import torch
from torch import Tensor

from shoal.kernels.adjacency import Adjacency
from shoal.kernels.jit import kernel

Rows = slice | Tensor  # consecutive rows, or increasing row numbers, int64


class LoopedAdjacency(Adjacency):
    """An operator with a self loop in every row; missing loops are added when rows are taken.

    The stored pattern is not copied. The operator cannot be multiplied itself: `slice_rows`, `select_rows` and `whole`
    return operators that can.
    """

    def slice_rows(self, start: int, end: int) -> Adjacency:
        return self.select_rows(torch.arange(start, end))

    def select_rows(self, rows: Tensor) -> Adjacency:
        """The given rows, with their self loops."""
        indptr, indices = take_rows(self.indptr, self.indices, rows, loops=True)
        scale = None if self.row_scale is None else self.row_scale[rows]
        return Adjacency(
            indptr, indices, self.num_columns, row_scale=scale, column_scale=self.column_scale, checked=True
        )

    def whole(self) -> Adjacency:
        """All rows, with their self loops."""
        return self.select_rows(torch.arange(self.num_rows))


def take_operator_rows(adj: Adjacency, rows: Rows) -> Adjacency:
    """Some rows of an operator as an operator over the same columns; consecutive ones share its memory."""
    if isinstance(rows, slice):
        return adj.slice_rows(rows.start, rows.stop)
    if isinstance(adj, LoopedAdjacency):
        return adj.select_rows(rows)
    indptr, indices = take_rows(adj.indptr, adj.indices, rows)
    values = None
    if adj.values is not None:
        places = torch.repeat_interleave(adj.indptr[rows] - indptr[:-1], indptr.diff())
        values = adj.values[places + torch.arange(len(places))]
    return Adjacency(
        indptr,
        indices,
        adj.num_columns,
        values=values,
        row_scale=None if adj.row_scale is None else adj.row_scale[rows],
        column_scale=adj.column_scale,
        checked=True,
    )


def take_rows(indptr: Tensor, indices: Tensor, rows: Tensor, *, loops: bool = False) -> tuple[Tensor, Tensor]:
    """(indptr, indices) of the given rows; with `loops` each gets a self loop, in sorted order, if it has none."""
    taken = torch.empty(len(rows) + 1, dtype=torch.int64)
    size = int((indptr[rows + 1] - indptr[rows]).sum()) + (len(rows) if loops else 0)
    entries = torch.empty(size, dtype=indices.dtype)
    size = _take(indptr.numpy(), indices.numpy(), rows.numpy(), loops, taken.numpy(), entries.numpy())
    return taken, entries[:size]


def find_loops(indptr: Tensor, indices: Tensor) -> Tensor:
    """Which rows have a self loop, (n,) bool; rows must be sorted."""
    found = torch.zeros(len(indptr) - 1, dtype=torch.bool)
    _find_loops(indptr.numpy(), indices.numpy(), found.numpy())
    return found


def grow_rows(indptr: Tensor, indices: Tensor, rows: Tensor) -> tuple[Tensor, int]:
    """(mask of `rows` and of the columns they read, number of their entries); `rows` is a mask. One pass over the entries."""
    grown = rows.clone()
    return grown, int(_mark(indptr.numpy(), indices.numpy(), rows.numpy(), grown.numpy()))


@kernel
def _take(indptr, indices, rows, loops, taken, entries):
    size = 0
    taken[0] = 0
    for i in range(len(rows)):
        row = rows[i]
        placed = not loops
        for k in range(indptr[row], indptr[row + 1]):
            column = indices[k]
            if not placed and column >= row:
                placed = True
                if column > row:
                    entries[size] = row
                    size += 1
            entries[size] = column
            size += 1
        if not placed:
            entries[size] = row
            size += 1
        taken[i + 1] = size
    return size


@kernel
def _find_loops(indptr, indices, found):
    for row in range(len(indptr) - 1):
        low, high = indptr[row], indptr[row + 1]
        while low < high:
            middle = (low + high) >> 1
            if indices[middle] < row:
                low = middle + 1
            else:
                high = middle
        found[row] = low < indptr[row + 1] and indices[low] == row


@kernel
def _mark(indptr, indices, rows, grown):
    entries = 0
    for row in range(len(rows)):
        if rows[row]:
            for k in range(indptr[row], indptr[row + 1]):
                grown[indices[k]] = True
            entries += indptr[row + 1] - indptr[row]
    return entries
