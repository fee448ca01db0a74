"""Sparse × dense product with gradients: `spmm(adj, h)`.

Two ways to share the work. "rows" splits the rows of the result by nonzeros. "features" is IPDPS'19 algorithm 6
(JPDC'21 algorithm 7): the columns of h are split so that a part of all its rows fits a core's private cache,
and the graph is not split at all. Both sum in the same order, so the results are equal bit for bit.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.dispatch import implements, kernel_of
from shoal.kernels.jit import kernel, new_counter, next_chunk, parallel_kernel, worker_threads
from shoal.kernels.patterns import row_of_entries
from shoal.kernels.plan import ProductTimer
from shoal.kernels.rows import add_row

_ROUNDS_OF_CHUNKS = 32
_NO_SCALE = {dtype: torch.empty(0, dtype=dtype).numpy() for dtype in (torch.float32, torch.float64)}


def spmm(adj: Adjacency, h: Tensor, variant: str = "auto", out_dtype: torch.dtype | None = None) -> Tensor:
    """`adj · h`, differentiable in h; the gradient is `adjᵀ · g` with the transpose kept by `adj`.

    The result is (n, f). Work: nnz · f multiply-adds; traffic: nnz · f values gathered.

    Args:
        adj: operator (n, m).
        h: matrix (m, f), float32, float64 or bfloat16, which is summed in float32.
        variant: "rows" splits the rows of the result among threads, "features" the columns of h; "auto" chooses (`shoal.kernels.plan`).
        out_dtype: type of the result. None: that of h.
    """
    if h.dim() != 2 or h.shape[0] != adj.num_columns:
        raise ShoalError(f"h has shape {tuple(h.shape)}: expected ({adj.num_columns}, f) for {adj!r}")
    product: Tensor = _Spmm.apply(h, adj, variant, out_dtype or h.dtype)
    return product


def spmm_reference(adj: Adjacency, h: Tensor) -> Tensor:
    """The same product by gather and scatter in plain torch, on any device, differentiable by torch itself."""
    rows = row_of_entries(adj.indptr)
    messages = h[adj.indices.long()] * adj.entry_weights(h.dtype)[:, None]
    return torch.zeros(adj.num_rows, h.shape[1], dtype=h.dtype, device=h.device).index_add(0, rows, messages)


class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, adj: Adjacency, variant: str, out_dtype: torch.dtype) -> Tensor:
        ctx.adj, ctx.variant, ctx.dtype = adj, variant, h.dtype
        return multiply(adj, h, variant=variant, out_dtype=out_dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        product = multiply(ctx.adj.transpose(), grad, variant=ctx.variant, out_dtype=ctx.dtype)
        return product, None, None, None


def multiply(
    adj: Adjacency,
    h: Tensor,
    out: Tensor | None = None,
    *,
    accumulate: bool = False,
    variant: str = "auto",
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """`out = adj · h`, or `out += adj · h` with `accumulate`, without gradients.

    h and out may be column slices of wider matrices: only their rows must be contiguous. A given `out` saves
    the first touch of fresh memory, which costs as much as a small product.
    """
    if out is None:
        if accumulate:
            raise ShoalError("accumulate needs the matrix to add to: give out=")
        out = torch.empty(adj.num_rows, h.shape[1], dtype=out_dtype or h.dtype, device=h.device)
    elif out.shape != (adj.num_rows, h.shape[1]) or out.stride(1) != 1:
        raise ShoalError(
            f"out has shape {tuple(out.shape)} and strides {out.stride()}: expected "
            f"({adj.num_rows}, {h.shape[1]}) with contiguous rows"
        )
    if adj.product is not None:
        return adj.product(h, out, accumulate)
    kernel_of("multiply", h)(adj, h, out, accumulate, variant)
    return out


@implements("multiply")
def multiply_by_torch(
    adj: Adjacency, h: Tensor, out: Tensor, accumulate: bool = False, variant: str = "auto"
) -> None:
    """The same by torch's own sparse product, on any device."""
    product = (adj.to_torch(h.dtype) @ h).to(out.dtype)
    out.add_(product) if accumulate else out.copy_(product)


@implements("multiply", "cpu")
def _multiply_cpu(adj: Adjacency, h: Tensor, out: Tensor, accumulate: bool, variant: str) -> None:
    if not _is_supported(h.dtype, out.dtype):
        multiply_by_torch(adj, h, out, accumulate)
        return
    if out.numel() == 0 or h.numel() == 0:
        if not accumulate:
            out.zero_()
        return
    compute = torch.float64 if h.dtype == torch.float64 else torch.float32
    h = h.detach() if h.stride(1) == 1 or h.shape[1] == 1 else h.detach().contiguous()
    f = h.shape[1]
    row_scale = _NO_SCALE[compute] if adj.row_scale is None else _numpy(adj.row_scale, compute)
    operands = (
        adj.indptr.numpy(),
        adj.indices.numpy(),
        *_weights(adj, compute, row_scale),
        _flatten(h),
        h.stride(0),
        _flatten(out.detach()),
        out.stride(0),
        f,
        _NO_SCALE[compute].dtype.type(1),
        accumulate,
    )
    with (
        worker_threads(adj.num_entries * f) as threads,
        ProductTimer(*adj.shape, adj.num_entries, f, h.element_size(), variant, threads) as plan,
    ):
        if plan.variant == "features":
            packed = torch.empty(threads, adj.num_columns * plan.part_width, dtype=h.dtype)
            _multiply_features(*operands, _view(packed).numpy(), plan.part_width, threads)
        else:
            chunks = 1 if threads == 1 else _ROUNDS_OF_CHUNKS * threads
            _multiply_rows(*operands, plan.prefetch, threads, chunks)


def _weights(adj: Adjacency, dtype: torch.dtype, row_scale: Any) -> tuple[Any, Any, Any]:
    """(values, row_scale, column_scale) as arrays, None for ones.

    float32 has a kernel for each combination, which skips absent weights. float64 is for checking gradients: it has one
    kernel, and absent weights are arrays of ones.
    """
    values, column_scale = adj.values, adj.column_scale
    if dtype == torch.float64:
        values = torch.ones(adj.num_entries) if values is None else values
        column_scale = torch.ones(adj.num_columns) if column_scale is None else column_scale
    return _numpy(values, dtype), row_scale, _numpy(column_scale, dtype)


def _is_supported(h: torch.dtype, out: torch.dtype) -> bool:
    single = (torch.float32, torch.bfloat16)
    return (h in single and out in single) or h == out == torch.float64


def _numpy(part: Tensor | None, dtype: torch.dtype) -> np.ndarray | None:
    return None if part is None else part.to(dtype).contiguous().numpy()


def _view(tensor: Tensor) -> Tensor:
    """bfloat16 as its bits, since NumPy has no bfloat16."""
    return tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor


def _flatten(matrix: Tensor) -> np.ndarray:
    """The memory a matrix with contiguous rows spans, as one flat array: one kernel for every row stride."""
    span = (matrix.shape[0] - 1) * matrix.stride(0) + matrix.shape[1]
    return _view(matrix.as_strided((span,), (1,))).numpy()


@kernel
def find_row(indptr, work):
    """The first row at which entries + rows before it reach `work`: splits rows by nonzeros."""
    low, high = 0, len(indptr) - 1
    while low < high:
        middle = (low + high) >> 1
        if indptr[middle] + middle < work:
            low = middle + 1
        else:
            high = middle
    return low


# fmt: off
@parallel_kernel
def _multiply_rows(
    indptr, indices, values, row_scale, column_scale, h, h_stride, out, out_stride, f, one, accumulate,
    prefetch, num_threads, num_chunks,
):
    """Threads take chunks of rows with equal numbers of nonzeros until none is left."""
    n = len(indptr) - 1
    total = indptr[n] + n
    last = indptr[n] - 1
    counter = new_counter()
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk < num_chunks:
            first = find_row(indptr, chunk * total // num_chunks)
            stop = n if chunk == num_chunks - 1 else find_row(indptr, (chunk + 1) * total // num_chunks)
            for r in range(first, stop):
                if accumulate and indptr[r] == indptr[r + 1]:
                    continue
                scale = row_scale[r] if len(row_scale) else one
                add_row(
                    h, 0, h_stride, indices, indptr[r], indptr[r + 1], last, values, 0, 1, column_scale,
                    out, r * out_stride, f, scale, accumulate, prefetch,
                )
            chunk = next_chunk(counter)


@parallel_kernel
def _multiply_features(
    indptr, indices, values, row_scale, column_scale, h, h_stride, out, out_stride, f, one, accumulate,
    packed, width, num_threads,
):
    """Each thread owns a run of adjacent parts, so that adjacent parts are not written at the same time.

    A part is copied to memory of its own first: with the row stride of the whole h, a power of two, it would
    map to a few sets of the cache and never fit.
    """
    n = len(indptr) - 1
    m = packed.shape[1] // width
    num_parts = (f + width - 1) // width
    rounds = (num_parts + num_threads - 1) // num_threads
    for thread in prange(num_threads):
        mine = packed[thread]
        for part in range(thread * rounds, min(num_parts, (thread + 1) * rounds)):
            first = part * width
            count = min(width, f - first)
            for j in range(m):
                mine[j * width : j * width + count] = h[j * h_stride + first : j * h_stride + first + count]
            for r in range(n):
                if accumulate and indptr[r] == indptr[r + 1]:
                    continue
                scale = row_scale[r] if len(row_scale) else one
                add_row(
                    mine, 0, width, indices, indptr[r], indptr[r + 1], 0, values, 0, 1, column_scale,
                    out, r * out_stride + first, count, scale, accumulate, False,
                )
# fmt: on
