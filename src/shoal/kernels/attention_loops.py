"""The loops of graph attention over rows: scores and softmax, weighted sums, and their gradients.

All arrays are flat. A row's entries are processed together, while they are in the nearest cache.
"""

import numpy as np
from numba import njit, prange
from numba.extending import overload

from shoal.kernels.dots import dot
from shoal.kernels.jit import new_counter, next_chunk, parallel_kernel
from shoal.kernels.rows import add_row
from shoal.kernels.spmm import find_row

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


@njit(cache=True, nogil=True)
def _softmax_row(row, columns, dst, score_src, column_scale, values, kept, slope, top, total, heads):
    """Scores of one row's entries, (entries · heads), and their softmax over the entries, in place.

    The multiplicity of an entry is its value times its column's scale; empty arrays mean 1. An entry that is not `kept`
    has weight 0; an empty `kept` keeps all.
    """
    for q in range(heads):
        top[q] = -np.inf
        total[q] = 0
    for i in range(len(columns)):
        here = row[i * heads : (i + 1) * heads]
        src = score_src[columns[i] * heads : (columns[i] + 1) * heads]
        if len(kept) and not kept[i]:
            here[:] = -np.inf
            continue
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
    if len(kept):
        for i in range(len(columns)):
            if not kept[i]:
                row[i * heads : (i + 1) * heads] = 0
    if len(column_scale):
        for i in range(len(columns)):
            here = row[i * heads : (i + 1) * heads]
            for q in range(heads):
                here[q] *= column_scale[columns[i]]
    if len(values):
        for i in range(len(columns)):
            here = row[i * heads : (i + 1) * heads]
            for q in range(heads):
                here[q] *= values[i]
    for i in range(len(columns)):
        here = row[i * heads : (i + 1) * heads]
        for q in range(heads):
            total[q] += here[q]
    for q in range(heads):
        total[q] = 1 / total[q] if total[q] > 0 else 0
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
def attend(
    indptr, indices, column_scale, values, kept, factors, score_dst, score_src, z, weights, used, out, slope, heads, f,
    prefetch, keep_empty, num_threads, num_chunks,
):
    """`weights` become α and `used` α times `factors`; without factors both are one array.

    With `keep_empty`, rows without entries stay as they are in `out`; else they become zeros.
    """
    counter = new_counter()
    wide = heads * f
    one = z.dtype.type(1)
    for _ in prange(num_threads):
        top, total = np.empty(heads, z.dtype), np.empty(heads, z.dtype)
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            first, stop = _chunk_rows(indptr, chunk, num_chunks)
            for r in range(first, stop):
                b, e = indptr[r], indptr[r + 1]
                if e == b and keep_empty:
                    continue
                if e > b:
                    dst = score_dst[r * heads : (r + 1) * heads]
                    _softmax_row(
                        weights[b * heads : e * heads], indices[b:e], dst, score_src, column_scale,
                        values[b:e], kept[b:e], slope, top, total, heads,
                    )
                if len(factors):
                    for k in range(b * heads, e * heads):
                        used[k] = weights[k] * factors[k]
                for q in range(heads):
                    add_row(
                        z, q * f, wide, indices, b, e, len(indices) - 1, used, q, heads, None,
                        out, r * wide + q * f, f, one, False, prefetch,
                    )
            chunk = next_chunk(counter)


@parallel_kernel
def attend_backward(
    indptr, indices, factors, score_dst, score_src, z, weights, grad, grad_scores, grad_dst, slope, heads, f,
    num_threads, num_chunks,
):
    """∂score_ij = α_ij (∂α_ij − Σ_j α_ij ∂α_ij) · LeakyReLU′ with ∂α_ij = factor_ij · grad_i · z_j, head by head."""
    counter = new_counter()
    wide = heads * f
    for _ in prange(num_threads):
        mean = np.empty(heads, z.dtype)
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            first, stop = _chunk_rows(indptr, chunk, num_chunks)
            for r in range(first, stop):
                mean[:] = 0
                for k in range(indptr[r], indptr[r + 1]):
                    source = np.int64(indices[k]) * wide
                    change = grad_scores[k * heads : (k + 1) * heads]
                    weight = weights[k * heads : (k + 1) * heads]
                    for q in range(heads):
                        change[q] = dot(grad, r * wide + q * f, z, source + q * f, f)
                    if len(factors):
                        for q in range(heads):
                            change[q] *= factors[k * heads + q]
                    for q in range(heads):
                        mean[q] += weight[q] * change[q]
                dst = score_dst[r * heads : (r + 1) * heads]
                total = grad_dst[r * heads : (r + 1) * heads]
                total[:] = 0
                for k in range(indptr[r], indptr[r + 1]):
                    c = np.int64(indices[k])
                    change = grad_scores[k * heads : (k + 1) * heads]
                    weight = weights[k * heads : (k + 1) * heads]
                    src = score_src[c * heads : (c + 1) * heads]
                    for q in range(heads):
                        value = weight[q] * (change[q] - mean[q])
                        value = value if dst[q] + src[q] > 0 else slope * value
                        change[q] = value
                        total[q] += value
            chunk = next_chunk(counter)


@parallel_kernel
def attend_transposed(
    indptr, indices, permutation, weights, grad, grad_scores, grad_z, grad_src, heads, f, prefetch,
    num_threads, num_chunks,
):
    """grad_z = αᵀ grad and grad_src = column sums of ∂score, by rows of the transpose.

    The weights of a row are gathered in a small buffer first, so that no transposed copy of all weights is made.
    """
    counter = new_counter()
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
                        grad, q * f, wide, indices, b, e, len(indices) - 1, gathered, q - b * heads, heads, None,
                        grad_z, r * wide + q * f, f, one, False, prefetch,
                    )
            chunk = next_chunk(counter)
# fmt: on
