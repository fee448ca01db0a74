"""Graph attention, fused: edge scores, softmax over each row's entries and the weighted sum.

Only (edges × heads) values are stored, never (edges × features).
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.attention_loops import attend, attend_backward, attend_transposed
from shoal.kernels.dispatch import FLOATS, implements, kernel_of, timed
from shoal.kernels.jit import worker_threads
from shoal.kernels.patterns import row_of_entries
from shoal.kernels.plan import cache_bytes

_CHUNKS_PER_THREAD = 32


def gat_attention(
    adj: Adjacency,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    negative_slope: float = 0.2,
    onto: Tensor | None = None,
    kept: Tensor | None = None,
    factors: Tensor | None = None,
) -> Tensor:
    """`out[i, k] = Σ_j α_ijk f_ijk z[j, k]`, `α_i·k = softmax_j( LeakyReLU( score_dst[i, k] + score_src[j, k] ) )`.

    j runs over the entries of row i; with `kept`, over the kept ones. If `adj` has values w or a column scale c, an entry
    has multiplicity w_ij c_j in the softmax: `softmax_j( … + ln w_ij + ln c_j )`. The row scale is ignored. A row without
    entries gives zeros, or its row of `onto`, which is overwritten and may be returned. No self loops are added: `adj`
    must have them. `factors` multiply the attention after the softmax, as dropout of attention does; None: 1.
    Differentiable in z, both scores and `onto`.

    Shapes: adj (n, m); z (m, heads, f); score_dst (n, heads); score_src (m, heads); kept (nnz,) bool; factors (nnz, heads);
    result (n, heads, f).
    Work: nnz · heads · f forward, twice that backward. Memory: one (nnz, heads) array kept, with factors three; one more
    backward.
    The trick: scores, softmax and weighted sum of a row are computed while they are in the nearest cache, and the
    backward of the softmax needs only the row's own `Σ_j α_j ∂α_j`.
    """
    n, m, heads = adj.num_rows, adj.num_columns, z.shape[1]
    expected = ((m, heads, z.shape[2]), (n, heads), (m, heads))
    found = (tuple(z.shape), tuple(score_dst.shape), tuple(score_src.shape))
    if found != expected:
        raise ShoalError(f"z, score_dst and score_src have shapes {found}: expected {expected}")
    if onto is not None and (tuple(onto.shape), onto.dtype) != ((n, heads, z.shape[2]), z.dtype):
        raise ShoalError(
            f"onto has shape {tuple(onto.shape)} and {onto.dtype}: expected {(n, heads, z.shape[2])} and {z.dtype}"
        )
    if factors is not None and tuple(factors.shape) != (adj.num_entries, heads):
        raise ShoalError(
            f"factors have shape {tuple(factors.shape)}: expected {(adj.num_entries, heads)}, one for each entry and head"
        )
    attend_rows = kernel_of("gat_attention", z)
    attended: Tensor = attend_rows(adj, z, score_dst, score_src, negative_slope, onto, kept, factors)
    return attended


@implements("gat_attention")
def gat_attention_reference(
    adj: Adjacency,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    negative_slope: float = 0.2,
    onto: Tensor | None = None,
    kept: Tensor | None = None,
    factors: Tensor | None = None,
) -> Tensor:
    """The same in plain torch with edge × feature messages, on any device."""
    rows = row_of_entries(adj.indptr)
    columns = adj.indices.long()
    scores = torch.nn.functional.leaky_relu(score_dst[rows] + score_src[columns], negative_slope)
    if kept is not None:
        scores = scores.masked_fill(~kept[:, None], -torch.inf)
    spread = rows[:, None].expand_as(scores)
    top = torch.full_like(score_dst, -torch.inf).scatter_reduce(0, spread, scores, "amax")
    powers = torch.exp(scores - top.clamp(min=torch.finfo(top.dtype).min)[rows].detach())
    if adj.column_scale is not None:
        powers = powers * adj.column_scale.to(powers.dtype)[columns, None]
    if adj.values is not None:
        powers = powers * adj.values.to(powers.dtype)[:, None]
    sums = torch.zeros_like(score_dst).index_add(0, rows, powers)
    sums = torch.where(sums > 0, sums, 1)  # rows without kept entries
    weights = powers / sums[rows]
    if factors is not None:
        weights = weights * factors
    messages = weights[:, :, None] * z[columns]
    out = torch.zeros(adj.num_rows, *z.shape[1:], dtype=z.dtype, device=z.device)
    if onto is not None:
        out = torch.where((adj.indptr.diff() == 0)[:, None, None], onto, out)
    return out.index_add(0, rows, messages)


@implements("gat_attention", "cpu", FLOATS)
def _attend_cpu(
    adj: Adjacency,
    z: Tensor,
    score_dst: Tensor,
    score_src: Tensor,
    slope: float,
    onto: Tensor | None,
    kept: Tensor | None,
    factors: Tensor | None,
) -> Tensor:
    return _Attention.apply(z, score_dst, score_src, onto, adj, slope, kept, factors)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        score_dst: Tensor,
        score_src: Tensor,
        onto: Tensor | None,
        adj: Adjacency,
        slope: float,
        kept: Tensor | None,
        factors: Tensor | None,
    ) -> Tensor:
        z, score_dst, score_src = z.contiguous(), score_dst.contiguous(), score_src.contiguous()
        _, heads, f = z.shape
        weights = torch.empty(adj.num_entries, heads, dtype=z.dtype)
        used = weights if factors is None else torch.empty_like(weights)
        if onto is None:
            out = torch.empty(adj.num_rows, heads, f, dtype=z.dtype)
        elif onto.is_contiguous():
            out = onto
            ctx.mark_dirty(onto)
        else:
            out = onto.contiguous()
        arrays = (_flat(score_dst), _flat(score_src), _flat(z), _flat(weights), _flat(used), _flat(out))
        with worker_threads(adj.num_entries * heads * f) as threads:
            attend(
                adj.indptr.numpy(),
                adj.indices.numpy(),
                _read_scale(adj.column_scale, z),
                _read_scale(adj.values, z),
                np.empty(0, np.bool_) if kept is None else kept.numpy(),
                _read_scale(factors, z).reshape(-1),
                *arrays,
                _scalar(z, slope),
                heads,
                f,
                _is_far(z),
                onto is not None,
                threads,
                _CHUNKS_PER_THREAD * threads,
            )
        ctx.save_for_backward(z, score_dst, score_src, weights, used, factors)
        ctx.adj, ctx.slope, ctx.has_onto = adj, slope, onto is not None
        return out

    @staticmethod
    @once_differentiable
    @timed("gat_attention")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, score_dst, score_src, weights, used, factors = ctx.saved_tensors
        adj, grad = ctx.adj, grad.contiguous()
        _, heads, f = z.shape
        grad_scores = torch.empty_like(weights)
        grad_dst = torch.empty_like(score_dst)
        with worker_threads(adj.num_entries * heads * f) as threads:
            attend_backward(
                adj.indptr.numpy(),
                adj.indices.numpy(),
                _read_scale(factors, z).reshape(-1),
                *(_flat(part) for part in (score_dst, score_src, z, weights, grad, grad_scores, grad_dst)),
                _scalar(z, ctx.slope),
                heads,
                f,
                threads,
                _CHUNKS_PER_THREAD * threads,
            )
        permutation, transposed = adj.transpose_permutation(), adj.transpose()
        grad_z, grad_src = torch.empty_like(z), torch.empty_like(score_src)
        with worker_threads(adj.num_entries * heads * f) as threads:
            attend_transposed(
                transposed.indptr.numpy(),
                transposed.indices.numpy(),
                permutation.numpy(),
                *(_flat(part) for part in (used, grad, grad_scores, grad_z, grad_src)),
                heads,
                f,
                _is_far(grad),
                threads,
                _CHUNKS_PER_THREAD * threads,
            )
        grad_onto = grad * (adj.indptr.diff() == 0)[:, None, None] if ctx.has_onto else None
        return grad_z, grad_dst, grad_src, grad_onto, None, None, None, None


def _read_scale(scale: Tensor | None, like: Tensor) -> np.ndarray:
    """A scale in the type of `like`; empty where there is none."""
    return (torch.empty(0) if scale is None else scale).to(like.dtype).numpy()


def _flat(tensor: Tensor) -> np.ndarray:
    return tensor.detach().view(-1).numpy()


def _is_far(z: Tensor) -> bool:
    return z.numel() * z.element_size() > cache_bytes(3)


def _scalar(like: Tensor, value: float) -> Any:
    return np.float64(value) if like.dtype == torch.float64 else np.float32(value)
