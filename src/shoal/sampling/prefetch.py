"""Prefetcher: threads that draw batches ahead of the training loop. SubgraphLoader: batches for PyG models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from shoal.batch import Batch
from shoal.checks import check_positive
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler

_PATIENCE = 0.5  # seconds between looks at whether a drawing thread still lives


def gather_fields(batch: Batch) -> None:
    """Gather a batch's features and labels now, where this is called, instead of on first use."""
    if batch.graph.num_features:
        _ = batch.x
    if batch.graph.y is not None:
        _ = batch.y, batch.train_mask


class Prefetcher(Iterator[Batch]):
    """Batches `start`, `start + 1`, … of a sampler in this order, drawn by `num_threads` threads.

    At most `capacity` batches are drawn and not yet taken (JPDC'21 algorithm 8: p_inter samplers fill a
    pool). Batch k is the same whichever thread draws it, so neither order nor content depends on the number
    of threads, and the position is just the next number: with epochs of B batches, `epoch · B`.

    Args:
        stop: the number after the last batch, None for no end.
        capacity: twice the threads if None.
        prepare: called with each batch in the drawing thread; gathers features and labels by default.

    An exception in a thread is raised by `next` when its batch is due. `close`, leaving a `with` block or
    an exception ends the threads.
    """

    def __init__(
        self,
        sampler: Sampler,
        start: int = 0,
        stop: int | None = None,
        *,
        num_threads: int = 1,
        capacity: int | None = None,
        prepare: Callable[[Batch], None] = gather_fields,
    ) -> None:
        check_positive(num_threads=num_threads)
        if capacity is not None:
            check_positive(capacity=capacity)
        self.sampler = sampler
        self.position = start
        self._stop = stop
        self._drawn_up_to = start
        self._capacity = capacity or 2 * num_threads
        self._prepare = prepare
        self._pool: dict[int, Batch | BaseException] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._draw, name=f"shoal-sampler-{i}", daemon=True)
            for i in range(num_threads)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:  # Ctrl-C while a thread starts: nobody has the object to close it
            self.close()
            raise

    def __next__(self) -> Batch:
        if self._closed or (self._stop is not None and self.position >= self._stop):
            self.close()
            raise StopIteration
        with self._changed:
            while self.position not in self._pool:
                self._changed.wait(_PATIENCE)
                if not any(thread.is_alive() for thread in self._threads) and self.position not in self._pool:
                    raise ShoalError(f"the sampling threads ended before batch {self.position} was drawn")
            drawn = self._pool.pop(self.position)
            self.position += 1
            self._changed.notify_all()
        if isinstance(drawn, BaseException):
            self.close()
            raise drawn
        return drawn

    def close(self) -> None:
        """End the threads; each finishes the batch it is at."""
        with self._changed:
            self._closed = True
            self._pool.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.is_alive():
                thread.join()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _draw(self) -> None:
        while (k := self._next_number()) is not None:
            try:
                drawn: Batch | BaseException = self.sampler.sample(k)
                self._prepare(drawn)  # type: ignore[arg-type]
            except BaseException as error:
                drawn = error
            with self._changed:
                if not self._closed:
                    self._pool[k] = drawn
                self._changed.notify_all()
            if isinstance(drawn, BaseException):
                return

    def _next_number(self) -> int | None:
        """The next batch nobody draws yet, once there is room for it; None when there is nothing to do."""
        with self._changed:
            while not self._closed and self._drawn_up_to - self.position >= self._capacity:
                self._changed.wait()
            k = self._drawn_up_to
            if self._closed or (self._stop is not None and k >= self._stop):
                return None
            self._drawn_up_to += 1
            return k


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

    def __init__(
        self,
        data: Any,
        sampler: Sampler | str = "frontier",
        *,
        num_threads: int = 1,
        first_epoch: int = 0,
        **options: Any,
    ) -> None:
        from shoal.sampling.registry import make_sampler

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
        if num_threads:
            check_positive(num_threads=num_threads)
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
    if batch.graph.num_features and isinstance(batch.x, Adjacency):
        batch.x = make_dense(batch.x)
    _ = batch.edge_index, batch.n_id


def make_dense(x: Adjacency) -> Tensor:
    """Sparse features as a dense float32 matrix."""
    rows = torch.repeat_interleave(torch.arange(x.num_rows), x.indptr.diff())
    dense = torch.zeros(x.shape)
    dense[rows, x.indices.long()] = x.entry_weights(torch.float32)
    return dense
