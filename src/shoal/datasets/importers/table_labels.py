"""Labels and split of a node table: class names or numbers, single-label or multi-label, `train`/`val`/`test`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.datasets.importers.cell_numbers import parse_marked
from shoal.datasets.importers.table_targets import read_targets
from shoal.datasets.importers.tabular import Table, is_number, to_integers
from shoal.errors import ShoalError
from shoal.labels import UNLABELLED, find_labelled
from shoal.wording import list_some

SEPARATOR = "|"
MASK_OF = {
    "train": "train_mask",
    "val": "val_mask",
    "valid": "val_mask",
    "validation": "val_mask",
    "test": "test_mask",
}
_MOST_NAMES_SAID = 50
_FEW_LABELS = 20  # with fewer, classes are not checked for being shared
_FEW_ROWS = 10  # of a class, on average


@dataclass(frozen=True)
class Classes:
    """The classes of a stored graph, which is at `place`: how many, their names if any, whether a node may have several."""

    place: str
    number: int
    names: list[str] | None
    several: bool
    regression: bool = False


def read_labels(
    table: Table,
    columns: dict[str, pa.Array],
    notices: list[str],
    like: Classes | None = None,
    task: str | None = None,
    decimal: str | None = None,
) -> tuple[np.ndarray, list[str] | None]:
    """Labels and the names of the classes, None if they have none; with `like`, its classes.

    One column: class numbers, names, or names joined by `|` (multi-label). Several columns: 0/1 each (multi-label).
    Numbers with fractions are regression targets (`read_targets`), and so are all numbers if `task` is regression.
    """
    if like is not None:
        task = "regression" if like.regression else "classification"
    if (y := read_targets(table, columns, task, decimal)) is not None:
        notices.append("the labels are numbers: a regression, scored by R² (--task classification: classes)")
        names = list(columns) if len(columns) > 1 else None
        if like is not None and (like.number, like.names) != (len(columns), names):
            raise ShoalError(
                f"{table.path}: the labels are {', '.join(columns)}: expected {', '.join(like.names or ['one target'])} as in {like.place}"
            )
        return (y[:, 0] if names is None else y), names
    if len(columns) > 1:
        if like is not None and like.names != list(columns):
            raise ShoalError(
                f"{table.path}: the label columns are {', '.join(columns)}: expected {', '.join(like.names or ())} as in {like.place}"
            )
        return _read_matrix(table, columns), list(columns)
    ((name, column),) = columns.items()
    if pa.types.is_large_string(column.type):
        unknown = pc.is_in(column, pa.array(UNLABELLED, column.type))
        column = pc.replace_with_mask(column, unknown, pa.scalar(None, column.type))
        numbers = _to_class_numbers(table, name, column, decimal)
        if numbers is None:
            if like is not None:
                return _read_known(column, like, notices), like.names
            y, names = _read_names(column, notices)
            _check_shared(table, name, y, len(names), notices)
            return y, names
        column = numbers
    if not is_number(column.type):
        raise ShoalError(
            f"{table.path}: column {name!r} holds {column.type}: expected class numbers or names"
        )
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        values = np.where(np.isnan(values), -1, values)
        _refuse_real(table, name, values)
    else:
        values = pc.fill_null(column.cast(pa.int64(), safe=False), -1).to_numpy(zero_copy_only=False)
    wrong = values < -1
    if wrong.any():
        row = int(np.argmax(wrong))
        path, number = table.locate(row)
        raise ShoalError(
            f"{path}: column {name!r} holds {values[row]:g} in row {number}: expected a class number from 0, or nothing for an unlabelled node"
        )
    values = values.astype(np.int64)
    if like is not None:
        words = pa.array([None if value < 0 else str(value) for value in values.tolist()], pa.large_string())
        return _read_known(words, like, notices), like.names
    _check_shared(table, name, values, len(np.unique(values[values >= 0])), notices)
    return _close_gaps(values, notices)


def _to_class_numbers(table: Table, name: str, column: pa.Array, decimal: str | None) -> pa.Array | None:
    """Class numbers in text as int64, 1.0 as 1; None if they are names."""
    numbers = to_integers(column)
    if numbers is not None:
        return numbers
    values = parse_marked(column, decimal)
    if values is None or not np.isfinite(values[~np.isnan(values)]).all():
        return None
    if (values[~np.isnan(values)] == np.floor(values[~np.isnan(values)])).all():
        points = pc.match_substring_regex(column, "[.,]")
        return pa.array(values) if pc.all(points).as_py() else None  # 007 and 7 are two names
    _refuse_real(table, name, np.where(np.isnan(values), -1, values))
    return None


def _refuse_real(table: Table, name: str, values: np.ndarray) -> None:
    """Raise if labels are not whole numbers."""
    wrong = values != np.floor(values)
    if wrong.any():
        row = int(np.argmax(wrong))
        path, number = table.locate(row)
        raise ShoalError(
            f"{path}: column {name!r} holds {values[row]:g} in row {number}: expected class numbers or names, not real numbers "
            f"(--task regression takes them); --label names another column, --option exclude={name} leaves it out"
        )


def _check_shared(table: Table, name: str, y: np.ndarray, num_classes: int, notices: list[str]) -> None:
    """Raise if hardly two nodes share a class; add a notice if few nodes do, or all do."""
    labelled = int(np.count_nonzero(y >= 0)) if y.ndim == 1 else 0
    if labelled >= _FEW_LABELS and 2 * num_classes > labelled:
        raise ShoalError(
            f"{table.path}: column {name!r} has {num_classes:,} different values in {labelled:,} rows: expected classes that many nodes share "
            f"(--task regression takes numbers); --label names another column, --option exclude={name} leaves it out"
        )
    if num_classes > _FEW_LABELS and labelled < _FEW_ROWS * num_classes:
        notices.append(
            f"column {name!r} has {num_classes:,} classes in {labelled:,} labelled rows, {labelled / num_classes:.1f} rows per class: "
            "few to learn from; if they are amounts, --task regression takes them as numbers"
        )
    if labelled and num_classes == 1:
        notices.append(f"column {name!r}: all labels are of one class, so there is nothing to learn")


def _read_known(column: pa.Array, like: Classes, notices: list[str]) -> np.ndarray:
    """Labels in the known classes of `like`; nodes with other classes are unlabelled."""
    names = like.names or [str(number) for number in range(like.number)]
    if like.several:
        y, given = _read_names(column, [], several=True)
        known = np.zeros((len(y), len(names)), np.uint8)
        for i, name in enumerate(given):
            if name in names:
                known[:, names.index(name)] = y[:, i]
        strange = [name for name in given if name not in names]
    else:
        codes = pc.index_in(column, pa.array(names, column.type), skip_nulls=True)
        known = np.array(pc.fill_null(codes, -1).to_numpy(zero_copy_only=False), np.int64)
        strange = sorted({*pc.unique(column.drop_null()).to_pylist()} - {*names})
    if strange:
        notices.append(f"nodes with a class that {like.place} lacks are unlabelled: {list_some(strange)}")
    return known


def _close_gaps(values: np.ndarray, notices: list[str]) -> tuple[np.ndarray, list[str] | None]:
    """Class numbers 0 … k-1 as they are; others are renumbered in order, with the old numbers as names."""
    found = np.unique(values[values >= 0])
    if np.array_equal(found, np.arange(len(found))):
        return values, None
    names = [str(number) for number in found.tolist()]
    _say_classes(names, notices)
    return np.where(values >= 0, np.searchsorted(found, values), -1), names


def _read_names(column: pa.Array, notices: list[str], several: bool = False) -> tuple[np.ndarray, list[str]]:
    """Names to class numbers in sorted order; a missing one is -1, or a row of zeros if multi-label."""
    if not several and not pc.any(pc.match_substring(column, SEPARATOR)).as_py():
        names = sorted(pc.unique(column.drop_null()).to_pylist())
        found = pc.index_in(column, pa.array(names, column.type), skip_nulls=True)
        _say_classes(names, notices)
        return np.array(pc.fill_null(found, -1).to_numpy(zero_copy_only=False), np.int64), names
    lists = pc.split_pattern(column, SEPARATOR)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    flat = pc.ascii_trim_whitespace(lists.flatten())
    names = sorted(name for name in pc.unique(flat).to_pylist() if name)
    found = pc.fill_null(pc.index_in(flat, pa.array(names, flat.type)), -1).to_numpy(zero_copy_only=False)
    rows = np.repeat(np.arange(len(column)), lengths)
    y = np.zeros((len(column), len(names)), np.uint8)
    y[rows[found >= 0], found[found >= 0]] = 1
    _say_classes(names, notices)
    return y, names


def _say_classes(names: list[str], notices: list[str]) -> None:
    said = ", ".join(f"{i} = {name}" for i, name in enumerate(names[:_MOST_NAMES_SAID]))
    more = (
        f" and {len(names) - _MOST_NAMES_SAID} more in sorted order" if len(names) > _MOST_NAMES_SAID else ""
    )
    notices.append(f"numbered the classes: {said}{more}")


def _read_matrix(table: Table, columns: dict[str, pa.Array]) -> np.ndarray:
    y = np.empty((len(next(iter(columns.values()))), len(columns)), np.uint8)
    for i, (name, column) in enumerate(columns.items()):
        try:
            values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = np.array([{"0": 0.0, "1": 1.0}.get(str(cell), np.nan) for cell in column.to_pylist()])
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            row = int(np.argmax(wrong))
            path, number = table.locate(row)
            raise ShoalError(
                f"{path}: label column {name!r} holds {column[row].as_py()!r} in row {number}: expected 0 or 1"
            )
        y[:, i] = values
    return y


def find_training_rows(column: pa.Array) -> np.ndarray:
    """Mask of the rows that are `train` in a split column."""
    if not pa.types.is_large_string(column.type):
        return np.zeros(len(column), np.bool_)  # read_split refuses it
    return np.asarray(pc.fill_null(pc.equal(pc.utf8_lower(column), "train"), False))


def holds_split(column: pa.Array) -> bool:
    """Whether at least half of a column's cells that are not empty hold the words of a split; others may be typos."""
    if not pa.types.is_large_string(column.type):
        return False
    lower = pc.utf8_lower(column.drop_null())
    known = pc.sum(pc.is_in(lower, pa.array(list(MASK_OF), lower.type))).as_py() or 0
    return 2 * known >= len(lower) > 0


def read_split(table: Table, name: str, column: pa.Array, *, training: bool = True) -> dict[str, np.ndarray]:
    """Masks from a column of `train`, `val` and `test`; an empty cell is in none of them.

    With `training=False`, for data that a trained model is applied to, there may be no training rows.
    """
    if not pa.types.is_large_string(column.type):
        raise ShoalError(f"{table.path}: column {name!r} holds {column.type}: expected train, val or test")
    lower = pc.utf8_lower(pc.fill_null(column, ""))
    known = pa.array(["", *MASK_OF], lower.type)
    unknown = int(pc.index(pc.is_in(lower, known), False).as_py())
    if unknown >= 0:
        path, number = table.locate(unknown)
        raise ShoalError(
            f"{path}: column {name!r} holds {column[unknown].as_py()!r} in row {number}: expected train, val, test or nothing"
        )
    masks = {mask: np.zeros(len(column), np.bool_) for mask in MASK_OF.values()}
    for word, mask in MASK_OF.items():
        masks[mask] |= pc.equal(lower, word).to_numpy(zero_copy_only=False)
    if not masks["train_mask"].any():
        if not training:
            return {}
        raise ShoalError(
            f"{table.path}: column {name!r} has train in no row: expected at least one training node"
        )
    return masks


def check_labelled(table: Table, split: str, y: np.ndarray, masks: dict[str, np.ndarray]) -> None:
    """Raise if a row is in the split but has no label."""
    for mask, rows in masks.items():
        if (unlabelled := rows & ~find_labelled(y)).any():
            path, number = table.locate(int(np.argmax(unlabelled)))
            raise ShoalError(
                f"{path}: row {number} is {mask.removesuffix('_mask')} in column {split!r} but has no label: give it one, or leave its split empty"
            )
