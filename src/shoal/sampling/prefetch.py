"""Prefetcher: threads that draw batches ahead of the training loop. SubgraphLoader: batches for PyG models."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Annotated, Any, Protocol

from shoal.batch import Batch
from shoal.checks import MAX_THREADS
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.sampling.base import COUNT, Sampler, make_sampler
from shoal.sampling.full import FullSampler
from shoal.settings import AtLeast, Null, Range, check_settings

_THREAD_NAME = "shoal-sampler"


def gather_fields(batch: Batch) -> None:
    """Gather a batch's features and labels now, where this is called, instead of on first use."""
    if batch.graph.num_features:
        _ = batch.x
    if batch.graph.y is not None:
        _ = batch.y, batch.train_mask


class Draws(Protocol):
    """A Sampler, or what draws batches as one does."""

    def sample(self, k: int) -> Batch: ...


class Prefetcher(Iterator[Batch]):
    """Batches `start`, `start + 1`, … of a sampler in this order, drawn by `num_threads` threads.

    At most `capacity` batches are drawn and not yet taken (JPDC'21 algorithm 8: p_inter samplers fill a
    pool). Batch k is the same whichever thread draws it, so neither order nor content depends on the number
    of threads, and the position is just the next number: with epochs of B batches, `epoch · B`.

    Args:
        stop: the number after the last batch, None for no end.
        capacity: twice the threads if None.
        prepare: called with each batch in the drawing thread; gathers features and labels by default.

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


class SubgraphLoader:
    """Iterates over a sampler's batches as PyG users expect, for models that take `x` and `edge_index`.

    Each batch has `x` (dense), `edge_index`, `y`, `n_id`, `train_mask`, `node_norm`, `edge_norm`, and can
    be moved with nothing else to know. Every `for` loop is one more epoch; `len` is its number of batches.

    Args:
        data: the Graph or PyG `Data` that `sampler` was made for (only checked), or that it is to be made
            for: then `sampler` is a name and `options` are its settings.
        sampler: a Sampler, or the name of one.
        num_threads: sampling threads; 0 draws in the loop itself. The batches are the same.
        first_epoch: the epoch of the first loop; a resumed run gives the epochs it has done.
    """

    @check_settings
    def __init__(
        self,
        data: Any,
        sampler: Sampler | str = "frontier",
        *,
        num_threads: Annotated[
            int, Range(0, MAX_THREADS), "sampling threads; 0 draws in the loop itself"
        ] = 1,
        first_epoch: Annotated[int, AtLeast(0), "epoch of the first loop"] = 0,
        **options: Any,
    ) -> None:
        graph = data if isinstance(data, Graph) else Graph.from_pyg(data)
        if isinstance(sampler, str):
            sampler = make_sampler(sampler, graph, **options)
        elif options:
            raise ShoalError(f"{sorted(options)[0]} was given beside a made sampler: give it to the sampler")
        home = sampler.graph if sampler.graph.parent is None else sampler.graph.parent
        if home.num_nodes != graph.num_nodes:
            raise ShoalError(
                f"the sampler's graph has {home.num_nodes:,} nodes but data has {graph.num_nodes:,}: make the sampler for this graph"
            )
        if isinstance(sampler, FullSampler):  # its one batch is made dense: let that be the loader's own
            sampler = FullSampler(graph, setting=sampler.setting, seed=sampler.seed)
        blocks = sampler.sample(0).blocks
        if len(blocks) > 1 or blocks[0].num_rows != blocks[0].num_columns:
            raise ShoalError(
                f"sampler {sampler.name!r} makes one block per layer: a loader for edge_index models needs a subgraph sampler"
            )
        self.sampler = sampler
        self.num_threads = num_threads
        self.epoch = first_epoch

    def __repr__(self) -> str:
        return f"SubgraphLoader({self.sampler!r}, num_threads={self.num_threads}, epoch={self.epoch})"

    def __len__(self) -> int:
        return self.sampler.num_batches

    def __iter__(self) -> Iterator[Batch]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        return self._iterate(epoch)

    def _iterate(self, epoch: int) -> Iterator[Batch]:
        start, stop = epoch * len(self), (epoch + 1) * len(self)
        if self.num_threads == 0:
            for k in range(start, stop):
                batch = self.sampler.sample(k)
                prepare_for_pyg(batch)
                yield batch
            return
        with Prefetcher(
            self.sampler, start, stop, num_threads=self.num_threads, prepare=prepare_for_pyg
        ) as batches:
            yield from batches


def prepare_for_pyg(batch: Batch) -> None:
    """Features made dense, edges as PyG has them, in the calling thread."""
    gather_fields(batch)
    if batch.graph.num_features:
        batch.x = batch.dense_x
    _ = batch.edge_index, batch.n_id
