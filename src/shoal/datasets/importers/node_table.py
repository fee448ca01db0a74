"""The node table of a CSV or Parquet import: ids, features, labels and split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.datasets.importers.node_ids import NodeIds
from shoal.datasets.importers.table_labels import check_labelled, read_labels, read_split
from shoal.datasets.importers.tabular import TableFile, first_null, is_number, is_text, plain, to_integers
from shoal.errors import ShoalError
from shoal.progress import follow_work
from shoal.workspace import FeatureRows

LABEL_NAMES = ("label", "y")


def read_nodes(
    path: Path, features: str | None, labels: str | None, notices: list[str]
) -> tuple[NodeIds, dict[str, Any]]:
    """The ids in row order and the fields x, y and masks of the graph.

    The id is column `id`, else the first; the label `label` or `y`, or the columns named by `labels`; the
    split is column `split`. Every other column of numbers, or of equally long lists of numbers, is a
    feature; other text columns are left out with a notice. `features` names the feature columns instead.
    """
    table = TableFile(path)
    id_column = "id" if "id" in table.names else table.names[0]
    label_columns = [table.require(name.strip()) for name in labels.split(",")] if labels else []
    if not label_columns:
        label_columns = [name for name in LABEL_NAMES if name in table.names and name != id_column][:1]
    split_column = "split" if "split" in table.names and id_column != "split" else None
    taken = {id_column, split_column, *label_columns}
    if features is not None:
        chosen = [table.require(name.strip()) for name in features.split(",") if name.strip()]
    else:
        chosen = _choose_features(table, [name for name in table.names if name not in taken], notices)
    kept: dict[str, list[pa.Array]] = {name: [] for name in taken if name is not None}
    x: FeatureRows | None = None
    done = 0
    for batch in table.batches([*kept, *(name for name in chosen if name not in kept)], 1 << 16):
        for name, parts in kept.items():
            parts.append(plain(batch.column(name)))
        if chosen:
            block = _read_block(table, batch, chosen, done)
            if x is None:
                x = FeatureRows(block.shape[1], table.num_rows)
            if block.shape[1] != x.num_features:
                raise ShoalError(
                    f"{path}: the lists from row {done + 1} on give {block.shape[1]} features: expected {x.num_features} as before"
                )
            x.append(block)
            if table.num_rows is not None:
                follow_work("nodes", done + len(block), table.num_rows)
        done += len(batch)
    if not done:
        raise ShoalError(f"{path} has no rows: expected one per node")
    columns = {name: pa.chunked_array(parts).combine_chunks() for name, parts in kept.items()}
    fields: dict[str, Any] = {}
    if x is not None:
        fields["x"] = x.finish()
    if label_columns:
        chosen_labels = {name: columns[name] for name in label_columns}
        fields["y"], fields["class_names"] = read_labels(path, chosen_labels, notices)
    if split_column is not None:
        masks = read_split(path, columns[split_column])
        if label_columns:
            check_labelled(path, fields["y"], masks)
        fields |= masks
    return _read_ids(path, id_column, columns[id_column]), fields


def _read_ids(path: Path, name: str, column: pa.Array) -> NodeIds:
    if column.null_count:
        raise ShoalError(
            f"{path}: column {name!r} is empty in row {first_null(column) + 1}: expected a node id"
        )
    if pa.types.is_large_string(column.type):
        numbers = to_integers(column) if path.suffix not in (".parquet", ".pq") else None
        ids = NodeIds(column if numbers is None else numbers)
    elif pa.types.is_integer(column.type):
        try:
            ids = NodeIds(column.cast(pa.int64()))
        except pa.ArrowInvalid:
            raise ShoalError(f"{path}: column {name!r} holds ids beyond 64 bits: expected smaller") from None
    else:
        raise ShoalError(f"{path}: column {name!r} holds {column.type}: expected integer or string ids")
    row = ids.first_repeated
    if row >= 0:
        raise ShoalError(
            f"{path}: row {row + 1} repeats node id {column[row].as_py()!r}: expected each id once"
        )
    return ids


def _choose_features(table: TableFile, names: list[str], notices: list[str]) -> list[str]:
    """The columns that hold numbers. In a CSV file: in at least half of the filled cells of the first block."""
    ignored = [name for name in names if not _can_be_feature(table.types[name])]
    names = [name for name in names if name not in ignored]
    texts = [name for name in names if is_text(table.types[name])]
    if table.is_csv and texts:
        first = next(iter(table.batches(texts)), None)
        for name in texts:
            cells = [] if first is None else plain(first.column(name).slice(0, 1000)).to_pylist()
            filled = [cell for cell in cells if cell]
            if 2 * sum(map(_parses, filled)) < max(len(filled), 1):
                ignored.append(name)
    elif texts:
        ignored += texts
    if ignored:
        ordered = [name for name in table.names if name in ignored]
        notices.append(
            f"left out the columns {', '.join(ordered)} of {table.path.name}, which are not numbers"
        )
    return [name for name in names if name not in ignored]


def _can_be_feature(kind: pa.DataType) -> bool:
    return is_text(kind) or is_number(kind) or (_is_list(kind) and is_number(kind.value_type))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _parses(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_block(table: TableFile, batch: pa.RecordBatch, names: list[str], done: int) -> np.ndarray:
    """The float32 features `(rows, features)` of one batch."""
    columns = [_to_numbers(table.path, name, batch.column(name), done) for name in names]
    if len(columns) == 1 and columns[0].ndim == 2:
        return columns[0]
    widths = [1 if column.ndim == 1 else column.shape[1] for column in columns]
    block = np.empty((len(batch), sum(widths)), np.float32)
    start = 0
    for column, width in zip(columns, widths):
        block[:, start : start + width] = column.reshape(len(batch), width)
        start += width
    return block


def _to_numbers(path: Path, name: str, column: pa.Array, done: int) -> np.ndarray:
    row = first_null(column) if not _is_list(column.type) else int(pc.index(pc.is_null(column), True).as_py())
    if row >= 0:
        raise ShoalError(f"{path}: column {name!r} is empty in row {done + row + 1}: expected a number")
    if _is_list(column.type):
        lengths = pc.list_value_length(column)
        width = lengths[0].as_py() if len(lengths) else 0
        uneven = int(pc.index(pc.not_equal(lengths, width), True).as_py())
        if uneven >= 0:
            raise ShoalError(
                f"{path}: column {name!r} has {lengths[uneven]} values in row {done + uneven + 1}: expected {width} as in the rows before"
            )
        flat = column.flatten()
        if first_null(flat) >= 0:
            raise ShoalError(
                f"{path}: column {name!r} holds an empty value in row {done + first_null(flat) // width + 1}: expected a number"
            )
        values = np.asarray(flat.cast(pa.float32(), safe=False)).reshape(len(column), width)
        return _refuse_infinite(path, name, column, values, done)
    column = plain(column)
    try:
        values = np.asarray(column.cast(pa.float32(), safe=False))
        return _refuse_infinite(path, name, column, values, done)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        cells = column.to_pylist()
        row = next((i for i, cell in enumerate(cells) if not (isinstance(cell, str) and _parses(cell))), 0)
        raise ShoalError(
            f"{path}: column {name!r} holds {str(cells[row])!r} in row {done + row + 1}: expected a number, or name the feature columns with --option features=a,b (features= in Python)"
        ) from None


def _refuse_infinite(path: Path, name: str, column: pa.Array, values: np.ndarray, done: int) -> np.ndarray:
    """`values`, unless one is NaN, infinite or too large for float32: no training survives it."""
    finite = np.isfinite(values)
    if not finite.all():
        row = int(np.argmin(finite if finite.ndim == 1 else finite.all(axis=1)))
        found = column[row].as_py() if finite.ndim == 1 else values[row, np.argmin(finite[row])]
        raise ShoalError(
            f"{path}: column {name!r} holds {found} in row {done + row + 1}: expected a finite number"
        )
    return values
