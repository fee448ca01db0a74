"""Tables of per-node results, .parquet or .csv, with node ids and class names."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from shoal.names import Called, Names

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS_AT_ONCE = 1 << 20
_SEPARATOR = "|"  # between the labels of a cell, as `shoal data import` reads them


def write_table(file: BinaryIO, suffix: str, column: str, values: np.ndarray, called: Called) -> None:
    """Write a table in groups of rows, so that memory-mapped values are never in memory all at once."""
    import pyarrow.csv as csv
    import pyarrow.parquet as pq

    writer: pq.ParquetWriter | csv.CSVWriter | None = None
    for start in range(0, max(len(values), 1), _ROWS_AT_ONCE):
        table = _make_table(column, values[start : start + _ROWS_AT_ONCE], start, called)
        if suffix == ".csv":
            table = _flatten(table, called)
            writer = writer or csv.CSVWriter(file, table.schema)
        else:
            writer = writer or pq.ParquetWriter(file, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def _make_table(column: str, values: np.ndarray, start: int, called: Called) -> pa.Table:
    """A table of `values`, the first of which is that of node `start`."""
    import pyarrow as pa

    end = start + len(values)
    table = {"node": pa.array(np.arange(start, end))}
    ids = called.node_ids
    if ids is not None:
        table["id"] = ids.to_arrow()[start:end] if isinstance(ids, Names) else pa.array(ids[start:end])
    if column == "probability":
        likely = values > 0.5 if called.multi_label else values.argmax(1)
        table["label"] = _name_classes(likely, called)
        names = called.class_names or range(called.num_classes)
        return pa.table(table | {f"{column}_{one}": pa.array(values[:, i]) for i, one in enumerate(names)})
    flat = pa.array(values.reshape(-1))
    content = flat if values.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    if column == "label" and values.dtype.kind != "f":
        table |= {"label": _name_classes(values, called), "class": content}
    else:
        table[column] = content
    return pa.table(table)


def _name_classes(labels: np.ndarray, called: Called) -> pa.Array:
    """Each node's class, or list of classes: by name, or by number if there are no names."""
    import pyarrow as pa

    names = called.class_names
    known = pa.array(range(called.num_classes) if names is None else names)
    if labels.ndim == 1:
        return known.take(pa.array(labels))
    rows, classes = np.nonzero(labels)
    ends = np.searchsorted(rows, np.arange(len(labels) + 1))
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), known.take(pa.array(classes)))


def _flatten(table: pa.Table, called: Called) -> pa.Table:
    """The table without lists: labels are joined by `|`, vectors get one column per number."""
    import pyarrow as pa
    import pyarrow.compute as pc

    flat: dict[str, pa.Array] = {}
    for name in table.column_names:
        cells = table[name].combine_chunks()
        if pa.types.is_large_list(cells.type):
            texts = cells.cast(pa.large_list(pa.string()))
            flat[name] = pc.binary_join(texts, _SEPARATOR)
        elif not pa.types.is_fixed_size_list(cells.type):
            flat[name] = cells
        elif name != "class":  # 0/1 columns would repeat `label`
            rows = cells.flatten().to_numpy().reshape(len(cells), -1)
            names = called.class_names if name == "label" and called.class_names else range(rows.shape[1])
            flat |= {f"{name}_{one}": pa.array(rows[:, i]) for i, one in enumerate(names)}
    return pa.table(flat)
