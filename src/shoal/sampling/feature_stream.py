"""FeatureStream: a sampler's batches, whose features a thread reads from disk ahead of the step."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass
from itertools import count

import numpy as np
from torch import Tensor

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.memory import available_memory
from shoal.sampling.base import Sampler
from shoal.sampling.feature_cache import FeatureCache, FeatureCaching, Plan
from shoal.sampling.row_file import Reading, RowFile

STREAM = "shoal-features"
READING = 2  # batches being read while one is gathered
# Batches drawn ahead of the first, and added with each batch, so that the first does not wait for the whole window.
_FIRST_WINDOW, _GROWTH = 16, 4


@dataclass
class FeatureCounts:
    """Counts of feature reads.

    Attributes:
        rows, found: rows requested, and rows found in the cache.
        read, read_bytes: rows and bytes read from the file; bytes include gaps between rows of one read.
        wait_seconds: time that drawing a batch waited for its features.
    """

    rows: int = 0
    found: int = 0
    read: int = 0
    read_bytes: int = 0
    wait_seconds: float = 0.0

    def add(self, other: FeatureCounts) -> None:
        """Add the counts of another."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def to_record(self) -> dict[str, float]:
        """The counts as fields of an epoch's record."""
        return {f"feature_{name}": value for name, value in vars(self).items()}


class FeatureStream:
    """Batches `start`, `start + 1`, … of a sampler, each to be sampled once, whose features a thread reads ahead.

    The thread draws the nodes of the next `window` batches, plans which rows stay in the cache, starts reads of missing
    rows while it gathers other batches, and runs at most `ahead` batches ahead of `sample`. `sample` raises its exceptions
    when their batch is due. `close`, or dropping the object, ends the threads.
    """

    def __init__(
        self, sampler: Sampler, start: int, cache: FeatureCache, caching: FeatureCaching, *, ahead: int = 4
    ) -> None:
        self.sampler = sampler
        direct = cache.codes.nbytes > available_memory() if caching.direct is None else caching.direct
        self.file = RowFile(cache.codes, num_threads=caching.readers, direct=direct)  # type: ignore[arg-type]
        self._reader = _Reader(sampler, start, cache, self.file, ahead)
        self._thread = threading.Thread(target=self._reader.run, name=STREAM, daemon=True)
        self._end = weakref.finalize(self, self._reader.stop)
        self._counts: dict[int, FeatureCounts] = {}
        self._thread.start()

    def sample(self, k: int) -> Batch:
        """Batch number k with its features, once for each k; safe in any thread."""
        batch = self.sampler.sample(k)
        started = time.perf_counter()
        rows, x, counts = self._reader.take(k)
        counts.wait_seconds = time.perf_counter() - started
        if np.array_equal(batch.graph.find_features(batch.nodes)[1], rows):
            batch.x = x  # else `list_inputs` gave other nodes, and x is gathered from the memory map
        self._counts[k] = counts
        return batch

    def take_counts(self, k: int) -> FeatureCounts:
        """The counts of batch number k, after it was sampled; can be taken once."""
        return self._counts.pop(k)

    def close(self) -> None:
        """End the threads."""
        self._end()
        if threading.current_thread() is not self._thread:
            self._thread.join()


class _Reader:
    """The work of the thread. It has no reference to the FeatureStream: a dropped one is collected, and its threads end."""

    def __init__(self, sampler: Sampler, start: int, cache: FeatureCache, file: RowFile, ahead: int) -> None:
        self._sampler = sampler
        self._start = start
        self._cache = cache
        self._file = file
        self._ahead = ahead
        self._ready: dict[int, tuple[np.ndarray, Tensor, FeatureCounts]] = {}
        self._taken = 0
        self._error: BaseException | None = None
        self._is_stopped = False
        self._lock = threading.RLock()  # acquired directly, since a Condition is not safe under Ctrl-C
        self._changed = threading.Condition(self._lock)

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # raised to the caller that waits for the batch
            with self._lock:
                self._error = error
                self._changed.notify_all()
        finally:
            self._file.close()

    def stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            self._changed.notify_all()

    def take(self, k: int) -> tuple[np.ndarray, Tensor, FeatureCounts]:
        with self._lock:
            self._changed.wait_for(lambda: k in self._ready or self._error is not None or self._is_stopped)
            if k in self._ready:
                self._taken += 1
                self._changed.notify_all()
                return self._ready.pop(k)
            if self._error is not None:
                raise self._error
            raise ShoalError(f"batch {k} was requested from a closed feature stream")

    def _work(self) -> None:
        entered = self._start
        reading: deque[tuple[int, Plan, Reading]] = deque()
        for k in count(self._start):
            window = min(self._cache.window, _FIRST_WINDOW + _GROWTH * (k - self._start))
            while self._cache.num_entered <= window:
                if self._is_stopped:
                    return
                self._cache.enter(entered, self._list_rows(entered))
                entered += 1
            plan = self._cache.plan()
            reading.append((k, plan, self._file.start(plan.misses)))
            if len(reading) > READING and not self._finish(*reading.popleft()):
                return

    def _list_rows(self, k: int) -> np.ndarray:
        return self._sampler.graph.find_features(self._sampler.list_inputs(k))[1]

    def _finish(self, k: int, plan: Plan, reading: Reading) -> bool:
        """Gather a batch once its rows are read and make it available; returns False if the stream was stopped."""
        read, read_bytes = reading.wait()
        x = self._cache.take(plan, read)
        total, missed = len(plan.rows), len(plan.misses)
        counts = FeatureCounts(total, total - missed, missed, read_bytes)
        with self._lock:
            self._ready[k] = plan.rows, x, counts
            self._changed.notify_all()
            full = self._start + self._ahead
            self._changed.wait_for(lambda: self._is_stopped or k + 1 < full + self._taken)
            return not self._is_stopped
