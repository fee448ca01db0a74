"""Arrays as tensors that share their memory."""

import warnings

import numpy as np
import torch
from torch import Tensor


def as_tensor(array: np.ndarray) -> Tensor:
    """`array` as a tensor that shares its memory. Read-only arrays of memory-mapped graphs must not be written."""
    return torch.from_numpy(array)


with warnings.catch_warnings():  # torch warns once in a process that a read-only array must not be written
    warnings.simplefilter("ignore")
    _read_only = np.zeros(1)
    _read_only.flags.writeable = False
    as_tensor(_read_only)
