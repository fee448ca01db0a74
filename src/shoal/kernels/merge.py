"""Sorted runs of entries, merged: the kernels of the builder that keeps entries on disk.

An entry (row, column) is the number `row · 2³² + column`, so that runs of plain uint64 sort by rows, then columns.
"""

import numpy as np

from shoal.kernels.jit import kernel

MAX_NUMBERS = 2**32  # rows or columns that such a number can tell apart
_S32 = np.uint64(32)
_LOW = np.uint64(MAX_NUMBERS - 1)


@kernel
def pack_entries(rows, columns, symmetrize, start, keys, size):
    """Entries from `start` on as numbers behind the first `size` of `keys`, mirror images too if `symmetrize`.

    Returns the first entry that found no room and the new size. A diagonal entry is its own mirror image.
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
    """Order the runs in `heap` by the number each is at."""
    for i in range(len(heap) // 2 - 1, -1, -1):
        _sift(heads, at, heap, len(heap), i)


@kernel
def _sift(heads, at, heap, size, i):
    """Let the run at place i sink until no run below it is at a smaller number."""
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
    """Merge until `columns` is full or a run needs to be read on; numbers that repeat are taken once.

    `heads[k, at[k]:filled[k]]` is what is in memory of run k, `more[k]` whether its file holds more; `heap` orders
    the `size` runs that are left by the number they are at, and `last` is the number taken last, as an array of one.
    Row r's entries are counted in `counts[r + 1]`.
    Returns how many columns were written, how many of them on the diagonal, the runs left, and the run to read on or -1.
    """
    written = 0
    loops = 0
    if size:
        _sift(heads, at, heap, size, 0)  # the first run may have been read on
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
