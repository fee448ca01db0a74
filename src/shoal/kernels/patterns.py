"""Operations on CSR patterns held in tensors, on any device: transposing, self loops, joining, lists of edges."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from shoal.kernels import csr
from shoal.kernels.arrays import as_tensor
from shoal.kernels.dispatch import implements, kernel_of
from shoal.kernels.jit import kernel

Pattern = tuple[Tensor, Tensor]


def transpose_pattern(indptr: Tensor, indices: Tensor, num_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """(indptr, indices, permutation) of the transpose: entry k of it is entry `permutation[k]` of this."""
    made: tuple[Tensor, Tensor, Tensor] = kernel_of("transpose_pattern", indices)(
        indptr, indices, num_columns
    )
    return made


def find_mirrors(indptr: Tensor, indices: Tensor) -> Tensor | None:
    """For a symmetric pattern, the position of (j, i) for each entry (i, j); None if not symmetric."""
    mirrors: Tensor | None = kernel_of("find_mirrors", indices)(indptr, indices)
    return mirrors


def add_diagonal(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The pattern with entry (i, i) in every row i, once.

    Returns (indptr, indices, origin): `origin[k]` is the former position of entry k, -1 for an added entry.
    """
    made: tuple[Tensor, Tensor, Tensor] = kernel_of("add_diagonal", indices)(indptr, indices)
    return made


def list_edges(indptr: Tensor, indices: Tensor) -> Tensor:
    """(2, nnz) int64: the column and the row of every entry, PyG's sources and targets."""
    edges: Tensor = kernel_of("list_edges", indices)(indptr, indices)
    return edges


def join_columns(left: Pattern, right: Pattern, num_left: int, num_right: int) -> Pattern:
    """The pattern `[left ‖ right]` of two with the same rows, `num_left` and `num_right` columns wide."""
    dtype = left[1].dtype if num_left + num_right < 1 << 31 else torch.int64
    indices: Tensor = kernel_of("join_columns", left[1])(left, right, num_left, dtype)
    return left[0] + right[0], indices


def row_of_entries(indptr: Tensor) -> Tensor:
    """The row of every entry, (nnz,) int64."""
    return torch.repeat_interleave(torch.arange(len(indptr) - 1, device=indptr.device), indptr.diff())


def select_rows(indptr: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """(indptr of the given rows, positions of their entries); the positions index a matrix's columns and values."""
    counts = indptr.diff()[rows]
    selected = count_up(counts)
    shift = torch.repeat_interleave(indptr[rows] - selected[:-1], counts)
    return selected, shift + torch.arange(len(shift), device=indptr.device)


def count_up(counts: Tensor) -> Tensor:
    """The `indptr` of rows with these numbers of entries."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


@implements("transpose_pattern")
def _transpose(indptr: Tensor, indices: Tensor, num_columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """A stable sort by column keeps the rows of each in order."""
    order = torch.argsort(indices, stable=True)
    transposed = count_up(torch.bincount(indices, minlength=num_columns))
    rows = row_of_entries(indptr)[order].to(_index_dtype(len(indptr) - 1))
    return transposed, rows, order.to(_index_dtype(len(indices)))


@implements("transpose_pattern", "cpu")
def _transpose_cpu(indptr: Tensor, indices: Tensor, num_columns: int) -> tuple[Tensor, ...]:
    return _as_tensors(csr.transpose_csr(indptr.numpy(), indices.numpy(), num_columns))


@implements("find_mirrors")
def _find_mirrors(indptr: Tensor, indices: Tensor) -> Tensor | None:
    transposed, columns, order = _transpose(indptr, indices, len(indptr) - 1)
    return (
        order if torch.equal(transposed, indptr) and torch.equal(columns, indices.to(columns.dtype)) else None
    )


@implements("find_mirrors", "cpu")
def _find_mirrors_cpu(indptr: Tensor, indices: Tensor) -> Tensor | None:
    found = csr.mirror_permutation(indptr.numpy(), indices.numpy())
    return None if found is None else as_tensor(found)


@implements("add_diagonal")
def _add_diagonal(indptr: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A missing self loop is inserted after the row's entries left of the diagonal."""
    rows = row_of_entries(indptr)
    numbers = torch.arange(len(indptr) - 1, device=indptr.device)
    loose = torch.ones_like(numbers, dtype=torch.bool)
    loose[rows[indices == rows]] = False
    numbers = numbers[loose]
    key = torch.cat([torch.stack([rows, indices.long()]), numbers.expand(2, -1)], dim=1)
    origin = torch.cat([torch.arange(len(indices), device=indptr.device), torch.full_like(numbers, -1)])
    by_column = torch.argsort(key[1], stable=True)
    order = by_column[torch.argsort(key[0, by_column], stable=True)]
    full = indptr + count_up(loose.long())
    return full, key[1, order].to(indices.dtype), origin[order]


@implements("add_diagonal", "cpu")
def _add_diagonal_cpu(indptr: Tensor, indices: Tensor) -> tuple[Tensor, ...]:
    return _as_tensors(csr.add_diagonal(indptr.numpy(), indices.numpy()))


@implements("list_edges")
def _list_edges(indptr: Tensor, indices: Tensor) -> Tensor:
    return torch.stack([indices.long(), row_of_entries(indptr)])


@implements("list_edges", "cpu")
def _list_edges_cpu(indptr: Tensor, indices: Tensor) -> Tensor:
    edges = torch.empty(2, len(indices), dtype=torch.int64)
    _fill_edges(indptr.numpy(), indices.numpy(), edges.numpy())
    return edges


@implements("join_columns")
def _join_columns(left: Pattern, right: Pattern, shift: int, dtype: torch.dtype) -> Tensor:
    indices = torch.empty(len(left[1]) + len(right[1]), dtype=dtype, device=left[1].device)
    for (indptr, columns), before, added in ((left, right[0][:-1], 0), (right, left[0][1:], shift)):
        places = torch.repeat_interleave(before, indptr.diff())
        places += torch.arange(len(columns), device=indices.device)
        indices[places] = columns.to(dtype) + added
    return indices


@implements("join_columns", "cpu")
def _join_columns_cpu(left: Pattern, right: Pattern, shift: int, dtype: torch.dtype) -> Tensor:
    indices = torch.empty(len(left[1]) + len(right[1]), dtype=dtype)
    _interleave_rows(*(part.numpy() for part in (*left, *right)), shift, indices.numpy())
    return indices


def _as_tensors(arrays: tuple[np.ndarray, ...]) -> tuple[Tensor, ...]:
    return tuple(as_tensor(array) for array in arrays)


def _index_dtype(num_columns: int) -> torch.dtype:
    return torch.int32 if csr.index_dtype(num_columns) is np.int32 else torch.int64


@kernel
def _fill_edges(indptr, indices, edges):
    for row in range(len(indptr) - 1):
        for k in range(np.uint64(indptr[row]), np.uint64(indptr[row + 1])):
            edges[0, k] = indices[k]
            edges[1, k] = row


@kernel
def _interleave_rows(left_indptr, left_indices, right_indptr, right_indices, shift, indices):
    count = 0
    for r in range(len(left_indptr) - 1):
        for k in range(left_indptr[r], left_indptr[r + 1]):
            indices[count] = left_indices[k]
            count += 1
        for k in range(right_indptr[r], right_indptr[r + 1]):
            indices[count] = right_indices[k] + shift
            count += 1
