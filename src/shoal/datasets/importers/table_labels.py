"""Labels and split of a node table: class names or numbers, several classes a node, `train`/`val`/`test`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.datasets.importers.tabular import is_number, to_integers
from shoal.errors import ShoalError

SEPARATOR = "|"
MASK_OF = {
    "train": "train_mask",
    "val": "val_mask",
    "valid": "val_mask",
    "validation": "val_mask",
    "test": "test_mask",
}
_MOST_NAMES_SAID = 50


def read_labels(
    path: Path, columns: dict[str, pa.Array], notices: list[str]
) -> tuple[np.ndarray, list[str] | None]:
    """Labels and, where they were given, the names of the classes.

    One column: class numbers, names, or names joined by `|` (several classes). Several columns: 0/1 each.
    """
    if len(columns) > 1:
        return _read_matrix(path, columns), list(columns)
    ((name, column),) = columns.items()
    if pa.types.is_large_string(column.type):
        column = pc.replace_with_mask(column, pc.equal(column, ""), pa.scalar(None, column.type))
        numbers = to_integers(column)
        if numbers is None:
            return _read_names(column, notices)
        column = numbers
    if not is_number(column.type):
        raise ShoalError(f"{path}: column {name!r} holds {column.type}: expected class numbers or names")
    if pa.types.is_floating(column.type):
        values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        values = np.where(np.isnan(values), -1, values)
    else:
        values = pc.fill_null(column.cast(pa.int64(), safe=False), -1).to_numpy(zero_copy_only=False)
    wrong = (values != np.floor(values)) | (values < -1)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ShoalError(
            f"{path}: column {name!r} holds {values[row]:g} in row {row + 1}: expected a class number from 0, or nothing for an unlabelled node"
        )
    return _close_gaps(values.astype(np.int64), notices)


def _close_gaps(values: np.ndarray, notices: list[str]) -> tuple[np.ndarray, list[str] | None]:
    """Class numbers 0 … k-1 as they are; others numbered in order and named by what they were."""
    found = np.unique(values[values >= 0])
    if np.array_equal(found, np.arange(len(found))):
        return values, None
    names = [str(number) for number in found.tolist()]
    _say_classes(names, notices)
    return np.where(values >= 0, np.searchsorted(found, values), -1), names


def _read_names(column: pa.Array, notices: list[str]) -> tuple[np.ndarray, list[str]]:
    """Names to class numbers in sorted order; a missing one is -1, or a row of zeros with several classes."""
    if not pc.any(pc.match_substring(column, SEPARATOR)).as_py():
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


def _read_matrix(path: Path, columns: dict[str, pa.Array]) -> np.ndarray:
    y = np.empty((len(next(iter(columns.values()))), len(columns)), np.uint8)
    for i, (name, column) in enumerate(columns.items()):
        try:
            values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            values = np.array([{"0": 0.0, "1": 1.0}.get(str(cell), np.nan) for cell in column.to_pylist()])
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ShoalError(
                f"{path}: label column {name!r} holds {column[row].as_py()!r} in row {row + 1}: expected 0 or 1"
            )
        y[:, i] = values
    return y


def read_split(path: Path, column: pa.Array) -> dict[str, np.ndarray]:
    """Masks from a column of `train`, `val` and `test`; an empty cell is in none of them."""
    if not pa.types.is_large_string(column.type):
        raise ShoalError(f"{path}: column 'split' holds {column.type}: expected train, val or test")
    lower = pc.utf8_lower(pc.fill_null(column, ""))
    known = pa.array(["", *MASK_OF], lower.type)
    unknown = int(pc.index(pc.is_in(lower, known), False).as_py())
    if unknown >= 0:
        raise ShoalError(
            f"{path}: column 'split' holds {column[unknown].as_py()!r} in row {unknown + 1}: expected train, val, test or nothing"
        )
    masks = {mask: np.zeros(len(column), np.bool_) for mask in MASK_OF.values()}
    for word, mask in MASK_OF.items():
        masks[mask] |= pc.equal(lower, word).to_numpy(zero_copy_only=False)
    if not masks["train_mask"].any():
        raise ShoalError(f"{path}: column 'split' says train in no row: expected at least one training node")
    return masks


def check_labelled(path: Path, y: np.ndarray, masks: dict[str, np.ndarray]) -> None:
    """Refuse a row that is in the split but has no label."""
    for mask, rows in masks.items():
        if y.ndim == 1 and (unlabelled := rows & (y < 0)).any():
            raise ShoalError(
                f"{path}: row {int(np.argmax(unlabelled)) + 1} is {mask.removesuffix('_mask')} in column 'split' but has no label: give it one, or leave its split empty"
            )
