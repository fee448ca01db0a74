"""Per-thread buffers of samplers, so that no batch allocates an array over all nodes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from shoal.graph import Graph
from shoal.kernels.bits import make_bitmap


class Buffers:
    """Buffers that a sampler borrows while it draws a batch."""

    graph: Graph
    _local: threading.local

    @contextmanager
    def borrow(self, name: str, make: Callable[[], Any]) -> Iterator[Any]:
        """A buffer of the calling thread, made on first use; the caller must leave it as it was.

        After an exception, such as Ctrl-C between marking and clearing, the buffer is dropped and a new one is made.

        Args:
            name: name of the buffer among those of the sampler.
            make: makes a new one.
        """
        kept = self._local.__dict__
        buffer = kept.pop(name, None)
        buffer = make() if buffer is None else buffer
        yield buffer
        kept[name] = buffer

    def borrow_bitmap(self) -> AbstractContextManager[np.ndarray]:
        """An empty set of nodes."""
        return self.borrow("bitmap", lambda: make_bitmap(self.graph.num_nodes))

    def borrow_numbers(self) -> AbstractContextManager[np.ndarray]:
        """An array with -1 for each node of the graph; the caller must leave it so."""
        return self.borrow("numbers", lambda: np.full(self.graph.num_nodes, -1, np.int32))

    def borrow_factor(self) -> AbstractContextManager[np.ndarray]:
        """An array with 0 for each node of the graph; the caller must leave it so."""
        return self.borrow("factor", lambda: np.zeros(self.graph.num_nodes))
