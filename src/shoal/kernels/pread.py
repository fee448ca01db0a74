"""Reading rows of a file by number without the GIL: nearby rows in one read, many reads in flight."""

import platform
import sys

import numpy as np
from numba import types

from shoal.kernels.jit import kernel, next_chunk

BLOCK = 4096  # reads begin and end at multiples of it, as O_DIRECT and the page cache require
DONE = -1

_pread = types.ExternalFunction(
    "pread", types.int64(types.int32, types.uint64, types.uint64, types.int64)
)  # (file, address, bytes, offset) → bytes read, or -1
_syscall = types.ExternalFunction("syscall", types.int64(*[types.int64] * 6))

# System call numbers of io_setup, io_destroy, io_getevents, io_submit (Linux AIO, for files opened with O_DIRECT).
_NUMBERS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_SETUP, _DESTROY, _GET, _SUBMIT = _NUMBERS.get(platform.machine(), (-1,) * 4)
HAS_QUEUES = _SETUP >= 0 and sys.platform == "linux" and sys.byteorder == "little"
_MOST_FAILURES = 1000  # calls that failed, for instance because a signal interrupted them
REQUEST_WORDS, EVENT_WORDS = 8, 4
_DATA, _FILE, _ADDRESS, _BYTES, _PLACE = (
    0,
    2,
    3,
    4,
    5,
)  # words of a request; a file's number is in the upper half


@kernel
def merge_rows(rows, offset, row_bytes, gap, most):
    """The positions in increasing `rows` at which each read begins, and len(rows) at the end.

    Rows whose blocks are at most `gap` bytes apart share one read of up to `most` bytes.
    """
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
    """Read the runs of `merge_rows`, numbered by a shared `counter`; row i goes to row `places[i]` of `out`.

    `buffer` has the size of the longest run and begins at a multiple of BLOCK. Returns (the run that could not be read, or
    DONE; bytes read).
    """
    total = 0
    while True:
        run = next_chunk(counter)
        if run >= len(starts) - 1:
            return DONE, total
        low, needed = _find_run(rows, starts, run, offset, row_bytes)
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
        _copy_run(rows, places, starts, run, offset, row_bytes, buffer, low, out)


@kernel
def read_queued(file, rows, places, starts, offset, row_bytes, queue, requests, events, buffer, out):
    """Read all runs with one thread and asynchronous I/O: one read in flight per request, each with its row of `buffer`.

    Returns (whether all were read, bytes read). After a failure, `read_runs` finds the run and the cause.
    """
    depth = len(requests)
    addresses = np.empty(depth, np.int64)
    free = np.arange(depth)
    runs = np.empty(depth, np.int64)
    num_free, run, total, failures = depth, 0, 0, 0
    is_whole = True
    while (run < len(starts) - 1 and is_whole) or num_free < depth:
        count = 0
        while run < len(starts) - 1 and num_free > 0 and is_whole:
            num_free -= 1
            slot = free[num_free]
            low, needed = _find_run(rows, starts, run, offset, row_bytes)
            requests[slot, _DATA] = slot
            requests[slot, _FILE] = np.int64(file) << 32
            requests[slot, _ADDRESS] = np.int64(buffer[slot].ctypes.data)
            requests[slot, _BYTES] = (needed + BLOCK - 1) // BLOCK * BLOCK
            requests[slot, _PLACE] = low
            addresses[count] = np.int64(requests[slot].ctypes.data)
            runs[slot] = run
            count += 1
            run += 1
        sent = 0
        while sent < count:
            taken = _syscall(_SUBMIT, queue, count - sent, np.int64(addresses.ctypes.data) + 8 * sent, 0, 0)
            if taken <= 0:  # requests that were not accepted are free again
                for i in range(sent, count):
                    free[num_free] = (addresses[i] - np.int64(requests.ctypes.data)) // (8 * REQUEST_WORDS)
                    num_free += 1
                is_whole = False
                break
            sent += taken
        under_way = depth - num_free
        if under_way == 0:
            break
        least = min(under_way, max(depth // 2, 1))
        got = _syscall(_GET, queue, least, depth, np.int64(events.ctypes.data), 0)
        if got <= 0:
            failures += 1
            if failures > _MOST_FAILURES:
                return False, total
        for i in range(got):
            slot = events[i, _DATA]
            low, needed = _find_run(rows, starts, runs[slot], offset, row_bytes)
            if events[i, 2] < needed:
                is_whole = False
            else:
                total += events[i, 2]
                _copy_run(rows, places, starts, runs[slot], offset, row_bytes, buffer[slot], low, out)
            free[num_free] = slot
            num_free += 1
    return is_whole, total


@kernel
def _find_run(rows, starts, run, offset, row_bytes):
    """Where in the file a run's blocks begin, and the bytes from there to the end of its last row."""
    low = (offset + np.int64(rows[starts[run]]) * row_bytes) // BLOCK * BLOCK
    return low, offset + (np.int64(rows[starts[run + 1] - 1]) + 1) * row_bytes - low


@kernel
def _copy_run(rows, places, starts, run, offset, row_bytes, buffer, low, out):
    for i in range(starts[run], starts[run + 1]):
        start = offset + np.int64(rows[i]) * row_bytes - low
        target = places[i] * row_bytes
        out[target : target + row_bytes] = buffer[start : start + row_bytes]


@kernel
def open_queue(depth):
    """A queue for `depth` asynchronous reads; 0 if the system has none."""
    queue = np.zeros(1, np.int64)
    if _syscall(_SETUP, depth, np.int64(queue.ctypes.data), 0, 0, 0) != 0:
        return 0
    return queue[0]


@kernel
def close_queue(queue):
    """Close a queue of asynchronous reads."""
    return _syscall(_DESTROY, queue, 0, 0, 0, 0)
