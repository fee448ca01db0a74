"""The node table of a CSV or Parquet import: ids, features, labels and split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from shoal.datasets.importers.column_scan import ColumnOptions
from shoal.datasets.importers.feature_columns import Column, Tally, dump_columns
from shoal.datasets.importers.node_ids import NodeIds
from shoal.datasets.importers.repeated_rows import find_first_rows
from shoal.datasets.importers.table_features import (
    describe_columns,
    describe_tally,
    find_columns,
    require_columns,
)
from shoal.datasets.importers.table_labels import (
    Classes,
    check_labelled,
    find_training_rows,
    holds_split,
    read_labels,
    read_split,
)
from shoal.datasets.importers.tabular import Table, first_null, plain, to_integers
from shoal.errors import ShoalError
from shoal.labels import find_labelled, is_regression
from shoal.progress import follow_work
from shoal.workspace import FeatureRows

ID_NAMES = ("id", "node_id", "nodeid", "node")
LABEL_NAMES = ("label", "y", "class", "target")
SPLIT, SPLITS = "split", "splits"
ROWS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Like:
    """A stored graph whose column encodings and class numbers are used for new tables.

    `id` and `labels` are the columns that held its ids and labels, if known; new edges are undirected if its edges are.
    """

    place: str
    columns: list[Column]
    classes: Classes | None
    id: str = ""
    labels: list[str] = field(default_factory=list)
    directed: bool = True


@dataclass(frozen=True)
class NodeOptions:
    """Options for a node table: see the settings of the table format."""

    id: str | None = None
    features: str | None = None
    labels: str | None = None
    exclude: str | None = None
    columns: ColumnOptions = field(default_factory=ColumnOptions)
    like: Like | None = None
    task: str | None = None


def split_names(names: str | None) -> list[str]:
    """The names in `a,b,c`."""
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def read_nodes(table: Table, options: NodeOptions, notices: list[str]) -> tuple[NodeIds, dict[str, Any]]:
    """The ids in row order and the fields of the graph: x, encoding, y, class_names and masks.

    The id is column `id`, else the first; the label `label`, `y`, `class` or `target`, or the columns named by
    `labels`; the split is column `split` or `splits`. Every other column is a feature if it can be encoded as one
    (`feature_columns`); other columns are left out with a notice. `features` names the feature columns instead.
    The table is read twice unless all features are lists: first for means and categories.
    """
    excluded = [table.require(name) for name in split_names(options.exclude)]
    known_id, known_labels = ("", []) if options.like is None else (options.like.id, options.like.labels)
    if options.id:
        id_column = table.require(options.id)
    else:
        id_column = table.find(*([known_id] if known_id else []), *ID_NAMES) or table.names[0]
    label_columns = [table.require(name) for name in split_names(options.labels)]
    if not label_columns and all(name in table.names and name not in excluded for name in known_labels):
        label_columns = list(known_labels)
    if not label_columns:
        encoded = [] if options.like is None else [column.column for column in options.like.columns]
        used = (None, id_column, *excluded, *encoded)
        free = [name for name in LABEL_NAMES if table.find(name) not in used]
        label_columns = [name for one in free[:1] if (name := table.find(one)) is not None]
    split_column = _find_split(table, options, [id_column, *label_columns, *excluded])
    taken = [name for name in dict.fromkeys((id_column, split_column, *label_columns)) if name is not None]
    others = [name for name in table.names if name not in (*taken, *excluded)]
    named = dict.fromkeys(split_names(options.features)) if options.features else others
    chosen = [table.require(name) for name in named]
    if both := [name for name in chosen if name in label_columns]:
        raise ShoalError(f"{table.path}: column {both[0]!r} is the label: leave it out of the features")
    kept = _read_columns(table, taken)
    ids = _read_ids(table, id_column, kept[id_column])
    rows = None if ids.first_repeated < 0 else find_first_rows(table, id_column, kept[id_column], notices)
    train = None if split_column is None else find_training_rows(kept[split_column])
    if options.like is not None:
        columns = require_columns(table, options.like.columns, options.like.place, others, notices)
    else:
        mask = train if rows is None else (np.ones(len(ids), np.bool_) if train is None else train) & rows
        scanned = [name for name in chosen if name in table.names]
        columns = find_columns(table, scanned, options.columns, mask, notices, named=bool(options.features))
    fields: dict[str, Any] = {}
    if columns:
        tally = Tally()
        fields["x"] = _read_features(table, columns, rows, tally)
        fields["encoding"] = dump_columns(columns) | {"id": id_column, "labels": label_columns}
        if options.like is None:
            notices += describe_columns(columns, trained=train is not None)
        notices += describe_tally(tally, None if options.like is None else options.like.place)
    like = None if options.like is None else options.like.classes
    if label_columns:
        chosen_labels = {name: kept[name] for name in label_columns}
        fields["y"], fields["class_names"] = read_labels(
            table, chosen_labels, notices, like, options.task, options.columns.decimal
        )
        if is_regression(fields["y"]):
            fields["task"] = "regression"
        missing = np.count_nonzero(~find_labelled(fields["y"]))
        if like is not None:
            fields["num_classes"] = like.number
        elif missing:
            notices.append(f"{missing:,} of {len(ids):,} nodes have no label")
    if split_column is not None:
        masks = read_split(table, split_column, kept[split_column], training=options.like is None)
        if label_columns:
            check_labelled(table, split_column, fields["y"], masks)
        fields |= masks
    if rows is not None:
        each = {"y", "train_mask", "val_mask", "test_mask"} & fields.keys()
        fields |= {key: fields[key][rows] for key in each}
        ids = NodeIds(ids.values.filter(pa.array(rows)))
    return ids, fields


def _find_split(table: Table, options: NodeOptions, used: list[str]) -> str | None:
    """The column `split`, else `splits` if it is no feature and most of its first cells are words of a split; None if there is none."""
    name = table.find(SPLIT)
    if name is not None and name not in used:
        return name
    other = table.find(SPLITS)
    encoded = [] if options.like is None else [column.column for column in options.like.columns]
    if other is None or other in (*used, *encoded, *split_names(options.features)):
        return None
    first = next(table.batches([other], ROWS_AT_ONCE), None)
    return other if first is not None and holds_split(plain(first.column(other))) else None


def _read_columns(table: Table, names: list[str]) -> dict[str, pa.Array]:
    """Whole columns, with at least one row."""
    batches = list(table.batches(names, ROWS_AT_ONCE))
    if not sum(map(len, batches)):
        raise ShoalError(f"{table.path} has no rows: expected one per node")
    return {
        name: pa.chunked_array([plain(batch.column(name)) for batch in batches]).combine_chunks()
        for name in names
    }


def _read_features(table: Table, columns: list[Column], rows: np.ndarray | None, tally: Tally) -> Any:
    """All features of the rows that `rows` marks; None: of all rows."""
    total = table.num_rows if rows is None else int(np.count_nonzero(rows))
    x: FeatureRows | None = None
    done = 0
    for batch in table.batches([column.column for column in columns], ROWS_AT_ONCE):
        block = _encode_batch(table, batch, columns, done, tally)
        if x is None:
            x = FeatureRows(block.shape[1], total)
        x.append(block if rows is None else block[rows[done : done + len(batch)]])
        done += len(batch)
        if table.num_rows is not None:
            follow_work("nodes", done, table.num_rows)
    assert x is not None
    return x.finish()


def _encode_batch(
    table: Table, batch: pa.RecordBatch, columns: list[Column], done: int, tally: Tally
) -> np.ndarray:
    """The float32 features `(rows, features)` of one batch."""
    blocks = [column.encode(table, batch.column(column.column), done, tally) for column in columns]
    return blocks[0] if len(blocks) == 1 else np.hstack(blocks)


def _read_ids(table: Table, name: str, column: pa.Array) -> NodeIds:
    if column.null_count:
        path, row = table.locate(first_null(column))
        raise ShoalError(f"{path}: column {name!r} is empty in row {row}: expected a node id")
    if pa.types.is_large_string(column.type):
        numbers = to_integers(column) if table.is_csv else None
        return NodeIds(column if numbers is None else numbers)
    return NodeIds(whole_ids(table, name, column))


def whole_ids(table: Table, name: str, column: pa.Array) -> pa.Array:
    """Ids of a column of numbers as int64; floats must be whole numbers."""
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise ShoalError(f"{table.path}: column {name!r} holds {column.type}: expected integer or string ids")
    try:
        return column.cast(pa.int64())
    except pa.ArrowInvalid:
        found = "ids beyond 64 bits" if pa.types.is_integer(column.type) else str(column.type)
        raise ShoalError(
            f"{table.path}: column {name!r} holds {found}: expected integer or string ids"
        ) from None
