"""The edge table of a CSV or Parquet import: its source and target columns, and ids converted to node numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from shoal.datasets.importers.edge_weight_column import WeightColumn
from shoal.datasets.importers.files import Progress
from shoal.datasets.importers.node_ids import NodeIds, collect_ids
from shoal.datasets.importers.node_table import whole_ids
from shoal.datasets.importers.table_parts import open_table
from shoal.datasets.importers.tabular import Table, first_null, plain, to_integers
from shoal.errors import ShoalError

END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))
_WHOLE = re.compile(r"(-?\d{1,19})(?:\.0*)?")
_NO_ID = int(np.iinfo(np.int64).min)


def open_edges(path: Path) -> Table:
    """The edge table at `path`; columns of a CSV file without a header line are numbered."""
    edges = open_table(path)
    if len(edges.names) < 2:
        raise ShoalError(f"{path} has {len(edges.names)} column: expected two node ids per row")
    if edges.is_csv and all(cell.lstrip("-").isdigit() for cell in edges.names[:2]):
        return open_table(path, header=False)
    return edges


def choose_ends(edges: Table, source: str | None, target: str | None) -> list[str]:
    """The two id columns: as named by the caller, else by convention, else the first two."""
    pairs = [[edges.find(end) for end in pair] for pair in END_NAMES]
    first, second = next((pair for pair in pairs if None not in pair), edges.names[:2])
    ends = [edges.require(source or first or ""), edges.require(target or second or "")]
    if ends[0] == ends[1]:
        raise ShoalError(f"{edges.path}: source and target are both column {ends[0]!r}: expected two columns")
    return ends


def collect_edge_ids(edges: Table, ends: list[str]) -> tuple[NodeIds, int]:
    """The ids of all edges, and how many edges there are."""
    done = 0
    kinds = [plain(pa.array([], edges.types[end])).type for end in ends]
    as_text = any(pa.types.is_large_string(kind) for kind in kinds)
    kind = pa.large_string() if as_text else pa.int64()

    def columns() -> Iterator[pa.ChunkedArray]:
        nonlocal done
        for batch in edges.batches(ends):
            yield pa.chunked_array([_id_column(edges, end, batch, done, kind) for end in ends])
            done += len(batch)

    values = collect_ids(columns(), kind)
    pa.default_memory_pool().release_unused()
    if edges.is_csv and len(values):
        numbers = to_integers(values)
        if numbers is not None:
            values = pa.array(np.sort(numbers.to_numpy()))
    return NodeIds(values), done


def number_edges(
    edges: Table,
    ends: list[str],
    ids: NodeIds,
    node_path: Path | None,
    progress: Progress,
    dropped: list[int] | None,
    weight: WeightColumn | None = None,
) -> Iterator[Any]:
    """(sources, targets) of all edges, as node numbers, and their weights, if there is a column of them.

    An edge with an unknown id raises ShoalError, or is left out and counted in `dropped`.
    """
    done = 0
    for batch in _gather(edges.batches([*ends, weight.name] if weight else ends), ids.batch_rows):
        numbers = _number(edges, ends, batch, ids, done, node_path, dropped, weight)
        done += len(batch)
        progress(f"read {done:,} edges")
        del batch
        yield tuple(numbers)
    pa.default_memory_pool().release_unused()


def _id_column(edges: Table, name: str, batch: pa.RecordBatch, done: int, kind: pa.DataType) -> pa.Array:
    """One column of ids as `kind`, int64 or large strings; raises ShoalError for an empty cell."""
    column = plain(batch.column(name))
    if column.null_count:
        path, row = edges.locate(done + first_null(column))
        raise ShoalError(f"{path}: column {name!r} is empty in row {row}: expected a node id")
    if column.type == kind:
        return column
    if not pa.types.is_large_string(column.type):
        return whole_ids(edges, name, column).cast(kind)
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        return pa.array([_as_integer(value) for value in column.to_pylist()], pa.int64())


def _gather(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches joined until each has at least `rows` rows; the last one may have fewer."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        waiting.append(batch)
        size += len(batch)
        if size >= rows:
            yield _join(waiting)
            waiting, size = [], 0
    if waiting:
        yield _join(waiting)


def _join(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else pa.Table.from_batches(parts).combine_chunks().to_batches()[0]


def _number(
    edges: Table,
    ends: list[str],
    batch: pa.RecordBatch,
    ids: NodeIds,
    done: int,
    node_path: Path | None,
    dropped: list[int] | None,
    weight: WeightColumn | None,
) -> list[np.ndarray]:
    kind = pa.int64() if ids.are_integers else pa.large_string()
    numbers = ids.number([_id_column(edges, end, batch, done, kind) for end in ends])
    lacking = np.logical_or.reduce([found < 0 for found in numbers])
    if weight is not None:
        numbers = [*numbers, weight.read(batch.column(weight.name), done)]
    if not lacking.any():
        return numbers
    if dropped is not None:
        dropped.append(int(np.count_nonzero(lacking)))
        return [found[~lacking] for found in numbers]
    row = int(np.argmax(lacking))
    end = next(end for end, found in zip(ends, numbers) if found[row] < 0)
    path, number = edges.locate(done + row)
    cell = plain(batch.column(end))[row].as_py()
    raise ShoalError(
        f"{path}: row {number} names node {cell!r} in column {end!r}, which {node_path or edges.path} lacks: "
        f"expected ids of the node table, such as {ids.values[0].as_py()!r}; --option unknown=drop leaves such edges out "
        "(with `shoal train`: --set data.unknown=drop)"
    )


def _as_integer(text: str) -> int:
    """An integer id from text, such as 5 or 5.0; any other text becomes a number that is no id."""
    found = _WHOLE.fullmatch(text)
    number = int(found[1]) if found else _NO_ID
    return number if abs(number) < 2**63 else _NO_ID
