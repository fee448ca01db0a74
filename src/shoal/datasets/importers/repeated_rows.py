"""Repeated ids in a node table: allowed if the rows are equal, an error otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from shoal.datasets.importers.tabular import Table, plain
from shoal.errors import ShoalError
from shoal.wording import count


def find_first_rows(table: Table, name: str, ids: pa.Array, notices: list[str]) -> np.ndarray:
    """Mask of the first row of every id; raises ShoalError if another row with that id differs in a cell."""
    codes = np.asarray(ids.dictionary_encode().indices)
    _, first = np.unique(codes, return_index=True)
    rows = np.zeros(len(codes), np.bool_)
    rows[first] = True
    repeated = np.bincount(codes)[codes] > 1
    seen: dict[int, dict[str, Any]] = {}
    done = 0
    for batch in table.batches(table.names):
        columns = [plain(column) for column in batch.columns]
        for row in np.flatnonzero(repeated[done : done + len(batch)]).tolist():
            cells = {name: column[row].as_py() for name, column in zip(batch.schema.names, columns)}
            before = seen.setdefault(int(codes[done + row]), cells)
            odd = next((key for key, cell in cells.items() if not _same(cell, before[key])), None)
            if odd is not None:
                path, number = table.locate(done + row)
                raise ShoalError(
                    f"{path}: row {number} repeats node id {ids[done + row].as_py()!r} with another {odd}: "
                    f"{_show(cells[odd])}, {_show(before[odd])} before; expected each id once"
                )
        done += len(batch)
    notices.append(
        f"left out {count(int(np.count_nonzero(~rows)), 'row')} that repeat another of the same id"
    )
    return rows


def _same(one: Any, other: Any) -> bool:
    return bool(one == other or (one != one and other != other))


def _show(cell: Any) -> str:
    return "nothing" if cell is None else repr(cell)[:60]
