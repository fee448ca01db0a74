"""Kinds of labels: single-label classes, a multi-label 0/1 matrix, or regression targets."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Annotated, Any

import numpy as np

from shoal.errors import ShoalError, unknown_name
from shoal.settings import Choices, Null
from shoal.wording import list_some

TASKS = ("classification", "regression")
UNLABELLED = ("", "NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "<NA>", "#N/A")  # text of a missing label
TaskChoice = Annotated[
    str | None, Choices(TASKS), Null("regression if labels have fractions"), "classification or regression"
]


def is_regression(y: np.ndarray | None) -> bool:
    """Whether labels are numbers to predict: float32, one or several columns, NaN where unlabelled."""
    return y is not None and y.dtype.kind == "f"


def is_multi_label(y: np.ndarray | None) -> bool:
    """Whether labels are a 0/1 matrix with one column per class."""
    return y is not None and y.ndim == 2 and not is_regression(y)


def find_labelled(y: np.ndarray) -> np.ndarray:
    """Mask of the labelled nodes. With several targets, a node is labelled if any of them is known."""
    if is_regression(y):
        known = ~np.isnan(y)
        return known if known.ndim == 1 else known.any(axis=1)
    return np.ones(len(y), np.bool_) if y.ndim == 2 else y >= 0


def count_classes(y: np.ndarray | None) -> int:
    """Columns that a model predicts: one more than the largest class number, columns of a matrix, or targets."""
    if y is None:
        return 0
    if y.ndim == 2:
        return int(y.shape[1])
    return 1 if is_regression(y) else max(int(y.max(initial=-1)) + 1, 0)


def describe_outputs(number: int, *, regression: bool) -> str:
    """What a model predicts for a node, in two words: `7 classes`, `1 target`."""
    noun = ("target" if number == 1 else "targets") if regression else "classes"
    return f"{number:,} {noun}"


def number_classes(
    y: Any, names: Sequence[str] | None = None, task: str | None = None
) -> tuple[np.ndarray, Sequence[str] | None]:
    """Labels that are text or other objects as class numbers, and the class names; other labels as they are.

    A missing label (None, NaN, empty text) is unlabelled. Classes are numbered in sorted order, or as in `names`. Objects
    that are all numbers stay numbers.
    """
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    values = y.tolist() if y.ndim == 1 and y.dtype.kind in "OU" else []
    if not values or any(hasattr(value, "__len__") and not isinstance(value, str) for value in values):
        return y, names
    texts = np.array([str(value) for value in values])
    known = np.array([value is not None for value in values]) & ~np.isin(texts, UNLABELLED)
    if all(isinstance(values[node], Real) for node in np.flatnonzero(known)):
        return np.array([value if it else np.nan for value, it in zip(values, known)], np.float64), names
    if task == "regression":
        return y, names
    found, numbers = np.unique(texts[known], return_inverse=True)
    classes = found.tolist() if names is None else [str(name) for name in names]
    if lacking := sorted({*found.tolist()} - {*classes}):
        node = int(np.argmax(texts == lacking[0]))
        raise ShoalError(
            f"node {node} has label {lacking[0]!r}: expected one of class_names, {list_some(classes)}"
        )
    labels = np.full(len(y), -1, np.int64)
    labels[known] = np.array([classes.index(name) for name in found.tolist()], np.int64)[numbers]
    return labels, classes


def tidy_labels(y: Any, task: str | None = None) -> np.ndarray:
    """Labels as int64 classes, a uint8 matrix or float32 targets; anything odd is left for validation.

    Integers are classes, and so are floats that are all whole numbers or NaN (unlabelled). A matrix of 0 and 1 is
    multi-label. Other floats are regression targets. `task` overrides this.
    """
    if task is not None and task not in TASKS:
        raise unknown_name("task", task, TASKS)
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.dtype.kind not in "fiub" or y.ndim not in (1, 2):
        return y
    if task == "regression":
        return _to_targets(y)
    if y.ndim == 2:
        if ((y == 0) | (y == 1)).all():
            return y.astype(np.uint8)
        return _to_targets(y) if y.dtype.kind == "f" and task is None else y
    if y.dtype.kind != "f":
        return y.astype(np.int64)
    whole = np.isnan(y) | ((y == np.floor(y)) & np.isfinite(y))
    if whole.all():
        return np.where(np.isnan(y), -1, y).astype(np.int64)
    if task == "classification":
        node = int(np.argmin(whole))
        raise ShoalError(f"node {node} has label {y[node]:g}: classes are whole numbers, from 0")
    return _to_targets(y)


def _to_targets(y: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # validation names the node whose target became infinite
        return y.astype(np.float32)
