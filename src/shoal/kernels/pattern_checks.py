"""Validation of user-made patterns, which kernels use as indices without checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from shoal.errors import ShoalError


def check_pattern(indptr: Tensor, indices: Tensor, num_columns: int, *, symmetric: bool = False) -> None:
    """Raise if the sizes of a CSR pattern do not match or a column is out of range.

    One pass over both arrays.
    """
    if isinstance(num_columns, bool) or not isinstance(num_columns, int | np.integer) or num_columns < 0:
        raise ShoalError(f"num_columns is {num_columns!r}: expected a whole number of at least 0")
    for name, tensor, dtypes in (
        ("indptr", indptr, (torch.int64,)),
        ("indices", indices, (torch.int32, torch.int64)),
    ):
        if not isinstance(tensor, Tensor) or tensor.dim() != 1 or tensor.dtype not in dtypes:
            wanted = " or ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
            raise ShoalError(
                f"{name} is {_describe(tensor)}: expected a tensor of {wanted} and one dimension"
            )
        if not tensor.is_contiguous():
            raise ShoalError(f"{name} is not contiguous: give {name}.contiguous()")
    if not len(indptr) or int(indptr[0]) != 0 or int(indptr[-1]) != len(indices):
        found = f"runs from {int(indptr[0])} to {int(indptr[-1])}" if len(indptr) else "is empty"
        raise ShoalError(f"indptr {found}: expected 0 to {len(indices):,}, the length of indices")
    if bool((indptr[1:] < indptr[:-1]).any()):
        raise ShoalError("indptr decreases: expected a non-decreasing tensor")
    if len(indices):
        low, high = (int(end) for end in torch.aminmax(indices))
        if low < 0 or high >= num_columns:
            raise ShoalError(
                f"indices run from {low} to {high}: expected columns 0 to {num_columns - 1:,} (num_columns is {num_columns:,})"
            )
    if symmetric and len(indptr) - 1 != num_columns:
        raise ShoalError(
            f"the pattern has {len(indptr) - 1:,} rows and {num_columns:,} columns: a symmetric one is square"
        )


def check_sparse(matrix: Any) -> None:
    """Raise if index arrays of a SciPy matrix are out of range, which SciPy's own routines do not check."""
    try:
        if isinstance(matrix, sp.sparray | sp.spmatrix) and hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
    except (ValueError, IndexError, TypeError) as error:
        raise ShoalError(f"the {type(matrix).__name__} is damaged: {error}") from None


def check_lengths(expected: int, what: str, **tensors: Tensor | None) -> None:
    """Raise unless each tensor has `expected` values, one per `what`."""
    for name, tensor in tensors.items():
        if tensor is not None and (not isinstance(tensor, Tensor) or tensor.shape != (expected,)):
            raise ShoalError(
                f"{name} is {_describe(tensor)}: expected one value for each of {expected:,} {what}"
            )


def _describe(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{str(value.dtype).removeprefix('torch.')} of shape {tuple(value.shape)}"
