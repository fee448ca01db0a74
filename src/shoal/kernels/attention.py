"""Graph attention, fused: edge scores, softmax over each row's entries and the weighted sum.

Only edge × head numbers are ever stored, never edge × feature ones.
"""

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from numba.extending import overload
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.jit import next_chunk, parallel_kernel
from shoal.kernels.rows import add_row
from shoal.kernels.spmm import find_row

_CHUNKS_PER_THREAD = 32


def gat_attention(
    adj: Adjacency, z: Tensor, score_dst: Tensor, score_src: Tensor, negative_slope: float = 0.2
) -> Tensor:
    """`out[i, k] = Σ_j α_ijk z[j, k]`, `α_i·k = softmax_j( LeakyReLU( score_dst[i, k] + score_src[j, k] ) )`.

    j runs over the entries of row i; scales and values of `adj` play no part, and a row without entries gives
    zeros. Self loops are the caller's: put them in `adj`. Differentiable in z and both scores.

    Shapes: adj (n, m); z (m, heads, f); score_dst (n, heads); score_src (m, heads); result (n, heads, f).
    Work: nnz · heads · f forward, twice that backward. Memory: one (nnz, heads) array kept, one more backward.
    The trick: a row's scores, its softmax and its sum are done while they are in the nearest cache, and the
    backward of the softmax needs only the row's own `Σ_j α_j ∂α_j`.
    """
    n, m, heads = adj.num_rows, adj.num_columns, z.shape[1]
    expected = ((m, heads, z.shape[2]), (n, heads), (m, heads))
    found = (tuple(z.shape), tuple(score_dst.shape), tuple(score_src.shape))
    if found != expected:
        raise ShoalError(f"z, score_dst and score_src have shapes {found}: expected {expected}")
    if z.device.type != "cpu" or z.dtype not in (torch.float32, torch.float64):
        return gat_attention_reference(adj, z, score_dst, score_src, negative_slope)
    return _Attention.apply(z, score_dst, score_src, adj, negative_slope)


def gat_attention_reference(
    adj: Adjacency, z: Tensor, score_dst: Tensor, score_src: Tensor, negative_slope: float = 0.2
) -> Tensor:
    """The same in plain torch with edge × feature messages, on any device."""
    rows = torch.repeat_interleave(torch.arange(adj.num_rows, device=adj.device), adj.indptr.diff())
    columns = adj.indices.long()
    scores = torch.nn.functional.leaky_relu(score_dst[rows] + score_src[columns], negative_slope)
    spread = rows[:, None].expand_as(scores)
    top = torch.full_like(score_dst, -torch.inf).scatter_reduce(0, spread, scores, "amax")
    powers = torch.exp(scores - top[rows].detach())
    sums = torch.zeros_like(score_dst).index_add(0, rows, powers)
    messages = (powers / sums[rows])[:, :, None] * z[columns]
    return torch.zeros(adj.num_rows, *z.shape[1:], dtype=z.dtype, device=z.device).index_add(
        0, rows, messages
    )


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, score_dst: Tensor, score_src: Tensor, adj: Adjacency, slope: float
    ) -> Tensor:
        z, score_dst, score_src = z.contiguous(), score_dst.contiguous(), score_src.contiguous()
        _, heads, f = z.shape
        weights = torch.empty(adj.num_entries, heads, dtype=z.dtype)
        out = torch.empty(adj.num_rows, heads, f, dtype=z.dtype)
        arrays = (_flat(score_dst), _flat(score_src), _flat(z), _flat(weights), _flat(out))
        _attend(adj.indptr.numpy(), adj.indices.numpy(), *arrays, _scalar(z, slope), heads, f, *_chunks())
        ctx.save_for_backward(z, score_dst, score_src, weights)
        ctx.adj, ctx.slope = adj, slope
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        z, score_dst, score_src, weights = ctx.saved_tensors
        adj, grad = ctx.adj, grad.contiguous()
        _, heads, f = z.shape
        grad_scores = torch.empty_like(weights)
        grad_dst = torch.empty_like(score_dst)
        _attend_backward(
            adj.indptr.numpy(),
            adj.indices.numpy(),
            *(_flat(part) for part in (score_dst, score_src, z, weights, grad, grad_scores, grad_dst)),
            _scalar(z, ctx.slope),
            heads,
            f,
            *_chunks(),
        )
        permutation, transposed = adj.transpose_permutation(), adj.transpose()
        grad_z, grad_src = torch.empty_like(z), torch.empty_like(score_src)
        _attend_transposed(
            transposed.indptr.numpy(),
            transposed.indices.numpy(),
            permutation.numpy(),
            *(_flat(part) for part in (weights, grad, grad_scores, grad_z, grad_src)),
            heads,
            f,
            *_chunks(),
        )
        return grad_z, grad_dst, grad_src, None, None


def _flat(tensor: Tensor) -> np.ndarray:
    return tensor.detach().view(-1).numpy()


def _scalar(like: Tensor, value: float) -> Any:
    return np.float64(value) if like.dtype == torch.float64 else np.float32(value)


def _chunks() -> tuple[int, int]:
    threads = torch.get_num_threads()
    return threads, 1 if threads == 1 else _CHUNKS_PER_THREAD * threads


# e^x for x ≤ 0 in float32: 2^n · e^r with |r| ≤ ln 2 / 2 and e^r by a polynomial, to 2 units in the last place.
# libm's exp cannot be vectorised and would take longer than the weighted sum.
_LOG2E = np.float32(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_P0, _P1, _P2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_P3, _P4, _P5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_HALF, _ONE, _LOWEST = np.float32(0.5), np.float32(1), np.float32(-87)


def _exp_in_place(row):
    np.exp(row, row)


@overload(_exp_in_place, inline="never", jit_options={"fastmath": {"contract", "nnan", "nsz"}})
def _exp_in_place_for(row):
    if row.dtype.bitwidth == 64:

        def exact(row):
            for i in range(len(row)):
                row[i] = np.exp(row[i])

        return exact

    def polynomial(row):
        for i in range(len(row)):
            x = max(row[i], _LOWEST)
            n = np.floor(x * _LOG2E + _HALF)
            r = x - n * _LN2_HIGH - n * _LN2_LOW
            p = ((((_P0 * r + _P1) * r + _P2) * r + _P3) * r + _P4) * r + _P5
            power = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
            row[i] = (p * r * r + r + _ONE) * power

    return polynomial


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(a, b):
    total = a.dtype.type(0)
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@njit(cache=True, nogil=True)
def _softmax_row(row, columns, dst, score_src, slope, top, total, heads):
    """Scores of one row's entries, (entries · heads), and their softmax over the entries, in place."""
    for q in range(heads):
        top[q] = -np.inf
        total[q] = 0
    for i in range(len(columns)):
        here = row[i * heads : (i + 1) * heads]
        src = score_src[columns[i] * heads : (columns[i] + 1) * heads]
        for q in range(heads):
            score = dst[q] + src[q]
            score = score if score > 0 else slope * score
            here[q] = score
            top[q] = max(top[q], score)
    for i in range(len(columns)):
        here = row[i * heads : (i + 1) * heads]
        for q in range(heads):
            here[q] -= top[q]
    _exp_in_place(row)
    for i in range(len(columns)):
        here = row[i * heads : (i + 1) * heads]
        for q in range(heads):
            total[q] += here[q]
    for q in range(heads):
        total[q] = 1 / total[q]
    for i in range(len(columns)):
        here = row[i * heads : (i + 1) * heads]
        for q in range(heads):
            here[q] *= total[q]


@njit(cache=True, nogil=True)
def _chunk_rows(indptr, chunk, num_chunks):
    n = len(indptr) - 1
    work = indptr[n] + n
    first = find_row(indptr, chunk * work // num_chunks)
    return first, n if chunk == num_chunks - 1 else find_row(indptr, (chunk + 1) * work // num_chunks)


# fmt: off
@parallel_kernel
def _attend(indptr, indices, score_dst, score_src, z, weights, out, slope, heads, f, num_threads, num_chunks):
    counter = np.zeros(1, np.int64)
    wide = heads * f
    one = z.dtype.type(1)
    for _ in prange(num_threads):
        top, total = np.empty(heads, z.dtype), np.empty(heads, z.dtype)
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            first, stop = _chunk_rows(indptr, chunk, num_chunks)
            for r in range(first, stop):
                b, e = indptr[r], indptr[r + 1]
                if e > b:
                    dst = score_dst[r * heads : (r + 1) * heads]
                    _softmax_row(
                        weights[b * heads : e * heads], indices[b:e], dst, score_src, slope, top, total, heads
                    )
                for q in range(heads):
                    add_row(
                        z, q * f, wide, indices, b, e, 0, weights, q, heads, None,
                        out, r * wide + q * f, f, one, False, False,
                    )
            chunk = next_chunk(counter)


@parallel_kernel
def _attend_backward(
    indptr, indices, score_dst, score_src, z, weights, grad, grad_scores, grad_dst, slope, heads, f,
    num_threads, num_chunks,
):
    """∂score_ij = α_ij (∂α_ij − Σ_j α_ij ∂α_ij) · LeakyReLU′ with ∂α_ij = grad_i · z_j, head by head."""
    counter = np.zeros(1, np.int64)
    wide = heads * f
    for _ in prange(num_threads):
        mean = np.empty(heads, z.dtype)
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            first, stop = _chunk_rows(indptr, chunk, num_chunks)
            for r in range(first, stop):
                g = grad[r * wide : (r + 1) * wide]
                mean[:] = 0
                for k in range(indptr[r], indptr[r + 1]):
                    source = z[indices[k] * wide : (indices[k] + 1) * wide]
                    for q in range(heads):
                        slope_of_weight = _dot(g[q * f : (q + 1) * f], source[q * f : (q + 1) * f])
                        grad_scores[k * heads + q] = slope_of_weight
                        mean[q] += weights[k * heads + q] * slope_of_weight
                for q in range(heads):
                    total = z.dtype.type(0)
                    dst = score_dst[r * heads + q]
                    for k in range(indptr[r], indptr[r + 1]):
                        change = weights[k * heads + q] * (grad_scores[k * heads + q] - mean[q])
                        if dst + score_src[indices[k] * heads + q] <= 0:
                            change *= slope
                        grad_scores[k * heads + q] = change
                        total += change
                    grad_dst[r * heads + q] = total
            chunk = next_chunk(counter)


@parallel_kernel
def _attend_transposed(
    indptr, indices, permutation, weights, grad, grad_scores, grad_z, grad_src, heads, f,
    num_threads, num_chunks,
):
    """grad_z = αᵀ grad and grad_src = column sums of ∂score, by rows of the transpose.

    The weights of a row are brought together in a small buffer first, so that no transposed copy of all of
    them is made.
    """
    counter = np.zeros(1, np.int64)
    wide = heads * f
    one = grad.dtype.type(1)
    longest = 0
    for r in range(len(indptr) - 1):
        longest = max(longest, indptr[r + 1] - indptr[r])
    for _ in prange(num_threads):
        gathered = np.empty(longest * heads, grad.dtype)
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            first, stop = _chunk_rows(indptr, chunk, num_chunks)
            for r in range(first, stop):
                b, e = indptr[r], indptr[r + 1]
                total = grad_src[r * heads : (r + 1) * heads]
                total[:] = 0
                for k in range(b, e):
                    p = permutation[k]
                    gathered[(k - b) * heads : (k - b + 1) * heads] = weights[p * heads : (p + 1) * heads]
                    change = grad_scores[p * heads : (p + 1) * heads]
                    for q in range(heads):
                        total[q] += change[q]
                for q in range(heads):
                    add_row(
                        grad, q * f, wide, indices, b, e, 0, gathered, q - b * heads, heads, None,
                        grad_z, r * wide + q * f, f, one, False, False,
                    )
            chunk = next_chunk(counter)
# fmt: on
