"""CSR patterns of more entries than memory holds: sorted in runs, merged on disk (external merge sort)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from shoal.errors import ShoalError
from shoal.kernels.csr import index_dtype
from shoal.kernels.merge import MAX_NUMBERS, drop_repeats, make_heap, merge_runs, pack_entries
from shoal.memory import memory_left
from shoal.progress import follow_work
from shoal.threads import available_cores
from shoal.workspace import Workspace, Writer

_MOST_AT_ONCE = 1 << 26  # entries sorted at once: more would only make Ctrl-C wait longer
_FEWEST_AT_ONCE = 1 << 12
_COLUMNS_AT_ONCE = 1 << 20
_KEY = 8  # bytes of an entry in a run


class RunSorter:
    """External merge sort of entries in any order. `merge` returns their pattern like `build_csr`, in files of `place`.

    Memory: a quarter of the free budget, first for sorting runs, then for merging them.
    I/O: 8 bytes per entry are written to the file of runs and read once; then the entry's column is written.
    """

    def __init__(self, place: Workspace, num_rows: int, *, symmetrize: bool, expected: int = 0) -> None:
        if num_rows >= MAX_NUMBERS:
            raise ShoalError(f"the graph has {num_rows:,} nodes: expected fewer than {MAX_NUMBERS:,}")
        self.place = place
        self.num_rows = num_rows
        self.symmetrize = symmetrize
        self.index = np.dtype(index_dtype(num_rows))
        entries = expected * (2 if symmetrize else 1)
        place.require(entries * (_KEY + self.index.itemsize) + 8 * num_rows, f"sorting {entries:,} entries")
        fits = min(memory_left() // (4 * _KEY), _MOST_AT_ONCE)
        self.keys = np.empty(max(fits, _FEWEST_AT_ONCE), np.uint64)
        self.size = self.given = 0
        self.ends = [0]  # of the runs in their file
        self.path = place.folder / "runs"
        self._file = place.opened.enter_context(open(self.path, "w+b", buffering=0))  # noqa: SIM115

    def add(self, rows: np.ndarray, columns: np.ndarray) -> None:
        """Add entries; full buffers are written as sorted runs."""
        done = 0
        while done < len(rows):
            done, self.size = pack_entries(rows, columns, self.symmetrize, done, self.keys, self.size)
            if done < len(rows):
                self._write_runs()
        self.given += len(rows)

    def merge(self) -> tuple[np.ndarray, np.ndarray, int]:
        """`indptr`, `indices`, both mapped, and the number of repeated entries that were merged."""
        self._write_runs()
        total = self.ends[-1]
        self.place.require(total * self.index.itemsize + 8 * self.num_rows, f"merging {total:,} entries")
        indptr = self.place.new_array("indptr", (self.num_rows + 1,), np.int64)
        indices = self.place.new_writer("indices", self.index)
        loops = self._merge_into(indptr, indices)
        self._file.close()
        self.path.unlink()
        sum_counts(indptr)
        kept = indices.written
        distinct = (kept - loops) // 2 + loops if self.symmetrize else kept
        return indptr, indices.finish(), self.given - distinct

    def _write_runs(self) -> None:
        """Sort the buffered entries, in as many runs as there are cores, and write them."""
        if not self.size:
            return
        pieces = np.array_split(self.keys[: self.size], available_cores())
        with ThreadPoolExecutor(len(pieces)) as pool:
            list(pool.map(np.ndarray.sort, pieces))
        for piece in pieces:
            kept = piece[: drop_repeats(piece)]
            self._write(kept.view(np.uint8).data)
            if len(kept):
                self.ends.append(self.ends[-1] + len(kept))
        self.size = 0

    def _write(self, content: memoryview) -> None:
        while content:
            content = content[self._file.write(content) :]

    def _merge_into(self, counts: np.ndarray, indices: Writer) -> int:
        """Append the merged columns to `indices` and count them by row; returns how many are on the diagonal."""
        num_runs = len(self.ends) - 1
        if not num_runs:
            return 0
        if num_runs > len(self.keys):
            self.keys = np.empty(num_runs, np.uint64)
        block = len(self.keys) // num_runs
        heads = self.keys[: num_runs * block].reshape(num_runs, block)
        places, ends = np.array(self.ends[:-1], np.int64), np.array(self.ends[1:], np.int64)
        at, filled = np.zeros(num_runs, np.int64), np.zeros(num_runs, np.int64)
        more = np.ones(num_runs, np.bool_)

        def read_on(run: int) -> None:
            count = min(block, int(ends[run] - places[run]))
            self._file.seek(int(places[run]) * _KEY)
            got = self._file.readinto(heads[run, :count].view(np.uint8).data)
            assert got == count * _KEY
            places[run] += count
            at[run], filled[run], more[run] = 0, count, places[run] < ends[run]

        for run in range(num_runs):
            read_on(run)
        heap = np.arange(num_runs)
        make_heap(heads, at, heap)
        last = np.full(1, np.iinfo(np.uint64).max, np.uint64)
        columns = np.empty(min(_COLUMNS_AT_ONCE, self.ends[-1]), self.index)
        left, loops = num_runs, 0
        while left:
            written, found, left, run = merge_runs(heads, at, filled, more, heap, left, last, counts, columns)
            indices.append(columns[:written])
            loops += found
            if run >= 0:
                read_on(run)
            done = int(places.sum() - np.array(self.ends[:-1]).sum() - (filled - at).sum())
            follow_work("merging edges", done, self.ends[-1])
        return int(loops)


def sum_counts(indptr: np.ndarray, at_once: int = _COLUMNS_AT_ONCE) -> None:
    """Turn `[0, entries of row 0, entries of row 1, …]` into the places where rows begin, without a copy."""
    for start in range(0, len(indptr) - 1, at_once):
        part = indptr[start : start + at_once + 1]
        np.cumsum(part, out=part)
