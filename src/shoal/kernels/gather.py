"""Gathering feature rows of a batch: dense, encoded or CSR, in memory or memory-mapped, in parallel."""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from shoal.errors import ShoalError
from shoal.kernels.arrays import as_tensor
from shoal.kernels.bits import prefetch
from shoal.kernels.dispatch import implements, kernel_of
from shoal.kernels.encoding import HALF, PLAIN, EncodedRows, flatten_codes, take_rows
from shoal.kernels.jit import kernel, new_counter, next_chunk, parallel_kernel

_ROWS_PER_CHUNK = 256
_VALUES_AHEAD = 32
_NARROW = 256  # columns below which NumPy takes rows in less time than the kernel
# The dtype of gathered rows, by the source's.
_GATHERED: dict[Any, torch.dtype] = {
    np.dtype(np.float16): torch.float32,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
    torch.float16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}


Rows = np.ndarray | Tensor | EncodedRows


def gather_rows(
    source: Rows, rows: np.ndarray | Tensor, out: Tensor | None = None, *, num_threads: int | None = None
) -> Tensor:
    """`out[i] = source[rows[i]]` as float32 (float64 stays float64).

    `source` (n, f) is a float16, float32 or float64 array, tensor or `np.memmap`, or EncodedRows, which are decoded;
    `rows` (k,) are integers. The result is allocated by torch (64-byte aligned), or is the given `out` (k, f): reusing one
    saves the page faults of fresh memory. Threads (torch's number if None) take rows in small chunks, which also keeps
    several page faults of a memory-mapped file in flight. Use one thread while another one runs parallel kernels.
    Traffic: k · f values read and written.
    """
    dtype = _GATHERED.get(source.dtype)
    if source.ndim != 2 or dtype is None:
        kind = str(source.dtype).removeprefix("torch.")
        raise ShoalError(
            f"source is {kind} of shape {tuple(source.shape)}: expected a float16, float32 or float64 matrix"
        )
    shape = (len(rows), source.shape[1])
    if out is None:
        device = source.device if isinstance(source, Tensor) else None
        out = torch.empty(shape, dtype=dtype, device=device)
    elif out.shape != shape or out.dtype != dtype or not out.is_contiguous():
        raise ShoalError(
            f"out is {out.dtype} of shape {tuple(out.shape)}: expected contiguous {dtype}, {shape}"
        )
    kernel_of("gather_rows", out)(source, rows, out, num_threads)
    return out


@implements("gather_rows")
def gather_rows_reference(
    source: Rows, rows: np.ndarray | Tensor, out: Tensor, num_threads: int | None = None
) -> None:
    """The same by torch's indexing, on any device."""
    numbers = rows if isinstance(rows, Tensor) else as_tensor(np.ascontiguousarray(rows, np.int64))
    if len(numbers):
        low, high = torch.aminmax(numbers)
        _check_range(int(low), int(high), len(source))
    if isinstance(source, EncodedRows):
        out.copy_(as_tensor(source[numbers.cpu().numpy()]))
        return
    data = source.detach() if isinstance(source, Tensor) else as_tensor(np.ascontiguousarray(source))
    out.copy_(data[numbers.long()])


@implements("gather_rows", "cpu")
def _gather_rows_cpu(
    source: Rows, rows: np.ndarray | Tensor, out: Tensor, num_threads: int | None = None
) -> None:
    codes = source.codes if isinstance(source, EncodedRows) else source
    data = codes.detach().numpy() if isinstance(codes, Tensor) else np.asarray(codes)
    numbers = _row_numbers(rows.numpy() if isinstance(rows, Tensor) else rows, len(data))
    if not data.flags.c_contiguous:
        data, numbers = np.ascontiguousarray(data[numbers]), np.arange(len(numbers))
    if not out.numel():
        return
    kind = source.kind if isinstance(source, EncodedRows) else HALF if data.dtype == np.float16 else PLAIN
    flat, width, f = flatten_codes(data), data.shape[1], out.shape[1]
    threads = num_threads or torch.get_num_threads()
    if threads == 1 and kind == PLAIN and f < _NARROW and data.dtype == np.float32:
        np.take(
            data, numbers, axis=0, out=out.numpy(), mode="clip"
        )  # numbers are checked: "raise" would copy
    elif threads == 1 or len(numbers) <= _ROWS_PER_CHUNK:
        take_rows(flat, width, kind, numbers, out.view(-1).numpy(), f, 0, len(numbers))
    else:
        _take_chunks(flat, width, kind, numbers, out.view(-1).numpy(), f, threads)


def gather_csr_rows(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of a CSR matrix as a CSR matrix of their own: (indptr, indices, data).

    Work: the entries gathered. Sequential and without the GIL, for the sampling threads that call it.
    """
    numbers = _row_numbers(rows, len(indptr) - 1)
    new_indptr = np.zeros(len(numbers) + 1, np.int64)
    np.cumsum(indptr[numbers + 1] - indptr[numbers], out=new_indptr[1:])
    new_indices = np.empty(int(new_indptr[-1]), indices.dtype)
    new_data = np.empty(int(new_indptr[-1]), data.dtype)
    _copy_csr_rows(
        indptr,
        indices.view(np.ndarray),
        data.view(np.ndarray),
        numbers,
        new_indptr,
        new_indices,
        new_data,
    )
    return new_indptr, new_indices, new_data


def take_values(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """`values[places]` for one-dimensional values, by one thread, with prefetching; places are not checked."""
    out = np.empty(len(places), values.dtype)
    _copy_values(values, places, out)
    return out


def _row_numbers(rows: np.ndarray, num_rows: int) -> np.ndarray:
    numbers = np.ascontiguousarray(rows, np.int64)
    if len(numbers):
        _check_range(int(numbers.min()), int(numbers.max()), num_rows)
    return numbers


def _check_range(low: int, high: int, num_rows: int) -> None:
    if low < 0 or high >= num_rows:
        raise ShoalError(f"row {low if low < 0 else high} asked for: expected rows 0 to {num_rows - 1}")


@parallel_kernel
def _take_chunks(source, width, kind, rows, out, f, num_threads):
    counter = new_counter()
    num_chunks = (len(rows) + _ROWS_PER_CHUNK - 1) // _ROWS_PER_CHUNK
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            start = chunk * _ROWS_PER_CHUNK
            take_rows(source, width, kind, rows, out, f, start, min(len(rows), start + _ROWS_PER_CHUNK))
            chunk = next_chunk(counter)


@kernel
def _copy_csr_rows(indptr, indices, data, rows, new_indptr, new_indices, new_data):
    for i in range(len(rows)):
        first, last = indptr[rows[i]], indptr[rows[i] + 1]
        new_indices[new_indptr[i] : new_indptr[i + 1]] = indices[first:last]
        new_data[new_indptr[i] : new_indptr[i + 1]] = data[first:last]


@kernel
def _copy_values(values, places, out):
    last = len(places) - 1
    for i in range(len(places)):
        prefetch(values, places[min(i + _VALUES_AHEAD, last)])
        out[i] = values[np.uint64(places[i])]
