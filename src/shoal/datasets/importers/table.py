"""CSV and Parquet tables: a table of edges and, optionally, one of nodes, with any integer or string ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, silent
from shoal.datasets.importers.node_ids import NodeIds, collect_ids
from shoal.datasets.importers.node_table import read_nodes
from shoal.datasets.importers.tabular import (
    CSV_ENDINGS,
    PARQUET_ENDINGS,
    TableFile,
    first_null,
    plain,
    to_integers,
)
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.settings import Null

END_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"))


def matches(path: Path) -> bool:
    if path.is_dir():
        return _find_table(path, "edges") is not None
    return path.name.endswith(CSV_ENDINGS + PARQUET_ENDINGS)


@FORMATS.named("table")
@recognised(matches, priority=50)
def read_table(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    nodes: Annotated[
        str | Path | None, Null("nodes.* in the folder, if any"), "file of the node table"
    ] = None,
    source: Annotated[
        str | None, Null("source, src, from or the first"), "column with the source of an edge"
    ] = None,
    target: Annotated[
        str | None, Null("target, dst, to or the second"), "column with the target of an edge"
    ] = None,
    features: Annotated[
        str | None,
        Null("every other column of numbers"),
        "feature columns of the node table, joined by commas",
    ] = None,
    labels: Annotated[
        str | None,
        Null("label or y, if any"),
        "label column of the node table, or 0/1 columns joined by commas",
    ] = None,
) -> Graph:
    """CSV or Parquet: an edge table, or a folder with edges.* and nodes.*; a row is an arc source → target unless --undirected.

    A row (source, target) is the arc source → target: the target aggregates from the source.

    `path` is an edge table or a folder with edges.csv or edges.parquet and optionally nodes.csv or
    nodes.parquet; `nodes` names a node table elsewhere. Edge columns are `source, target`, `src, dst` or
    `from, to`, else the first two. With a node table nodes are numbered by its rows; without one, in the
    order of their ids. Batches are turned into int32 numbers as they are read.
    """
    edge_path = _find_table(path, "edges") if path.is_dir() else path
    if edge_path is None:
        raise ShoalError(f"{path} holds neither edges.csv nor edges.parquet: expected one of them")
    node_path = Path(nodes) if nodes is not None else _find_table(path, "nodes") if path.is_dir() else None
    edges = _open_edges(edge_path)
    notices: list[str] = []
    if not edges.header:
        notices.append(f"{edge_path.name} has no line of column names: read its first line as an edge")
    ends = _choose_ends(edges, source, target)
    fields: dict[str, Any] = {}
    expected = edges.num_rows or 0
    if node_path is not None:
        progress(f"reading {node_path.name}")
        ids, fields = read_nodes(node_path, features, labels, notices)
    else:
        if features is not None or labels is not None:
            raise ShoalError(
                f"features and labels name columns of a node table, and {path} has none: name one with --option nodes=FILE (nodes= in Python)"
            )
        progress(f"reading the node ids of {edge_path.name}")
        ids, expected = _collect_ids(edges, ends)

    def number_edges() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        done = 0
        for batch in _gather(edges.batches(ends), ids.batch_rows):
            sources, targets = _number(edges, ends, batch, ids, done, node_path)
            done += len(batch)
            progress(f"read {done:,} edges")
            del batch
            yield sources, targets
        pa.default_memory_pool().release_unused()

    default = path.resolve().name if path.is_dir() else path.name.split(".")[0]
    return Graph.from_edge_chunks(
        number_edges(),
        len(ids),
        directed=directed,
        expected=expected,
        name=name or default,
        node_ids=ids.as_names(),
        notices=notices,
        **fields,
    )


def _find_table(folder: Path, stem: str) -> Path | None:
    found = [folder / f"{stem}{ending}" for ending in PARQUET_ENDINGS + CSV_ENDINGS]
    return next((path for path in found if path.is_file()), None)


def _open_edges(path: Path) -> TableFile:
    edges = TableFile(path)
    if len(edges.names) < 2:
        raise ShoalError(f"{path} has {len(edges.names)} column: expected two node ids a row")
    if edges.is_csv and all(cell.lstrip("-").isdigit() for cell in edges.names[:2]):
        return TableFile(path, header=False)
    return edges


def _choose_ends(edges: TableFile, source: str | None, target: str | None) -> list[str]:
    """The two id columns: as named by the caller, else by convention, else the first two."""
    lower = {name.lower(): name for name in reversed(edges.names)}
    usual = next((pair for pair in END_NAMES if all(end in lower for end in pair)), None)
    first, second = [lower[end] for end in usual] if usual else edges.names[:2]
    ends = [edges.require(source or first), edges.require(target or second)]
    if ends[0] == ends[1]:
        raise ShoalError(f"{edges.path}: source and target are both column {ends[0]!r}: expected two columns")
    return ends


def _collect_ids(edges: TableFile, ends: list[str]) -> tuple[NodeIds, int]:
    """The ids of all edges, and how many edges there are."""
    done = 0
    kinds = [plain(pa.array([], edges.types[end])).type for end in ends]
    as_text = any(not pa.types.is_integer(kind) for kind in kinds)
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


def _id_column(edges: TableFile, name: str, batch: pa.RecordBatch, done: int, kind: pa.DataType) -> pa.Array:
    """One column of ids as `kind`, int64 or large strings; refuses an empty one."""
    path, column = edges.path, plain(batch.column(name))
    if column.null_count:
        raise ShoalError(
            f"{path}: column {name!r} is empty in row {done + first_null(column) + 1}: expected a node id"
        )
    if column.type == kind:
        return column
    if (
        pa.types.is_floating(column.type)
        or pa.types.is_nested(column.type)
        or pa.types.is_temporal(column.type)
    ):
        raise ShoalError(f"{path}: column {name!r} holds {column.type}: expected integer or string ids")
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        expected = "whole numbers of 64 bits" if pa.types.is_integer(kind) else "texts"
        raise ShoalError(
            f"{path}: column {name!r} holds {column.type}: expected {expected}, as the other ids are"
        ) from None


def _gather(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches joined until each has at least `rows` rows; the last one has what is left."""
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
    edges: TableFile, ends: list[str], batch: pa.RecordBatch, ids: NodeIds, done: int, node_path: Path | None
) -> list[np.ndarray]:
    as_text = edges.is_csv or not ids.are_integers
    given = [
        _id_column(edges, end, batch, done, pa.large_string() if as_text else pa.int64()) for end in ends
    ]
    columns = [_parse_integers(column) for column in given] if as_text and ids.are_integers else given
    numbers = ids.number(columns)
    for end, column, found in zip(ends, given, numbers):
        if len(found) and int(found.min()) < 0:
            row = int(np.argmax(found < 0))
            raise ShoalError(
                f"{edges.path}: row {done + row + 1} names node {column[row].as_py()!r} in column {end!r}, which {node_path or edges.path} lacks: expected ids of the node table"
            )
    return numbers


def _parse_integers(text: pa.Array) -> pa.Array:
    try:
        return text.cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.array([_as_integer(value) for value in text.to_pylist()], pa.int64())


def _as_integer(text: str) -> int:
    """An id of a table of integers; one that is none becomes a number that no table holds."""
    return int(text) if text.lstrip("-").isdigit() and len(text) < 19 else np.iinfo(np.int64).min
