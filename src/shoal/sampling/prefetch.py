"""Prefetcher: threads that draw batches ahead of the training loop."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Annotated, Protocol

from shoal.batch import Batch
from shoal.checks import MAX_THREADS
from shoal.errors import ShoalError
from shoal.sampling.base import COUNT
from shoal.settings import Null, Range, check_settings

_THREAD_NAME = "shoal-sampler"


def gather_fields(batch: Batch) -> None:
    """Gather a batch's features and labels in the calling thread, instead of on first use."""
    if batch.graph.num_features:
        _ = batch.x
    if batch.graph.y is not None:
        _ = batch.y, batch.train_mask


class Draws(Protocol):
    """A Sampler, or anything with its `sample`."""

    def sample(self, k: int) -> Batch:
        """Batch number `k`."""


class _Due:
    """A requested batch: the lock `arrived` is held until `outcome` is the batch, or the exception of drawing it.

    Wait by `with due.arrived`. Locks that are written in Python (Condition, Semaphore, Future) can stay held if Ctrl-C comes
    right after they are acquired; other threads then hang.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.outcome: Batch | BaseException | None = None
        self.arrived = threading.Lock()
        self.arrived.acquire()

    def answer(self, outcome: Batch | BaseException) -> None:
        self.outcome = outcome
        self.arrived.release()


_Tasks = SimpleQueue["_Due | None"]  # None ends a thread


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
        self._ahead: deque[_Due] = deque()  # batches `position`, `position + 1`, …
        self._tasks: _Tasks = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._end = weakref.finalize(self, _stop, self._tasks, num_threads)
        _open.add(self)
        try:
            for number in range(num_threads if stop is None else min(num_threads, stop - start)):
                thread = threading.Thread(
                    target=_serve,
                    args=(sampler, prepare, self._tasks),
                    name=f"{_THREAD_NAME}_{number}",
                    daemon=True,
                )
                thread.start()
                self._threads.append(thread)
            self._fill()
        except BaseException:  # Ctrl-C while a thread starts: nobody has the object to close it
            self.close()
            raise

    def __next__(self) -> Batch:
        if not self._ahead:  # closed, or `stop` is reached
            self.close()
            raise StopIteration
        due = self._ahead[0]
        with due.arrived:
            outcome = due.outcome
        if isinstance(outcome, BaseException):
            self.close()
            raise outcome
        assert outcome is not None
        self._ahead.popleft()
        self.position += 1
        self._fill()
        return outcome

    def close(self) -> None:
        """End the threads; each finishes the batch it is at."""
        self._end()
        self._ahead.clear()
        for thread in self._threads:
            if thread is not threading.current_thread():  # it cannot wait for itself
                thread.join()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _fill(self) -> None:
        """Request batches until `capacity` of them are ahead."""
        stop = self.position + self._capacity
        for k in range(
            self.position + len(self._ahead), stop if self._stop is None else min(stop, self._stop)
        ):
            due = _Due(k)
            self._tasks.put(due)
            self._ahead.append(due)


_open: weakref.WeakSet[Prefetcher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End the threads before the interpreter shuts down, which would crash them."""
    for prefetcher in list(_open):
        prefetcher.close()


def _stop(tasks: _Tasks, num_threads: int) -> None:
    """End the threads after their current batch; a caller that waits for a later one gets an error."""
    with suppress(Empty):
        while True:
            due = tasks.get_nowait()
            if due is not None:
                due.answer(ShoalError(f"batch {due.number} was requested from a closed prefetcher"))
    for _ in range(num_threads):
        tasks.put(None)


def _serve(sampler: Draws, prepare: Callable[[Batch], None], tasks: _Tasks) -> None:
    """Draw requested batches. It has no reference to the Prefetcher: a dropped one is collected, and its threads end."""
    while (due := tasks.get()) is not None:
        try:
            due.answer(_draw(sampler, prepare, due.number))
        except BaseException as error:  # raised to the caller that waits for the batch
            due.answer(error)
        del due


def _draw(sampler: Draws, prepare: Callable[[Batch], None], k: int) -> Batch:
    """Batch k, prepared."""
    batch = sampler.sample(k)
    prepare(batch)
    return batch
