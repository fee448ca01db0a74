"""Prefetcher: threads that draw batches ahead of the training loop."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Protocol

from shoal.batch import Batch
from shoal.checks import MAX_THREADS
from shoal.sampling.base import COUNT
from shoal.settings import Null, Range, check_settings

_THREAD_NAME = "shoal-sampler"


def gather_fields(batch: Batch) -> None:
    """Gather a batch's features and labels now, where this is called, instead of on first use."""
    if batch.graph.num_features:
        _ = batch.x
    if batch.graph.y is not None:
        _ = batch.y, batch.train_mask


class Draws(Protocol):
    """A Sampler, or what draws batches as one does."""

    def sample(self, k: int) -> Batch:
        """Batch number `k`."""


class Prefetcher(Iterator[Batch]):
    """Batches `start`, `start + 1`, … of a sampler in this order, drawn by `num_threads` threads.

    At most `capacity` batches are drawn and not yet taken (JPDC'21 algorithm 8: p_inter samplers fill a
    pool). Batch k is the same whichever thread draws it, so neither order nor content depends on the number
    of threads, and the position is just the next number: with epochs of B batches, `epoch · B`.

    Args:
        stop: the number after the last batch, None for no end.
        capacity: twice the threads if None.
        prepare: called with each batch in the drawing thread; gathers features and labels by default.
        sampler: draws the batches.
        start: number of the first batch.

    An exception in a thread is raised by `next` when its batch is due. `close`, leaving a `with` block, an
    exception or dropping the object ends the threads.
    """

    @check_settings
    def __init__(
        self,
        sampler: Draws,
        start: int = 0,
        stop: int | None = None,
        *,
        num_threads: Annotated[int, Range(1, MAX_THREADS), "threads that draw batches"] = 1,
        capacity: Annotated[
            int | None, COUNT, Null("twice the threads"), "batches drawn ahead, at most"
        ] = None,
        prepare: Callable[[Batch], None] = gather_fields,
    ) -> None:
        self.sampler = sampler
        self.position = start
        self._stop = stop
        self._capacity = capacity or 2 * num_threads
        self._prepare = prepare
        self._ahead: deque[Future[Batch]] = deque()  # batches `position`, `position + 1`, …
        self._pool = ThreadPoolExecutor(num_threads, _THREAD_NAME)
        self._end = weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        try:
            self._fill()
        except BaseException:  # Ctrl-C while a thread starts: nobody has the object to close it
            self.close()
            raise

    def __next__(self) -> Batch:
        if not self._ahead:  # closed, or `stop` is reached
            self.close()
            raise StopIteration
        due = self._ahead[0]
        if due.exception() is not None:
            self.close()
            return due.result()  # raises it
        self._ahead.popleft()
        self.position += 1
        self._fill()
        return due.result()

    def close(self) -> None:
        """End the threads; each finishes the batch it is at."""
        self._end.detach()
        self._ahead.clear()
        is_own = threading.current_thread().name.startswith(_THREAD_NAME)  # it cannot wait for itself
        self._pool.shutdown(wait=not is_own, cancel_futures=True)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fill(self) -> None:
        """Ask for as many batches ahead as there is room for."""
        stop = self.position + self._capacity
        for k in range(
            self.position + len(self._ahead), stop if self._stop is None else min(stop, self._stop)
        ):
            self._ahead.append(self._pool.submit(_draw, self.sampler, self._prepare, k))


def _draw(sampler: Draws, prepare: Callable[[Batch], None], k: int) -> Batch:
    """Batch k, prepared. Holds no Prefetcher, so that one nobody has any more is collected, and its threads end."""
    batch = sampler.sample(k)
    prepare(batch)
    return batch
