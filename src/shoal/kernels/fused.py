"""Bias, ReLU and dropout in one pass, with a mask that is a pure function of (seed, step, layer, node, column)."""

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.dispatch import FLOATS, implements, kernel_of
from shoal.kernels.jit import kernel, new_counter, next_chunk, parallel_kernel, worker_threads
from shoal.kernels.patterns import row_of_entries

ROWS_PER_CHUNK = 64
_MASK64 = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_MIX_A, _MIX_B = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_COLUMN, _FIRST, _SECOND = 0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35


def mix_key(seed: int, step: int, layer: int) -> int:
    """One 64-bit key for the masks of a layer in a step, mixed from (seed, step, layer)."""
    key = 0
    for part in (seed, step, layer):
        key = _mix64((key ^ part) + _GOLDEN & _MASK64)
    return key


def bias_relu_dropout(
    h: Tensor,
    bias: Tensor | None,
    rate: float,
    key: int,
    n_id: Tensor | None = None,
    *,
    inplace: bool = False,
) -> Tensor:
    """`out[i, j] = max(h[i, j] + bias[j], 0) · keep(key, n_id[i], j) / (1 − rate)`.

    `keep` is 1 with probability 1 − rate, drawn from a hash of the key (`mix_key`), the global node id and
    the column: the same for every number of threads, order of the batch and number of ranks. `n_id` defaults to 0…n-1.
    The trick: backward needs no mask, because `out > 0` means both that ReLU was active and that the element
    was kept. `inplace` overwrites h, if nothing else needs it (the output of a matrix product).

    Shapes: h (n, f) float32 or float64, bias (f,), n_id (n,) int64. Traffic: h read once, out written once.
    """
    check_dropout(h, rate, n_id)
    out: Tensor = kernel_of("bias_relu_dropout", h)(h, bias, rate, key, n_id, inplace)
    return out


@implements("bias_relu_dropout")
def bias_relu_dropout_reference(
    h: Tensor, bias: Tensor | None, rate: float, key: int, n_id: Tensor | None = None, inplace: bool = False
) -> Tensor:
    """The same in plain torch, on any device; h is left as it is."""
    return dropout_reference(torch.relu(h if bias is None else h + bias), rate, key, n_id)


def check_dropout(h: Tensor, rate: float, n_id: Tensor | None) -> None:
    """Raise unless 0 ≤ rate < 1 and `n_id` has one id per row."""
    if not 0 <= rate < 1:
        raise ShoalError(f"dropout rate {rate}: expected 0 ≤ rate < 1")
    if n_id is not None and n_id.shape != h.shape[:1]:
        raise ShoalError(f"n_id has shape {tuple(n_id.shape)}: expected ({h.shape[0]},), one id per row of h")


@implements("dropout")
def dropout_reference(h: Tensor, rate: float, key: int, n_id: Tensor | None = None) -> Tensor:
    """Dropout with the mask of `bias_relu_dropout`, in plain torch, on any device."""
    n_id = torch.arange(h.shape[0], device=h.device) if n_id is None else n_id
    columns = torch.arange(h.shape[1], device=h.device)
    return h * keep_mask_reference(key, n_id[:, None], columns, rate) / (1 - rate)


def keep_mask_reference(key: int, n_id: Tensor, columns: Tensor, rate: float) -> Tensor:
    """Whether `bias_relu_dropout` keeps these columns of these nodes, by torch's integer arithmetic."""
    row = n_id.long() * _signed(_GOLDEN) + _signed(key)
    for shift, factor in ((30, _MIX_A), (27, _MIX_B)):
        row = (row ^ _shift_right(row, shift, 64)) * _signed(factor)
    row = row ^ _shift_right(row, 31, 64)
    low, high = row & 0xFFFFFFFF, _shift_right(row, 32, 64)
    x = (columns.long() * _COLUMN + low) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * _FIRST & 0xFFFFFFFF) ^ high
    x = (x ^ (x >> 15)) * _SECOND & 0xFFFFFFFF
    return (x ^ (x >> 16)) >= keep_threshold(rate)


def dropout(h: Tensor, rate: float, key: int, n_id: Tensor | None = None) -> Tensor:
    """Dropout alone, with the mask of `bias_relu_dropout`: for rows that are normalised after their ReLU.

    Backward draws the mask again from the key. Shapes and traffic as in `bias_relu_dropout`.
    """
    check_dropout(h, rate, n_id)
    if rate == 0:
        return h
    out: Tensor = kernel_of("dropout", h)(h, rate, key, n_id)
    return out


def drop_entries(x: Adjacency, rate: float, key: int, n_id: Tensor) -> Adjacency:
    """Dropout of sparse features, with the mask that `dropout` has for the same dense matrix.

    x gets no gradient. Shapes: x (n, f), n_id (n,) int64.
    """
    if len(n_id) != x.num_rows:
        raise ShoalError(f"n_id has shape {tuple(n_id.shape)}: expected ({x.num_rows},)")
    return x.with_values(kernel_of("drop_entries", x.indices)(x, rate, key, n_id))


@implements("drop_entries")
def _drop_entries_reference(x: Adjacency, rate: float, key: int, n_id: Tensor) -> Tensor:
    kept = keep_mask_reference(key, n_id[row_of_entries(x.indptr)], x.indices, rate)
    return x.entry_weights() * kept / (1 - rate)


@implements("drop_entries", "cpu")
def _drop_entries_cpu(x: Adjacency, rate: float, key: int, n_id: Tensor) -> Tensor:
    mask = make_mask(torch.empty(0), rate, key, n_id)
    values = torch.empty(x.num_entries)
    _drop_sparse(x.indptr.numpy(), x.indices.numpy(), x.entry_weights().numpy(), *mask, values.numpy())
    return values


@implements("dropout", "cpu", FLOATS)
def _dropout_cpu(h: Tensor, rate: float, key: int, n_id: Tensor | None) -> Tensor:
    return _Dropout.apply(h, rate, key, n_id)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, rate: float, key: int, n_id: Tensor | None) -> Tensor:
        h = h.contiguous()
        ctx.mask = make_mask(h, rate, key, n_id)
        out = torch.empty_like(h)
        with worker_threads(h.numel()) as threads:
            _drop(h.detach().numpy(), *ctx.mask, out.numpy(), threads)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad = grad.contiguous()
        out = torch.empty_like(grad)
        with worker_threads(grad.numel()) as threads:
            _drop(grad.numpy(), *ctx.mask, out.numpy(), threads)
        return out, None, None, None


def make_mask(
    h: Tensor, rate: float, key: int, n_id: Tensor | None
) -> tuple[np.floating, np.uint32, np.uint64, np.ndarray]:
    """(factor of kept values, threshold, key, ids): what a kernel needs to draw the mask of h's rows."""
    ids = np.empty(0, np.int64) if n_id is None else n_id.long().contiguous().numpy()
    factor = h.detach().numpy().dtype.type(1 / (1 - rate))
    return factor, np.uint32(keep_threshold(rate)), np.uint64(key & _MASK64), ids


@implements("bias_relu_dropout", "cpu", FLOATS)
def _bias_relu_dropout_cpu(
    h: Tensor, bias: Tensor | None, rate: float, key: int, n_id: Tensor | None, inplace: bool
) -> Tensor:
    return _BiasReluDropout.apply(h, bias, rate, key, n_id, inplace)


class _BiasReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, bias: Tensor | None, rate: float, key: int, n_id: Tensor | None, inplace: bool
    ) -> Tensor:
        if not h.is_contiguous():
            h, inplace = h.contiguous(), False
        out = h if inplace else torch.empty_like(h)
        if inplace:
            ctx.mark_dirty(h)
        mask = make_mask(h, rate, key, n_id)
        shift = torch.zeros(h.shape[1], dtype=h.dtype) if bias is None else bias.detach().contiguous()
        with worker_threads(h.numel()) as threads:
            _forward(h.detach().numpy(), shift.numpy(), *mask, out.detach().numpy(), inplace, threads)
        ctx.save_for_backward(out)
        ctx.scale, ctx.has_bias = mask[0], bias is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        grad_h = torch.empty_like(out)
        num_chunks = -(-out.shape[0] // ROWS_PER_CHUNK)
        sums = torch.zeros(num_chunks, out.shape[1], dtype=out.dtype)
        with worker_threads(out.numel()) as threads:
            _backward(
                out.numpy(),
                grad.contiguous().numpy(),
                ctx.scale,
                grad_h.numpy(),
                sums.numpy(),
                threads,
            )
        return grad_h, sums.sum(0) if ctx.has_bias else None, None, None, None, None


def keep_threshold(rate: float) -> int:
    """The dropout `rate` as a 32-bit integer: values below it are dropped."""
    return min(round(rate * 2**32), 2**32 - 1)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _shift_right(x: Tensor, shift: int, bits: int) -> Tensor:
    return (x >> shift) & ((1 << (bits - shift)) - 1)


def _mix64(x: int) -> int:
    x = (x ^ x >> 30) * _MIX_A & _MASK64
    x = (x ^ x >> 27) * _MIX_B & _MASK64
    return x ^ x >> 31


_GOLDEN_64, _MIX_A_64, _MIX_B_64 = np.uint64(_GOLDEN), np.uint64(_MIX_A), np.uint64(_MIX_B)
_COLUMN_32, _FIRST_32, _SECOND_32 = np.uint32(_COLUMN), np.uint32(_FIRST), np.uint32(_SECOND)
_15, _16 = np.uint32(15), np.uint32(16)


@njit(cache=True, nogil=True, inline="always")
def hash_row(node, key):
    """The two words that `is_kept` mixes with a column: a hash of the key and the global node id."""
    row = np.uint64(node) * _GOLDEN_64 + key
    row = (row ^ (row >> np.uint64(30))) * _MIX_A_64
    row = (row ^ (row >> np.uint64(27))) * _MIX_B_64
    row = row ^ (row >> np.uint64(31))
    return np.uint32(row & np.uint64(0xFFFFFFFF)), np.uint32(row >> np.uint64(32))


@njit(cache=True, nogil=True, inline="always")
def is_kept(j, threshold, low, high):
    """Whether column j stays. One 32-bit hash with two multiplications, so that LLVM vectorises the loop around it."""
    x = np.uint32(np.uint32(np.uint32(j) * _COLUMN_32) + low)
    x = np.uint32(np.uint32(np.uint32(x ^ np.uint32(x >> _16)) * _FIRST_32) ^ high)
    x = np.uint32(np.uint32(x ^ np.uint32(x >> _15)) * _SECOND_32)
    return np.uint32(x ^ np.uint32(x >> _16)) >= threshold


@njit(cache=True, nogil=True, inline="always")
def _activate(value, j, scale, threshold, low, high, zero):
    value = zero if value <= zero else value  # NaN passes, as in torch
    return value * scale if is_kept(j, threshold, low, high) else zero


@njit(cache=True, nogil=True)
def _forward_row(h, shift, scale, threshold, low, high, out):
    zero = h.dtype.type(0)
    for j in range(len(h)):
        out[j] = _activate(h[j] + shift[j], j, scale, threshold, low, high, zero)


@njit(cache=True, nogil=True)
def _overwrite_row(h, shift, scale, threshold, low, high):
    """Its own loop: with `out` the same memory as `h`, LLVM would fall back to one element at a time."""
    zero = h.dtype.type(0)
    for j in range(len(h)):
        h[j] = _activate(h[j] + shift[j], j, scale, threshold, low, high, zero)


@parallel_kernel
def _forward(h, shift, scale, threshold, key, n_id, out, inplace, num_threads):
    n = len(h)
    num_chunks = (n + ROWS_PER_CHUNK - 1) // ROWS_PER_CHUNK
    counter = new_counter()
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            for i in range(chunk * ROWS_PER_CHUNK, min(n, (chunk + 1) * ROWS_PER_CHUNK)):
                low, high = hash_row(n_id[i] if len(n_id) else i, key)
                if inplace:
                    _overwrite_row(h[i], shift, scale, threshold, low, high)
                else:
                    _forward_row(h[i], shift, scale, threshold, low, high, out[i])
            chunk = next_chunk(counter)


@parallel_kernel
def _backward(out, grad, scale, grad_h, sums, num_threads):
    """Bias sums are kept per chunk of rows: bitwise the same for every number of threads."""
    n = len(out)
    counter = new_counter()
    zero = out.dtype.type(0)
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < len(sums):
            total = sums[chunk]
            for i in range(chunk * ROWS_PER_CHUNK, min(n, (chunk + 1) * ROWS_PER_CHUNK)):
                o, g, target = out[i], grad[i], grad_h[i]
                for j in range(len(o)):
                    value = g[j] * scale
                    value = zero if o[j] <= zero else value
                    target[j] = value
                    total[j] += value
            chunk = next_chunk(counter)


@njit(cache=True, nogil=True)
def _drop_row(h, factor, threshold, low, high, out):
    zero = h.dtype.type(0)
    for j in range(len(h)):
        value = h[j] * factor
        out[j] = value if is_kept(j, threshold, low, high) else zero


@parallel_kernel
def _drop(h, factor, threshold, key, n_id, out, num_threads):
    n = len(h)
    num_chunks = (n + ROWS_PER_CHUNK - 1) // ROWS_PER_CHUNK
    counter = new_counter()
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            for i in range(chunk * ROWS_PER_CHUNK, min(n, (chunk + 1) * ROWS_PER_CHUNK)):
                low, high = hash_row(n_id[i] if len(n_id) else i, key)
                _drop_row(h[i], factor, threshold, low, high, out[i])
            chunk = next_chunk(counter)


@kernel
def _drop_sparse(indptr, indices, values, factor, threshold, key, n_id, out):
    zero = values.dtype.type(0)
    for i in range(len(indptr) - 1):
        low, high = hash_row(n_id[i], key)
        for e in range(indptr[i], indptr[i + 1]):
            out[e] = values[e] * factor if is_kept(indices[e], threshold, low, high) else zero
