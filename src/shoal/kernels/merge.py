"""Kernels of the external merge sort (`shoal.external`): packing entries, merging sorted runs.

An entry (row, column) is the number `row · 2³² + column`, so that runs of plain uint64 sort by rows, then columns.
"""

import numpy as np

from shoal.kernels.jit import kernel

MAX_NUMBERS = 2**32  # rows or columns that fit such a number
_S32 = np.uint64(32)
_LOW = np.uint64(MAX_NUMBERS - 1)


@kernel
def pack_entries(rows, columns, symmetrize, start, keys, size):
    """Append the entries from `start` on to `keys`, which holds `size` numbers; with `symmetrize` their mirror images too.

    Returns the first entry that did not fit and the new size. A diagonal entry is its own mirror image.
    """
    for i in range(start, len(rows)):
        if size + 2 > len(keys):
            return i, size
        r, c = np.uint64(rows[i]), np.uint64(columns[i])
        keys[size] = (r << _S32) | c
        size += 1
        if symmetrize and r != c:
            keys[size] = (c << _S32) | r
            size += 1
    return len(rows), size


@kernel
def drop_repeats(keys):
    """Move the distinct numbers of sorted `keys` to the front; returns how many there are."""
    kept = 0
    for i in range(len(keys)):
        if kept == 0 or keys[i] != keys[kept - 1]:
            keys[kept] = keys[i]
            kept += 1
    return kept


@kernel
def make_heap(heads, at, heap):
    """Make `heap` a heap of the runs, ordered by the current number of each."""
    for i in range(len(heap) // 2 - 1, -1, -1):
        _sift(heads, at, heap, len(heap), i)


@kernel
def _sift(heads, at, heap, size, i):
    """Sift the run at position i down until no run below it has a smaller current number."""
    run = heap[i]
    number = heads[run, at[run]]
    while 2 * i + 1 < size:
        child = 2 * i + 1
        below = heads[heap[child], at[heap[child]]]
        if child + 1 < size:
            other = heads[heap[child + 1], at[heap[child + 1]]]
            if other < below:
                child, below = child + 1, other
        if below >= number:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = run


@kernel
def merge_runs(heads, at, filled, more, heap, size, last, counts, columns):
    """Merge until `columns` is full or the buffer of a run is empty; repeated numbers are taken once.

    `heads[k, at[k]:filled[k]]` is the buffered part of run k; `more[k]` is whether its file has more. `heap` orders the
    `size` runs that are left by their current number. `last` is an array with the number taken last. Row r's entries are
    counted in `counts[r + 1]`.
    Returns (columns written, entries on the diagonal among them, runs left, the run to refill or -1).
    """
    written = 0
    loops = 0
    if size:
        _sift(heads, at, heap, size, 0)  # the first run may have been refilled
    while size and written < len(columns):
        run = heap[0]
        number = heads[run, at[run]]
        if number != last[0]:
            last[0] = number
            row, column = number >> _S32, number & _LOW
            columns[written] = column
            written += 1
            counts[np.int64(row) + 1] += 1
            loops += row == column
        at[run] += 1
        if at[run] == filled[run]:
            if more[run]:
                return written, loops, size, run
            size -= 1
            heap[0] = heap[size]
        if size:
            _sift(heads, at, heap, size, 0)
    return written, loops, size, -1
