"""RowFile: rows of a matrix on disk, read by number in the background, without mapping the file."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from shoal.array_files import check_same_file
from shoal.errors import ShoalError
from shoal.kernels.jit import new_counter
from shoal.kernels.pread import (
    BLOCK,
    DONE,
    EVENT_WORDS,
    HAS_QUEUES,
    REQUEST_WORDS,
    close_queue,
    merge_rows,
    open_queue,
    read_queued,
    read_runs,
)

READER = "shoal-reader"
_GAP = 4 * BLOCK  # bytes between rows that are read rather than starting another read
_RUN = 1 << 18  # bytes of a read, at most
_QUEUED_RUN = 1 << 16  # bytes of a queued read, at most
_QUEUED = 16  # reads in a queue per thread of `num_threads`
_DEEPEST = 256  # reads in a queue, at most
_QUEUES = 2  # queues, each with the reads of one batch


def count_buffers(row_bytes: int, num_threads: int, direct: bool) -> int:
    """Bytes of the buffers of reads in flight, at most, without the rows that are returned."""
    own = num_threads * _find_longest(row_bytes, _RUN)
    if not (direct and HAS_QUEUES):
        return own
    return max(own, _QUEUES * _find_depth(num_threads) * _find_longest(row_bytes, _QUEUED_RUN))


def _find_longest(row_bytes: int, run: int) -> int:
    """Bytes of the longest read: a row may begin and end inside a block."""
    return max(run, row_bytes // BLOCK * BLOCK + 2 * BLOCK)


def _find_depth(num_threads: int) -> int:
    return min(_QUEUED * num_threads, _DEEPEST)


class RowFile:
    """Reads rows of a memory-mapped array by their numbers.

    Rows are sorted, nearby rows share one read, and `num_threads` threads read in parallel. With `direct` the page cache is
    bypassed if the file system supports it. Reads are then queued (Linux AIO), many in one call, which takes a fraction of
    the CPU time of threads that sleep for each read. If the system has no such queues, threads read.

    Attributes:
        row_bytes: bytes of a row.
        is_direct: whether the page cache is bypassed.
    """

    def __init__(self, array: np.memmap, *, num_threads: int = 8, direct: bool = False) -> None:
        self.path = Path(str(array.filename))
        self.row_bytes = array.shape[1] * array.itemsize
        self.num_rows = len(array)
        self._offset = int(array.offset)
        self._local = threading.local()
        self._num_threads = num_threads
        self._file, self.is_direct = _open(self.path, direct)
        try:
            check_same_file(array, self._file, self.path)
        except ShoalError:
            os.close(self._file)
            raise
        self._queues = self._open_queues() if self.is_direct and HAS_QUEUES else []
        self._idle = list(self._queues)
        self._longest = _find_longest(self.row_bytes, _QUEUED_RUN if self._queues else _RUN)
        self._pool = ThreadPoolExecutor(len(self._queues) or num_threads, READER)

    def _open_queues(self) -> list[_Queue]:
        """The queues; an empty list if the system does not grant all of them."""
        longest = _find_longest(self.row_bytes, _QUEUED_RUN)
        queues = [_Queue(_find_depth(self._num_threads), longest) for _ in range(_QUEUES)]
        if all(queue.is_open for queue in queues):
            return queues
        for queue in queues:
            queue.close()
        return []

    def start(self, rows: np.ndarray) -> Reading:
        """Start reading `rows`, given in any order."""
        is_sorted = bool((rows[1:] >= rows[:-1]).all())
        places = np.arange(len(rows)) if is_sorted else np.argsort(rows, kind="stable")
        rows = rows if is_sorted else rows[places]
        starts = merge_rows(rows, self._offset, self.row_bytes, _GAP, self._longest)
        out = np.empty(len(rows) * self.row_bytes, np.uint8)
        counter = new_counter()
        job = (rows, places, starts, counter, out)
        if self._queues:
            return Reading(out, [self._pool.submit(self._read_queued, *job)])
        threads = min(self._num_threads, len(starts) - 1)
        return Reading(out, [self._pool.submit(self._read, *job) for _ in range(threads)])

    def close(self) -> None:
        """End the threads after the reads in flight, and close the file."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        while self._queues:
            self._queues.pop().close()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _read_queued(
        self, rows: np.ndarray, places: np.ndarray, starts: np.ndarray, counter: np.ndarray, out: np.ndarray
    ) -> int:
        """All runs by one thread; returns the bytes read. After a failure, reading again without a queue reports the error."""
        queue, where = self._idle.pop(), (self._offset, self.row_bytes)
        try:
            if queue.is_open:
                is_whole, total = read_queued(self._file, rows, places, starts, *where, *queue.arrays, out)
                if is_whole:
                    return int(total)
                queue.reopen()
        finally:
            self._idle.append(queue)
        return self._read(rows, places, starts, counter, out)

    def _read(
        self, rows: np.ndarray, places: np.ndarray, starts: np.ndarray, counter: np.ndarray, out: np.ndarray
    ) -> int:
        """One thread's share of the runs; returns the bytes read."""
        if not hasattr(self._local, "buffer"):
            self._local.buffer = np.frombuffer(mmap.mmap(-1, self._longest), np.uint8)  # begins at a page
        buffer, total = self._local.buffer, 0
        while True:
            where = (self._offset, self.row_bytes)
            run, read = read_runs(self._file, rows, places, starts, *where, counter, buffer, out)
            total += read
            if run == DONE:
                return int(total)
            self._explain(rows[starts[run]], rows[starts[run + 1] - 1], buffer)
            again = starts[run : run + 2] - starts[run]  # it can be read: the first read was interrupted
            part = slice(starts[run], starts[run + 1])
            run, read = read_runs(
                self._file, rows[part], places[part], again, *where, new_counter(), buffer, out
            )
            total += read
            if run != DONE:
                raise ShoalError(f"{self.path} could not be read in two attempts: check the disk")

    def _explain(self, first: int, last: int, buffer: np.ndarray) -> None:
        """Raise the error of reading rows `first` to `last`; does nothing if they can be read."""
        low = (self._offset + int(first) * self.row_bytes) // BLOCK * BLOCK
        end = self._offset + (int(last) + 1) * self.row_bytes
        got = low
        try:
            while got < end:
                view = memoryview(buffer)[got - low : -(-(end - low) // BLOCK) * BLOCK]  # type: ignore[arg-type]
                read = os.preadv(self._file, [view], got)
                if read == 0:
                    raise ShoalError(
                        f"{self.path} ends at byte {os.fstat(self._file).st_size:,} but row {last:,} ends at {end:,}: the file was truncated while it was in use, import the graph again"
                    )
                got += read
        except OSError as error:
            raise ShoalError(
                f"{self.path} cannot be read at byte {got:,} ({(error.strerror or '').lower()}): check the disk, or copy the graph to another"
            ) from None


class _Queue:
    """A queue of asynchronous reads with a buffer for each of them, used by one thread."""

    def __init__(self, depth: int, longest: int) -> None:
        buffer = np.frombuffer(mmap.mmap(-1, depth * longest), np.uint8).reshape(depth, longest)
        requests = np.zeros((depth, REQUEST_WORDS), np.int64)
        events = np.zeros((depth, EVENT_WORDS), np.int64)
        self.arrays = (int(open_queue(depth)), requests, events, buffer)

    @property
    def is_open(self) -> bool:
        return self.arrays[0] != 0

    def reopen(self) -> None:
        """Replace a queue with abandoned reads; closing it first ensures that none of them writes to a buffer later."""
        self.close()
        self.arrays = (int(open_queue(len(self.arrays[1]))), *self.arrays[1:])

    def close(self) -> None:
        """Close the queue after its reads in flight are done."""
        if self.is_open:
            close_queue(self.arrays[0])
            self.arrays = (0, *self.arrays[1:])


class Reading:
    """Rows that are being read."""

    def __init__(self, out: np.ndarray, asked: list[Future[int]]) -> None:
        self._out = out
        self._asked = asked

    def wait(self) -> tuple[np.ndarray, int]:
        """The bytes of the rows in the requested order, flat, and the number of bytes read."""
        return self._out, sum(one.result() for one in self._asked)


def _open(path: Path, direct: bool) -> tuple[int, bool]:
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
    try:
        if direct and hasattr(os, "O_DIRECT"):
            try:
                file = os.open(path, flags | os.O_DIRECT)
                if _can_read(file):
                    return file, True
                os.close(file)
            except OSError as error:
                if error.errno != errno.EINVAL:  # a file system without it
                    raise
        file = os.open(path, flags)
    except OSError as error:
        raise ShoalError(f"{path} cannot be opened ({(error.strerror or '').lower()}): put it back") from None
    if hasattr(os, "posix_fadvise"):
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)  # no read-ahead
    return file, False


def _can_read(file: int) -> bool:
    """Whether a file opened with O_DIRECT can be read; on some systems only opening it succeeds."""
    try:
        os.preadv(file, [mmap.mmap(-1, BLOCK)], 0)
    except OSError as error:
        return error.errno != errno.EINVAL  # other errors are reported when rows are read
    return True
