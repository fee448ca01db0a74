"""Building CSR patterns from entries in any order."""

from collections.abc import Iterable

import numpy as np
from numba import prange

from shoal.kernels.csr import count_rows, index_dtype, thread_count
from shoal.kernels.jit import kernel, parallel_kernel


def build_csr(
    chunks: Iterable[tuple[np.ndarray, np.ndarray]],
    num_rows: int,
    num_columns: int,
    *,
    symmetrize: bool = False,
) -> tuple[np.ndarray, np.ndarray, int]:
    """Sorted, duplicate-free CSR pattern of the entries (rows, columns) given in chunks.

    With `symmetrize` every entry stands for its mirror image too, so an entry and its mirror image are one
    edge given twice. Returns `indptr` (int64), `indices` and the number of repeated entries that were merged.
    Counting sort into place, then a parallel sort inside each row: no copy of all the edges is made beyond
    the chunks themselves.
    """
    chunks = list(chunks)
    given = sum(len(rows) for rows, _ in chunks)
    counts = np.zeros(num_rows + 1, np.int64)
    for rows, columns in chunks:
        count_rows(rows, counts)
        if symmetrize:
            _count_mirrored(rows, columns, counts)
    indptr = np.cumsum(counts)
    del counts
    indices = np.empty(int(indptr[-1]), index_dtype(num_columns))
    cursor = indptr[:-1].copy()
    while chunks:
        rows, columns = chunks.pop()
        _scatter(rows, columns, cursor, indices)
        if symmetrize:
            _scatter_mirrored(rows, columns, cursor, indices)
    del cursor
    if thread_count(len(indices)) > 1:
        _sort_all_rows(indptr, indices)
    else:
        _sort_rows(indptr, indices, 0, num_rows)
    kept, loops = _merge_duplicates(indptr, indices)
    if kept < len(indices):
        indices.resize(kept, refcheck=False)  # shrinks in place: no second copy of the edges
    distinct = (kept - loops) // 2 + loops if symmetrize else kept
    return indptr, indices, given - distinct


@kernel
def _count_mirrored(rows, columns, counts):
    for i in range(len(rows)):
        if rows[i] != columns[i]:
            counts[columns[i] + 1] += 1


@kernel
def _scatter(rows, columns, cursor, indices):
    for i in range(len(rows)):
        r = rows[i]
        indices[cursor[r]] = columns[i]
        cursor[r] += 1


@kernel
def _scatter_mirrored(rows, columns, cursor, indices):
    for i in range(len(rows)):
        r = columns[i]
        if rows[i] != r:
            indices[cursor[r]] = rows[i]
            cursor[r] += 1


@kernel
def _sort_rows(indptr, indices, first, last):
    for r in range(first, last):
        row = indices[indptr[r] : indptr[r + 1]]
        for i in range(1, len(row)):
            if row[i] < row[i - 1]:
                row.sort()
                break


@parallel_kernel
def _sort_all_rows(indptr, indices):
    for r in prange(len(indptr) - 1):
        _sort_rows(indptr, indices, r, r + 1)


@kernel
def _merge_duplicates(indptr, indices):
    """Drop repeats in place; returns how many entries and how many of them on the diagonal are left."""
    kept = 0
    loops = 0
    start = indptr[0]
    for r in range(len(indptr) - 1):
        end = indptr[r + 1]
        for k in range(start, end):
            c = indices[k]
            if k == start or c != indices[kept - 1]:
                indices[kept] = c
                kept += 1
                loops += c == r
        start = end
        indptr[r + 1] = kept
    return kept, loops
