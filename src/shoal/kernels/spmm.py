"""Sparse × dense product with gradients: `spmm(adj, h)`."""

from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency

_CHUNKS_PER_THREAD = 16


def spmm(adj: Adjacency, h: Tensor) -> Tensor:
    """`adj · h`, differentiable in h; the gradient is `adjᵀ · g` with the transpose kept by `adj`.

    Shapes: adj (n, m), h (m, f) float32 or float64, result (n, f). Work: nnz · f multiply-adds.
    On a device other than the CPU torch's own sparse product is used.
    """
    if h.dim() != 2 or h.shape[0] != adj.num_columns:
        raise ShoalError(f"h has shape {tuple(h.shape)}: expected ({adj.num_columns}, f) for {adj!r}")
    product: Tensor = _Spmm.apply(h, adj)
    return product


def spmm_reference(adj: Adjacency, h: Tensor) -> Tensor:
    """The same product by gather and scatter in plain torch, on any device, differentiable by torch itself."""
    rows = torch.repeat_interleave(torch.arange(adj.num_rows, device=adj.device), adj.indptr.diff())
    messages = h[adj.indices.long()] * adj.entry_weights(h.dtype)[:, None]
    return torch.zeros(adj.num_rows, h.shape[1], dtype=h.dtype, device=h.device).index_add(0, rows, messages)


class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, adj: Adjacency) -> Tensor:
        ctx.adj = adj
        return multiply(adj, h)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return multiply(ctx.adj.transpose(), grad), None


def multiply(adj: Adjacency, h: Tensor) -> Tensor:
    """`adj · h` without gradients."""
    if h.device.type != "cpu" or h.dtype not in (torch.float32, torch.float64):
        return adj.to_torch(h.dtype) @ h
    h = h.contiguous()
    out = torch.empty(adj.num_rows, h.shape[1], dtype=h.dtype)
    if out.numel():
        scalars = (_numpy(part, h.dtype) for part in (adj.values, adj.row_scale, adj.column_scale))
        chunks = _CHUNKS_PER_THREAD * torch.get_num_threads()
        _multiply_rows(
            adj.indptr.numpy(), adj.indices.numpy(), *scalars, h.detach().numpy(), out.numpy(), chunks
        )
    return out


def _numpy(part: Tensor | None, dtype: torch.dtype) -> np.ndarray | None:
    return None if part is None else part.to(dtype).numpy()


@njit(cache=True, nogil=True)
def _find_row(indptr, work):
    """The first row at which entries + rows before it reach `work`: splits rows by nonzeros."""
    low, high = 0, len(indptr) - 1
    while low < high:
        middle = (low + high) >> 1
        if indptr[middle] + middle < work:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True, parallel=True, fastmath=True)
def _multiply_rows(indptr, indices, values, row_scale, column_scale, h, out, num_chunks):
    """Rows are split by nonzeros; slices instead of index ranges let LLVM vectorise the inner loop."""
    n = len(indptr) - 1
    total = indptr[n] + n
    for chunk in prange(num_chunks):
        first = _find_row(indptr, chunk * total // num_chunks)
        last = n if chunk == num_chunks - 1 else _find_row(indptr, (chunk + 1) * total // num_chunks)
        for r in range(first, last):
            o = out[r]
            o[:] = 0
            for k in range(indptr[r], indptr[r + 1]):
                c = indices[k]
                w = h.dtype.type(1)
                if values is not None:
                    w = values[k]
                if column_scale is not None:
                    w = w * column_scale[c]
                row = h[c]
                for j in range(len(o)):
                    o[j] += w * row[j]
            if row_scale is not None:
                s = row_scale[r]
                for j in range(len(o)):
                    o[j] *= s
