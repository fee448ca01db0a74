"""FeatureCache: a cache in memory of the feature rows that coming batches read soonest. FeatureCaching: its settings."""

from __future__ import annotations

import mmap
from collections import deque
from typing import Annotated, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.encoding import PLAIN, EncodedRows, flatten_codes
from shoal.kernels.slots import (
    enter_batch,
    grow_follow,
    keep_rows,
    make_slots,
    plan_batch,
    slots_bytes,
    take_cached,
)
from shoal.memory import memory_left
from shoal.settings import Choices, Null, Range, Share, check_settings

POLICIES = ("lookahead", "lru", "degree", "mapped")


class FeatureCaching:
    """How training reads features on disk. The batches do not depend on these settings."""

    @check_settings
    def __init__(
        self,
        *,
        policy: Annotated[
            str,
            Choices(POLICIES),
            "which rows stay in memory: those that coming batches read (lookahead), those used last (lru), those of high degree (degree), or none (mapped)",
        ] = "lookahead",
        cache: Annotated[
            float | None,
            Share,
            Null("the rest of the memory budget; no cache if all rows fit"),
            "share of the feature rows to keep in memory",
        ] = None,
        window: Annotated[int, Range(1, 1 << 16), "batches that lookahead draws ahead"] = 200,
        readers: Annotated[
            int,
            Range(1, 256),
            "threads that read rows; direct reads are queued, 16 per thread, at most 256",
        ] = 8,
        direct: Annotated[
            bool | None, Null("if the file exceeds the free memory"), "bypass the system's page cache"
        ] = None,
    ) -> None:
        self.policy = policy
        self.cache = cache
        self.window = window
        self.readers = readers
        self.direct = direct
        self.room: int | None = (
            None  # bytes that a cache may take; None: half of the memory left when it is made
        )

    def make_cache(self, graph: Graph) -> FeatureCache | None:
        """A cache for the features of `graph`; None if they are in memory, sparse, or fit in memory as mapped pages.

        Args:
            graph: the graph whose features are read.
        """
        num_slots = self.count_slots(graph, memory_left() // 2 if self.room is None else self.room)
        if num_slots is None:
            return None
        x, _ = graph.find_features(np.empty(0, np.int64))
        while graph.parent is not None:
            graph = graph.parent
        return FeatureCache(x, num_slots, graph.indptr, window=self._window, recent=self.policy == "lru")

    def count_bytes(self, graph: Graph, room: int) -> int:
        """Bytes of a cache that is limited to `room` bytes; 0 if none is made.

        Args:
            graph: the graph whose features are read.
            room: bytes that the cache may take.
        """
        num_slots = self.count_slots(graph, room)
        if num_slots is None:
            return 0
        x, _ = graph.find_features(np.empty(0, np.int64))
        return num_slots * (x.nbytes // len(x)) + slots_bytes(len(x), num_slots, self._window)

    @property
    def _window(self) -> int:
        return self.window if self.policy == "lookahead" else 0

    def count_slots(self, graph: Graph, room: int) -> int | None:
        """Number of rows in a cache of at most `room` bytes; None if none is made.

        Args:
            graph: the graph whose features are read.
            room: bytes that the cache may take.
        """
        if self.policy == "mapped" or not graph.num_features:
            return None
        x, _ = graph.find_features(np.empty(0, np.int64))
        codes = x.codes if isinstance(x, EncodedRows) else x
        whole: object = getattr(codes, "base", None)  # of a slice, it would be the map that was sliced
        if not isinstance(codes, np.memmap) or not isinstance(whole, mmap.mmap):
            return None
        if self.cache is not None:
            return min(round(self.cache * len(codes)), len(codes))
        if codes.nbytes <= room:
            return None
        row_bytes = codes.nbytes // len(codes) + slots_bytes(0, 1, self._window)
        return min(max(room - slots_bytes(len(codes), 0, self._window), 0) // row_bytes, len(codes))


class Plan(NamedTuple):
    """Where a batch finds its rows: see `plan_batch`."""

    rows: np.ndarray
    source: np.ndarray
    misses: np.ndarray
    moved: np.ndarray
    to: np.ndarray


class FeatureCache:
    """A cache of `num_slots` rows of a matrix on disk, chosen by the coming batches.

    `enter` registers the rows of each batch in order. `plan` decides for the next batch which rows are in the cache and
    which have to be read; it may run ahead of the data. `take` gathers the batch's rows from the cache and from what was
    read, then admits rows to the cache; it must be called in the order of the plans.

    Args:
        x: the features on disk.
        indptr: row pointers of the graph of x, for degrees.
        window: batches that are entered before the next one is planned; 0: only degrees decide.
        recent: keep the most recently used rows instead (LRU).
    """

    def __init__(
        self,
        x: np.ndarray | EncodedRows,
        num_slots: int,
        indptr: np.ndarray,
        *,
        window: int = 200,
        recent: bool = False,
    ) -> None:
        codes = x.codes if isinstance(x, EncodedRows) else x
        self.codes = codes
        self.num_slots = num_slots
        self.window = window
        self._kind = x.kind if isinstance(x, EncodedRows) else PLAIN
        self._num_features = int(x.shape[1])
        self._indptr = indptr
        self._state = make_slots(len(codes), num_slots, window, recent=recent)
        self._kept = flatten_codes(np.empty((num_slots, codes.shape[1]), codes.dtype))
        self._entered: deque[np.ndarray] = deque()
        self._first: int | None = None  # number of the first batch that is entered and not planned
        self._place = self._end = 0  # position of its first row, and after the last entered row

    def enter(self, batch: int, rows: np.ndarray) -> None:
        """Register that batch number `batch` reads `rows`, which are distinct; batches are entered in order."""
        if self._first is None:
            self._first = batch
        if batch != self._first + len(self._entered):
            raise ShoalError(
                f"batch {batch} was entered out of order: expected {self._first + len(self._entered)}"
            )
        rows = np.ascontiguousarray(rows, np.int32)
        if self.window:
            held = self._end - self._place
            if held + len(rows) > len(self._state.follow):
                self._state = grow_follow(self._state, self._place, list(self._entered), len(rows))
                self._place, self._end = 0, held
            enter_batch(self._state, rows, batch, self._end)
        self._end += len(rows)
        self._entered.append(rows)

    @property
    def num_entered(self) -> int:
        """Number of batches that are entered and not planned."""
        return len(self._entered)

    def plan(self) -> Plan:
        """Where the next batch finds its rows."""
        assert self._first is not None
        rows = self._entered.popleft()
        found = plan_batch(self._state, rows, self._first, self._place, self._indptr)
        self._place += len(rows)
        self._first += 1
        return Plan(rows, *found)

    def take(self, plan: Plan, read: np.ndarray) -> Tensor:
        """The rows of a planned batch as float32; `read` has the bytes of its misses. One thread, without the GIL."""
        out = torch.empty(len(plan.rows), self._num_features)
        width, read = self.codes.shape[1], read.view(self._kept.dtype)
        flat = out.view(-1).numpy()
        take_cached(self._kept, read, plan.source, width, self._kind, flat, self._num_features)
        keep_rows(self._kept, read, plan.moved, plan.to, width)
        return out
