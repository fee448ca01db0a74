"""Building, transposing and checking CSR patterns.

A pattern is (`indptr`, `indices`): the columns of row i are `indices[indptr[i]:indptr[i + 1]]`, strictly
increasing. Every function here is linear in the number of entries but for the sort inside each row.
"""

from collections.abc import Iterable

import numpy as np
from numba import prange

from shoal.kernels.jit import kernel, parallel_kernel


def index_dtype(num_columns: int) -> type[np.signedinteger]:
    """int32 where column numbers fit, int64 otherwise."""
    return np.int32 if num_columns <= np.iinfo(np.int32).max else np.int64


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
        _count(rows, counts)
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
    _sort_rows(indptr, indices)
    kept, loops = _merge_duplicates(indptr, indices)
    if kept < len(indices):
        indices.resize(kept, refcheck=False)  # shrinks in place: no second copy of the edges
    distinct = (kept - loops) // 2 + loops if symmetrize else kept
    return indptr, indices, given - distinct


def transpose_csr(
    indptr: np.ndarray, indices: np.ndarray, num_columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counting-sort transpose: (indptr, indices, permutation) with `values_t = values[permutation]`."""
    indptr_t = np.zeros(num_columns + 1, np.int64)
    _count(indices, indptr_t)
    np.cumsum(indptr_t, out=indptr_t)
    indices_t = np.empty(len(indices), index_dtype(len(indptr) - 1))
    permutation = np.empty(len(indices), index_dtype(len(indices)))
    _fill_transpose(indptr, indices, indptr_t[:-1].copy(), indices_t, permutation)
    return indptr_t, indices_t, permutation


def mirror_permutation(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray | None:
    """For a symmetric pattern, the position of (j, i) for each entry (i, j); None if not symmetric.

    One linear pass (JPDC'21 algorithm 6): entries are met in row order, so the mirror images of row j's
    entries are met in exactly the order in which row j lists them, and one cursor per row suffices.
    """
    permutation = np.empty(len(indices), index_dtype(len(indices)))
    return permutation if _match_mirrors(indptr, indices, indptr[:-1].copy(), permutation) else None


def is_symmetric(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether every entry (i, j) has its mirror image (j, i). Needs sorted rows."""
    return bool(_all_mirrored(indptr, indices, indptr[:-1].copy()))


def count_loops(indptr: np.ndarray, indices: np.ndarray) -> int:
    """The number of entries (i, i)."""
    return int(_count_diagonal(indptr, indices))


def first_bad_row(indptr: np.ndarray, indices: np.ndarray) -> int:
    """The first row whose columns are not strictly increasing, or -1."""
    return int(_first_unsorted(indptr, indices))


def induce_csr(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, scratch: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The subgraph induced by `nodes`, relabelled to 0…len(nodes)-1 in the order given.

    Returns (indptr, indices, edge_id): `edge_id[k]` is the entry of the large graph that entry k came from.
    `scratch` is an int32 array with one -1 per node of the large graph, and is left so. Rows come out
    sorted when `nodes` is increasing. Cost: the total degree of `nodes`.
    """
    sub_indptr = np.empty(len(nodes) + 1, np.int64)
    total = _degree_sum(indptr, nodes)
    sub_indices = np.empty(total, np.int32)
    edge_id = np.empty(total, index_dtype(len(indices)))
    size = _induce(indptr, indices, nodes, scratch, sub_indptr, sub_indices, edge_id)
    return sub_indptr, sub_indices[:size].copy(), edge_id[:size].copy()


@kernel
def _count(rows, counts):
    for i in range(len(rows)):
        counts[rows[i] + 1] += 1


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


@parallel_kernel
def _sort_rows(indptr, indices):
    for r in prange(len(indptr) - 1):
        row = indices[indptr[r] : indptr[r + 1]]
        for i in range(1, len(row)):
            if row[i] < row[i - 1]:
                row.sort()
                break


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


@kernel
def _fill_transpose(indptr, indices, cursor, indices_t, permutation):
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            c = indices[k]
            p = cursor[c]
            indices_t[p] = r
            permutation[p] = k
            cursor[c] = p + 1


@kernel
def _match_mirrors(indptr, indices, cursor, permutation):
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            c = indices[k]
            p = cursor[c]
            if p >= indptr[c + 1] or indices[p] != r:
                return False
            permutation[k] = p
            cursor[c] = p + 1
    return True


@kernel
def _all_mirrored(indptr, indices, cursor):
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            c = indices[k]
            p = cursor[c]
            if p >= indptr[c + 1] or indices[p] != r:
                return False
            cursor[c] = p + 1
    return True


@kernel
def _count_diagonal(indptr, indices):
    loops = 0
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            loops += indices[k] == r
    return loops


@kernel
def _first_unsorted(indptr, indices):
    for r in range(len(indptr) - 1):
        for k in range(indptr[r] + 1, indptr[r + 1]):
            if indices[k] <= indices[k - 1]:
                return r
    return -1


@kernel
def _degree_sum(indptr, nodes):
    total = 0
    for i in range(len(nodes)):
        total += indptr[nodes[i] + 1] - indptr[nodes[i]]
    return total


@kernel
def _induce(indptr, indices, nodes, scratch, sub_indptr, sub_indices, edge_id):
    for i in range(len(nodes)):
        scratch[nodes[i]] = i
    size = 0
    sub_indptr[0] = 0
    for i in range(len(nodes)):
        u = nodes[i]
        for k in range(indptr[u], indptr[u + 1]):
            local = scratch[indices[k]]
            if local >= 0:
                sub_indices[size] = local
                edge_id[size] = k
                size += 1
        sub_indptr[i + 1] = size
    for i in range(len(nodes)):
        scratch[nodes[i]] = -1
    return size
