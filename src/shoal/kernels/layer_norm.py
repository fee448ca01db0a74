"""Bias, ReLU, layer normalisation and dropout in one pass over the rows, with gradients."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from shoal.errors import ShoalError
from shoal.kernels.dispatch import FLOATS, implements, kernel_of
from shoal.kernels.fused import (
    ROWS_PER_CHUNK,
    bias_relu_dropout_reference,
    check_dropout,
    dropout_reference,
    hash_row,
    is_kept,
    make_mask,
)
from shoal.kernels.jit import new_counter, next_chunk, parallel_kernel, worker_threads

_row_sum = njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
"""Compiles a sum over a row that LLVM may reorder into vectors.

Such a function only loads. If it also stored, LLVM would check at run time whether the arrays lie close together and fall
back to a scalar loop there: the order of the sum, and so its last bits, would depend on where the arrays were allocated.
"""


def relu_norm_dropout(
    h: Tensor,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    rate: float,
    key: int,
    n_id: Tensor | None = None,
    eps: float = 1e-5,
    widths: Sequence[int] | None = None,
) -> Tensor:
    """`out[i] = (normalise(max(h[i] + bias, 0)) · scale + shift) · keep(key, n_id[i]) / (1 − rate)`.

    A row is normalised to mean 0 and variance 1; with `widths`, each of its parts of these widths separately. `keep` is
    that of `bias_relu_dropout`. Backward recomputes the row from h, its mean and its standard deviation: no mask
    and no normalised row is stored.

    Shapes: h (n, f) float32 or float64; bias, scale, shift (f,); n_id (n,) int64. Traffic: h read once, out
    written once; backward reads h and the gradient and writes one matrix.
    """
    check_dropout(h, rate, n_id)
    if widths is not None and sum(widths) != h.shape[1]:
        raise ShoalError(
            f"widths {widths} sum to {sum(widths)}: expected {h.shape[1]}, the number of columns"
        )
    normalize = kernel_of("relu_norm_dropout", h)
    out: Tensor = normalize(h, bias, scale, shift, rate, key, n_id, eps, widths)
    return out


@implements("relu_norm_dropout")
def relu_norm_dropout_reference(
    h: Tensor,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    rate: float,
    key: int,
    n_id: Tensor | None = None,
    eps: float = 1e-5,
    widths: Sequence[int] | None = None,
) -> Tensor:
    """The same in plain torch, on any device."""
    active = bias_relu_dropout_reference(h, bias, 0.0, 0, n_id)
    parts = zip(*(part.split(list(widths or [h.shape[1]]), dim=-1) for part in (active, scale, shift)))
    normal = torch.cat([functional.layer_norm(a, a.shape[1:], g, b, eps) for a, g, b in parts], dim=1)
    return dropout_reference(normal, rate, key, n_id)


@implements("relu_norm_dropout", "cpu", FLOATS)
def _relu_norm_dropout_cpu(
    h: Tensor,
    bias: Tensor,
    scale: Tensor,
    shift: Tensor,
    rate: float,
    key: int,
    n_id: Tensor | None,
    eps: float,
    widths: Sequence[int] | None,
) -> Tensor:
    starts = np.cumsum([0, *(widths or [h.shape[1]])])
    return _ReluNormDropout.apply(h, bias, scale, shift, rate, key, n_id, eps, starts)


class _ReluNormDropout(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        bias: Tensor,
        scale: Tensor,
        shift: Tensor,
        rate: float,
        key: int,
        n_id: Tensor | None,
        eps: float,
        starts: np.ndarray,
    ) -> Tensor:
        h = h.contiguous()
        out = torch.empty_like(h)
        moments = torch.empty(2, len(starts) - 1, h.shape[0], dtype=h.dtype)
        ctx.starts = starts
        ctx.mask = make_mask(h, rate, key, n_id)
        weights = tuple(part.detach().contiguous() for part in (bias, scale, shift))
        with worker_threads(4 * h.numel()) as threads:
            _forward(
                h.detach().numpy(),
                *(part.numpy() for part in weights),
                *ctx.mask,
                h.detach().numpy().dtype.type(eps),
                starts,
                moments.numpy(),
                out.numpy(),
                threads,
            )
        ctx.save_for_backward(h, bias, scale, moments)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, bias, scale, moments = ctx.saved_tensors
        grad_h = torch.empty_like(h)
        num_chunks = -(-h.shape[0] // ROWS_PER_CHUNK)
        sums = torch.zeros(num_chunks, 3, h.shape[1], dtype=h.dtype)
        with worker_threads(4 * h.numel()) as threads:
            _backward(
                h.numpy(),
                bias.detach().contiguous().numpy(),
                scale.detach().contiguous().numpy(),
                *ctx.mask,
                ctx.starts,
                moments.numpy(),
                grad.contiguous().numpy(),
                grad_h.numpy(),
                sums.numpy(),
                threads,
            )
        grad_bias, grad_scale, grad_shift = sums.sum(0)
        return grad_h, grad_bias, grad_scale, grad_shift, None, None, None, None, None


@_row_sum
def _sum(row):
    total = row.dtype.type(0)
    for j in range(len(row)):
        total += row[j]
    return total


@_row_sum
def _sum_squares(row, mean):
    total = row.dtype.type(0)
    for j in range(len(row)):
        away = row[j] - mean
        total += away * away
    return total


@_row_sum
def _sum_products(grad, scale, h, bias, mean, inverse):
    """The sums of `grad · scale` and of `grad · scale · normalise(max(h + bias, 0))`."""
    zero = h.dtype.type(0)
    first, second = zero, zero
    for j in range(len(h)):
        value = h[j] + bias[j]
        value = zero if value <= zero else value
        first += grad[j] * scale[j]
        second += grad[j] * scale[j] * ((value - mean) * inverse)
    return first, second


@njit(cache=True, nogil=True)
def _normalize_row(h, bias, scale, shift, factor, threshold, low, high, first, eps, out):
    """Write the result of a row, or of its part from column `first` on; returns its mean and inverse standard deviation."""
    zero, width = h.dtype.type(0), h.dtype.type(len(h))
    for j in range(len(h)):
        value = h[j] + bias[j]
        out[j] = zero if value <= zero else value
    mean = _sum(out) / width
    inverse = h.dtype.type(1) / np.sqrt(_sum_squares(out, mean) / width + eps)
    for j in range(len(h)):
        value = ((out[j] - mean) * inverse * scale[j] + shift[j]) * factor
        out[j] = value if is_kept(first + j, threshold, low, high) else zero
    return mean, inverse


@parallel_kernel
def _forward(h, bias, scale, shift, factor, threshold, key, n_id, eps, starts, moments, out, num_threads):
    n = len(h)
    num_chunks = (n + ROWS_PER_CHUNK - 1) // ROWS_PER_CHUNK
    counter = new_counter()
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            for i in range(chunk * ROWS_PER_CHUNK, min(n, (chunk + 1) * ROWS_PER_CHUNK)):
                low, high = hash_row(n_id[i] if len(n_id) else i, key)
                for p in range(len(starts) - 1):
                    a, b = starts[p], starts[p + 1]
                    moments[0, p, i], moments[1, p, i] = _normalize_row(
                        h[i, a:b],
                        bias[a:b],
                        scale[a:b],
                        shift[a:b],
                        factor,
                        threshold,
                        low,
                        high,
                        a,
                        eps,
                        out[i, a:b],
                    )
            chunk = next_chunk(counter)


@njit(cache=True, nogil=True)
def _differentiate_row(
    h,
    bias,
    scale,
    factor,
    threshold,
    low,
    high,
    start,
    mean,
    inverse,
    grad,
    out,
    sum_bias,
    sum_scale,
    sum_shift,
):
    """Short loops: in a single one, LLVM would give up its checks that the arrays do not overlap, and not vectorise."""
    zero, width = h.dtype.type(0), h.dtype.type(len(h))
    for j in range(len(h)):
        g = grad[j] * factor  # loaded whether kept or not: a conditional load prevents vectorisation
        out[j] = g if is_kept(start + j, threshold, low, high) else zero
    first, second = _sum_products(out, scale, h, bias, mean, inverse)
    first, second = first / width, second / width
    for j in range(len(h)):
        value = h[j] + bias[j]
        value = zero if value <= zero else value
        sum_scale[j] += out[j] * ((value - mean) * inverse)
        sum_shift[j] += out[j]
    for j in range(len(h)):
        value = h[j] + bias[j]
        g = inverse * (out[j] * scale[j] - first - (value - mean) * inverse * second)
        out[j] = zero if value <= zero else g
    for j in range(len(h)):
        sum_bias[j] += out[j]


@parallel_kernel
def _backward(h, bias, scale, factor, threshold, key, n_id, starts, moments, grad, grad_h, sums, num_threads):
    """Sums are kept per chunk of rows: bitwise the same for every number of threads."""
    n = len(h)
    counter = new_counter()
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < len(sums):
            for i in range(chunk * ROWS_PER_CHUNK, min(n, (chunk + 1) * ROWS_PER_CHUNK)):
                low, high = hash_row(n_id[i] if len(n_id) else i, key)
                for p in range(len(starts) - 1):
                    a, b = starts[p], starts[p + 1]
                    _differentiate_row(
                        h[i, a:b],
                        bias[a:b],
                        scale[a:b],
                        factor,
                        threshold,
                        low,
                        high,
                        a,
                        moments[0, p, i],
                        moments[1, p, i],
                        grad[i, a:b],
                        grad_h[i, a:b],
                        sums[chunk, 0, a:b],
                        sums[chunk, 1, a:b],
                        sums[chunk, 2, a:b],
                    )
            chunk = next_chunk(counter)
