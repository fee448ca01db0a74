"""Reading rows of a file by number without the GIL: rows near each other in one read, a thread taking read after read."""

import numpy as np
from numba import types

from shoal.kernels.jit import kernel, next_chunk

BLOCK = 4096  # reads begin and end at multiples of it, as O_DIRECT wants and as pages of a file are
DONE = -1

_pread = types.ExternalFunction(
    "pread", types.int64(types.int32, types.uint64, types.uint64, types.int64)
)  # (file, address, bytes, offset) → bytes read, or -1


@kernel
def merge_rows(rows, offset, row_bytes, gap, most):
    """Where in increasing `rows` each read begins, and the number of rows: rows whose blocks are at most `gap` bytes apart
    are one read, up to `most` bytes."""
    starts = np.empty(len(rows) + 1, np.int64)
    size, first, end = 0, 0, -1
    for i in range(len(rows)):
        low = (offset + np.int64(rows[i]) * row_bytes) // BLOCK * BLOCK
        high = -((-offset - np.int64(rows[i]) * row_bytes - row_bytes) // BLOCK) * BLOCK
        if size == 0 or low > end + gap or high - first > most:
            starts[size] = i
            size += 1
            first = low
        end = high
    starts[size] = len(rows)
    return starts[: size + 1]


@kernel
def read_runs(file, rows, places, starts, offset, row_bytes, counter, buffer, out):
    """Read runs of rows, as `merge_rows` made them, taking their numbers from `counter`, into row `places[i]` of `out`.

    `buffer` holds the longest run and begins at a multiple of BLOCK. Returns (run that could not be read, or DONE; bytes
    read).
    """
    total = 0
    while True:
        run = next_chunk(counter)
        if run >= len(starts) - 1:
            return DONE, total
        first, last = starts[run], starts[run + 1]
        low = (offset + np.int64(rows[first]) * row_bytes) // BLOCK * BLOCK
        needed = offset + (np.int64(rows[last - 1]) + 1) * row_bytes - low
        want = (needed + BLOCK - 1) // BLOCK * BLOCK
        got = 0
        while got < needed:
            read = _pread(
                file, np.uint64(buffer.ctypes.data) + np.uint64(got), np.uint64(want - got), low + got
            )
            if read <= 0:
                return run, total
            got += read
        total += got
        for i in range(first, last):
            start = offset + np.int64(rows[i]) * row_bytes - low
            target = places[i] * row_bytes
            out[target : target + row_bytes] = buffer[start : start + row_bytes]
