"""Checks of a part before its numbers reach a kernel; each error names the array."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from shoal.checks import MAX_EDGES, MAX_NODES, check_whole
from shoal.errors import ShoalError
from shoal.kernels.csr import first_bad_row, is_symmetric
from shoal.labels import is_regression
from shoal.validation import MASKS, check_truth, first_fall

if TYPE_CHECKING:
    from shoal.partitioning.part import Part

_ARRAYS = (
    *("n_id", "halo_id", "halo_offsets", "send_rows", "send_offsets", "local_indptr", "local_indices"),
    *(
        "halo_indptr",
        "halo_indices",
        "degree",
        "has_loop",
        "keep",
        "local_weight",
        "halo_weight",
        "y",
        *MASKS,
    ),
)
_REQUIRED = 10  # of these
_INDICES = (np.dtype(np.int32), np.dtype(np.int64))


def check_part(part: Part) -> None:
    """Raise ShoalError at the first inconsistent size or number out of range."""
    check_whole("num_parts", part.num_parts, 1, MAX_NODES)
    check_whole("rank", part.rank, 0, part.num_parts - 1)
    check_whole("num_global_nodes", part.num_global_nodes, 0, MAX_EDGES)
    for name in _ARRAYS:
        value = getattr(part, name)
        if not isinstance(value, np.ndarray) and (value is not None or name in _ARRAYS[:_REQUIRED]):
            raise _refuse(name, f"is a {type(value).__name__}", "an array")
    local, halo, columns = part.num_local, part.num_halo, part.num_local + part.num_halo
    _check_numbers("n_id", part.n_id, local, part.num_global_nodes, increasing=True)
    _check_numbers("halo_id", part.halo_id, halo, part.num_global_nodes)
    _check_pointers("halo_offsets", part.halo_offsets, part.num_parts, halo)
    _check_pointers("send_offsets", part.send_offsets, part.num_parts, len(part.send_rows))
    _check_numbers("send_rows", part.send_rows, len(part.send_rows), local)
    for name, width in (("local", local), ("halo", halo)):
        indices = getattr(part, f"{name}_indices")
        _check_pointers(f"{name}_indptr", getattr(part, f"{name}_indptr"), local, len(indices))
        _check_numbers(f"{name}_indices", indices, len(indices), width)
        if first_bad_row(getattr(part, f"{name}_indptr"), indices) >= 0:
            raise _refuse(f"{name}_indices", "has a row that repeats or falls", "increasing columns")
    if not part.directed and not is_symmetric(part.local_indptr, part.local_indices):
        raise _refuse("local_indices", "lacks the reverse of some edge", "both directions")
    _check_weights(part)
    for name, size in (("has_loop", columns), ("keep", halo), *((mask, local) for mask in MASKS)):
        _check_mask(name, getattr(part, name), size)
    _check_features(part.x, local)
    _check_labels(part)


def _check_weights(part: Part) -> None:
    """Raise if degrees do not match the columns, or weights the entries."""
    columns = part.num_local + part.num_halo
    if part.local_weight is None and part.halo_weight is None:
        _check_numbers("degree", part.degree, columns, np.iinfo(np.int64).max)
        return
    degree = part.degree
    if degree.shape != (columns,) or degree.dtype != np.float64 or not (degree >= 0).all():
        raise _refuse("degree", f"is {degree.dtype} of shape {degree.shape}", f"{columns:,} sums of weights")
    for name in ("local", "halo"):
        weights, size = getattr(part, f"{name}_weight"), len(getattr(part, f"{name}_indices"))
        if weights is None or weights.shape != (size,) or weights.dtype != np.float32:
            raise _refuse(f"{name}_weight", "does not fit", f"{size:,} of float32")
        if not (np.isfinite(weights) & (weights > 0)).all():
            raise _refuse(f"{name}_weight", "has a number that is no weight", "numbers above 0")


def _check_pointers(name: str, pointers: np.ndarray, rows: int, entries: int) -> None:
    if pointers.shape != (rows + 1,) or pointers.dtype not in _INDICES:
        raise _refuse(name, f"is {pointers.dtype} of shape {pointers.shape}", f"{rows + 1:,} integers")
    if pointers[0] != 0 or int(pointers[-1]) != entries or first_fall(pointers) >= 0:
        raise _refuse(name, "does not rise as it should", f"0 to {entries:,}")


def _check_numbers(
    name: str, numbers: np.ndarray, size: int, below: int, *, increasing: bool = False
) -> None:
    if numbers.shape != (size,) or numbers.dtype not in _INDICES:
        raise _refuse(name, f"is {numbers.dtype} of shape {numbers.shape}", f"{size:,} integers")
    if size and (int(numbers.min()) < 0 or int(numbers.max()) >= below):
        raise _refuse(name, f"runs from {numbers.min()} to {numbers.max()}", f"0 to {below - 1:,}")
    if increasing and (numbers[1:] <= numbers[:-1]).any():
        raise _refuse(name, "repeats or falls", "increasing numbers")


def _check_mask(name: str, mask: np.ndarray | None, size: int) -> None:
    if mask is None:
        return
    if mask.shape != (size,) or mask.dtype != np.bool_:
        raise _refuse(name, f"is {mask.dtype} of shape {mask.shape}", f"{size:,} truth values")
    check_truth(name, mask)


def _check_features(x: np.ndarray | sp.csr_array | None, rows: int) -> None:
    if x is None:
        return
    if not isinstance(x, np.ndarray | sp.csr_array):
        raise _refuse("x", f"is a {type(x).__name__}", "an array or a csr_array")
    if x.ndim != 2 or x.shape[0] != rows or x.dtype != np.float32:
        raise _refuse("x", f"is {x.dtype} of shape {x.shape}", f"{rows:,} rows of float32")
    if isinstance(x, sp.csr_array):
        _check_pointers("x_indptr", x.indptr, rows, len(x.indices))
        _check_numbers("x_indices", x.indices, len(x.indices), x.shape[1])
        if x.data.shape != x.indices.shape:
            raise _refuse("x_data", f"has shape {x.data.shape}", f"{len(x.indices):,} values")


def _check_labels(part: Part) -> None:
    y = part.y
    if y is None:
        return
    if is_regression(y):
        if y.dtype != np.float32 or y.shape not in ((part.num_local,), (part.num_local, part.num_classes)):
            raise _refuse("y", f"is {y.dtype} of shape {y.shape}", "float32 targets of every local row")
    elif part.multi_label:
        if y.shape != (part.num_local, part.num_classes) or y.dtype != np.uint8 or y.max(initial=0) > 1:
            raise _refuse("y", f"is {y.dtype} of shape {y.shape}", "0 or 1 for every local row and class")
    elif y.shape != (part.num_local,) or y.dtype != np.int64:
        raise _refuse("y", f"is {y.dtype} of shape {y.shape}", f"{part.num_local:,} class numbers")
    elif y.size and (int(y.min()) < -1 or int(y.max()) >= part.num_classes):
        raise _refuse("y", f"runs from {y.min()} to {y.max()}", f"-1 to {part.num_classes - 1}")


def _refuse(name: str, found: str, expected: str) -> ShoalError:
    return ShoalError(f"{name} {found}: expected {expected}")
