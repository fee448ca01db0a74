"""Targets of a regression in a node table: label columns of numbers with fractions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.datasets.importers.cell_numbers import parse_marked
from shoal.datasets.importers.tabular import Table, is_number
from shoal.errors import ShoalError
from shoal.labels import UNLABELLED


def read_targets(
    table: Table, columns: dict[str, pa.Array], task: str | None, decimal: str | None = None
) -> np.ndarray | None:
    """Targets (rows, columns) as float32, NaN where a cell is empty; None if the labels are classes.

    Numbers are targets if any of them has a fraction, or if `task` is regression; `decimal` is their decimal mark.
    """
    if task == "classification":
        return None
    y = np.empty((len(next(iter(columns.values()))), len(columns)), np.float32)
    has_fractions = False
    for i, (name, column) in enumerate(columns.items()):
        values = _to_numbers(column, decimal)
        if values is None:
            if task is None:
                return None
            raise ShoalError(
                f"{table.path}: label column {name!r} holds values that are not numbers: a regression needs numbers"
            )
        has_fractions = has_fractions or bool((np.isfinite(values) & (values != np.floor(values))).any())
        with np.errstate(over="ignore"):
            y[:, i] = values
    return y if has_fractions or task == "regression" else None


def _to_numbers(column: pa.Array, decimal: str | None) -> np.ndarray | None:
    if pa.types.is_large_string(column.type):
        unknown = pc.is_in(column, pa.array(UNLABELLED, column.type))
        return parse_marked(pc.replace_with_mask(column, unknown, pa.scalar(None, column.type)), decimal)
    if not is_number(column.type) and not pa.types.is_decimal(column.type):
        return None
    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values
