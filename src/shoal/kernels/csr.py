"""Transposing, checking and cutting CSR patterns held in arrays; `shoal.kernels.build` makes them.

A pattern is (`indptr`, `indices`): the columns of row i are `indices[indptr[i]:indptr[i + 1]]`, strictly
increasing. Every function here is linear in the number of entries but for the sort inside each row.
"""

import threading

import numba
import numpy as np
from numba import prange

from shoal.kernels.jit import kernel, parallel_kernel

_MIN_PARALLEL_ENTRIES = 200_000
_MAX_MATCHED = 1 << 28  # entries up to which mirror images are looked up, by random access
_ROWS_AT_ONCE = 1 << 20


def index_dtype(num_columns: int) -> type[np.signedinteger]:
    """int32 where column numbers fit, int64 otherwise."""
    return np.int32 if num_columns <= np.iinfo(np.int32).max else np.int64


def transpose_csr(
    indptr: np.ndarray, indices: np.ndarray, num_columns: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Counting-sort transpose: (indptr, indices, permutation) with `values_t = values[permutation]`.

    Large patterns are transposed in parallel: each thread counts the columns of its own run of rows, and a
    prefix sum over (column, thread) tells every thread where its entries of each column go. The result does
    not depend on the number of threads.
    """
    indices_t = np.empty(len(indices), index_dtype(len(indptr) - 1))
    permutation = np.empty(len(indices), index_dtype(len(indices)))
    # Each thread needs one counter per column, so more threads than entries per column do not pay off.
    threads = min(thread_count(len(indices)), max(1, len(indices) // (num_columns + 1)))
    indptr_t = np.zeros(num_columns + 1, np.int64)
    if threads > 1:
        cursors = np.zeros((threads, num_columns), np.int64)
        bounds = _split_rows(indptr, threads)
        _transpose_parallel(indptr, indices, bounds, cursors, indptr_t, indices_t, permutation)
    else:
        count_rows(indices, indptr_t)
        np.cumsum(indptr_t, out=indptr_t)
        _fill_transpose(indptr, indices, indptr_t[:-1].copy(), indices_t, permutation)
    return indptr_t, indices_t, permutation


def mirror_permutation(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray | None:
    """For a symmetric pattern, the position of (j, i) for each entry (i, j); None if not symmetric.

    One linear pass (JPDC'21 algorithm 6): entries are met in row order, so the mirror images of row j's
    entries are met in exactly the order in which row j lists them, and one cursor per row suffices.
    In parallel every thread takes a run of rows; by symmetry its cursors start where row j first lists a
    column of that run, which a binary search in row j finds without counting anything.
    """
    permutation = np.empty(len(indices), index_dtype(len(indices)))
    threads = thread_count(len(indices))
    if threads > 1:
        bounds = _split_rows(indptr, threads)
        cursors = np.empty((threads, len(indptr) - 1), np.int64)
        matched = _match_parallel(indptr, indices, bounds, cursors, permutation)
    else:
        matched = _match_mirrors(indptr, indices, indptr[:-1].copy(), permutation)
    return permutation if matched else None


def thread_count(num_entries: int) -> int:
    """Threads worth using: only the main thread runs parallel kernels, and starting threads costs some µs."""
    if num_entries < _MIN_PARALLEL_ENTRIES or threading.current_thread() is not threading.main_thread():
        return 1
    return numba.get_num_threads()


def _split_rows(indptr: np.ndarray, parts: int) -> np.ndarray:
    """Bounds of `parts` runs of rows with about equal numbers of entries."""
    bounds = np.searchsorted(indptr, np.linspace(0, indptr[-1], parts + 1))
    bounds[0], bounds[-1] = 0, len(indptr) - 1
    return bounds


def is_symmetric(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether every entry (i, j) has its mirror image (j, i). Needs sorted rows.

    Patterns that may lie on disk are read once in order: two 64-bit sums of a hash over all entries are compared with
    those over their mirror images. Equal sums of different sets have a chance of 2⁻¹²⁸.
    """
    if len(indices) <= _MAX_MATCHED:
        return bool(_match_mirrors(indptr, indices, indptr[:-1].copy(), np.empty(0, np.int32)))
    sums = np.zeros(4, np.uint64)
    for start in range(0, len(indptr) - 1, _ROWS_AT_ONCE):
        sum_entries(indptr, indices, start, min(start + _ROWS_AT_ONCE, len(indptr) - 1), sums)
    return bool((sums[:2] == sums[2:]).all())


def count_diagonal(indptr: np.ndarray, indices: np.ndarray) -> int:
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


def add_diagonal(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pattern with entry (i, i) in every row i, once.

    Returns (indptr, indices, origin): `origin[k]` is the former position of entry k, -1 for an added entry.
    """
    n = len(indptr) - 1
    full_indptr = np.empty(n + 1, np.int64)
    full_indices = np.empty(len(indices) + n, indices.dtype)
    origin = np.empty(len(indices) + n, np.int64)
    size = _insert_diagonal(indptr, indices, full_indptr, full_indices, origin)
    return full_indptr, full_indices[:size], origin[:size]


@kernel
def _insert_diagonal(indptr, indices, full_indptr, full_indices, origin):
    size = 0
    full_indptr[0] = 0
    for r in range(len(indptr) - 1):
        placed = False
        for k in range(indptr[r], indptr[r + 1]):
            c = indices[k]
            if not placed and c >= r:
                placed = True
                if c > r:
                    full_indices[size] = r
                    origin[size] = -1
                    size += 1
            full_indices[size] = c
            origin[size] = k
            size += 1
        if not placed:
            full_indices[size] = r
            origin[size] = -1
            size += 1
        full_indptr[r + 1] = size
    return size


@kernel
def count_rows(rows, counts):
    """Add every row's number of entries to `counts`, shifted by one so that a running sum gives indptr."""
    for i in range(len(rows)):
        counts[rows[i] + 1] += 1


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
    """Whether all entries have a mirror image; its position is noted unless `permutation` is empty."""
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            c = indices[k]
            p = cursor[c]
            if p >= indptr[c + 1] or indices[p] != r:
                return False
            if len(permutation):
                permutation[k] = p
            cursor[c] = p + 1
    return True


@parallel_kernel
def _transpose_parallel(indptr, indices, bounds, cursors, indptr_t, indices_t, permutation):
    for t in prange(len(bounds) - 1):
        counts = cursors[t]
        for k in range(indptr[bounds[t]], indptr[bounds[t + 1]]):
            counts[indices[k]] += 1
    place = 0
    for c in range(len(indptr_t) - 1):
        for t in range(len(bounds) - 1):
            count = cursors[t, c]
            cursors[t, c] = place
            place += count
        indptr_t[c + 1] = place
    for t in prange(len(bounds) - 1):
        cursor = cursors[t]
        for r in range(bounds[t], bounds[t + 1]):
            for k in range(indptr[r], indptr[r + 1]):
                c = indices[k]
                p = cursor[c]
                indices_t[p] = r
                permutation[p] = k
                cursor[c] = p + 1


@parallel_kernel
def _match_parallel(indptr, indices, bounds, cursors, permutation):
    failed = 0
    for t in prange(len(bounds) - 1):
        cursor = cursors[t]
        for c in range(len(indptr) - 1):
            row = indices[indptr[c] : indptr[c + 1]]
            cursor[c] = indptr[c] + np.searchsorted(row, bounds[t])
        wrong = 0
        for r in range(bounds[t], bounds[t + 1]):
            for k in range(indptr[r], indptr[r + 1]):
                c = indices[k]
                p = cursor[c]
                if p < indptr[c + 1] and indices[p] == r:
                    permutation[k] = p
                    cursor[c] = p + 1
                else:
                    wrong += 1
        failed += wrong
    return failed == 0


@kernel
def sum_entries(indptr, indices, first, last, sums):
    """Add two hashes of every entry of some rows to `sums[:2]`, and of its mirror image to `sums[2:]`, modulo 2⁶⁴."""
    for r in range(first, last):
        for k in range(indptr[r], indptr[r + 1]):
            row, column = np.uint64(r), np.uint64(indices[k])
            entry, mirror = _hash_pair(row, column), _hash_pair(column, row)
            sums[0] += entry
            sums[1] += _scramble(entry)
            sums[2] += mirror
            sums[3] += _scramble(mirror)


@kernel
def _hash_pair(row, column):
    return _scramble((row << np.uint64(32)) ^ column ^ np.uint64(0x9E3779B97F4A7C15))


@kernel
def _scramble(z):
    """A bijection of 64 bits in which every input bit reaches every output bit."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


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
