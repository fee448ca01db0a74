"""Numbering arbitrary node ids: integers or strings to 0…n-1, batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.names import Names


class NodeIds:
    """The distinct node ids of a graph; an id's number is its position in `values`.

    Integer ids whose range is not much wider than their number are looked up in a table. Others go
    through a hash table that is built again for each call, so give at least `batch_rows` ids at a time.
    """

    def __init__(self, values: pa.Array) -> None:
        self.values = values
        self._table: np.ndarray | None = None
        self.batch_rows = len(values)
        if self.are_integers and len(values):
            ids = values.to_numpy()
            low, high = int(ids.min()), int(ids.max())
            if high - low < 4 * len(values) + 1024:
                self._low = low
                self._table = np.full(high - low + 1, -1, np.int32)
                self._table[ids - low] = np.arange(len(values), dtype=np.int32)
                self.batch_rows = 0

    def __len__(self) -> int:
        return len(self.values)

    def as_names(self) -> np.ndarray | Names | None:
        """The ids as a Graph stores them: None if they are 0, 1, 2, …"""
        if not self.are_integers:
            return Names.from_arrow(self.values)
        ids: np.ndarray = self.values.to_numpy()
        return None if np.array_equal(ids, np.arange(len(ids))) else ids

    @property
    def are_integers(self) -> bool:
        """Whether the ids are integers rather than text."""
        return bool(pa.types.is_integer(self.values.type))

    @property
    def first_repeated(self) -> int:
        """The first position whose id occurs earlier, or -1."""
        distinct = pc.unique(self.values)
        if len(distinct) == len(self.values):
            return -1
        _, first = np.unique(pc.index_in(self.values, distinct).to_numpy(), return_index=True)
        repeated = np.ones(len(self.values), np.bool_)
        repeated[first] = False
        return int(np.argmax(repeated))

    def number(self, columns: Sequence[pa.Array]) -> list[np.ndarray]:
        """The numbers of the ids in each column as int32, -1 for an unknown one. There must be no nulls."""
        if self._table is not None:
            return [self._look_up(column.to_numpy(), self._table) for column in columns]
        found = pc.index_in(pa.chunked_array(columns), self.values)  # one hash table for all columns
        numbers = pc.fill_null(found, -1).to_numpy().astype(np.int32, copy=False)
        ends = np.cumsum([len(column) for column in columns])
        return [np.array(part) for part in np.split(numbers, ends[:-1])]

    def _look_up(self, ids: np.ndarray, table: np.ndarray) -> np.ndarray:
        places = ids - self._low
        inside = (places >= 0) & (places < len(table))
        if inside.all():
            return table[places]
        return np.where(inside, table[np.where(inside, places, 0)], np.int32(-1))


def collect_ids(batches: Iterable[pa.ChunkedArray], kind: pa.DataType) -> pa.Array:
    """The distinct values of all batches, sorted. Batches are merged once they hold as many values as are known."""
    known = pa.array([], kind)
    waiting: list[pa.Array] = []
    size = 0
    for batch in batches:
        distinct = pc.unique(batch)
        waiting.append(distinct)
        size += len(distinct)
        if size > max(len(known), 1 << 22):
            known = _merge([known, *waiting])
            waiting, size = [], 0
    known = _merge([known, *waiting])
    del waiting
    return known.take(pc.array_sort_indices(known))


def _merge(parts: list[pa.Array]) -> pa.Array:
    return pc.unique(pa.chunked_array(parts))
