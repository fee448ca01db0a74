"""The linear part of a SAGE layer, `[A H W_neigh ‖ H W_self]`, without copies."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply, spmm


def sage_linear(
    adj: Adjacency, h: Tensor, weight: Tensor, num_neighbor: int, transform_first: bool = False
) -> Tensor:
    """`[A H W_neigh ‖ H_self W_self]` with `weight = [W_neigh ‖ W_self]`, differentiable in h and weight.

    H_self is the first n rows of h: a batch lists the nodes it computes first. Order: `(A H) W_neigh`, or
    `A (H W_neigh)` with `transform_first` (see `plan_layer`).

    The halves have different left factors, so one dense product of `[H ‖ A H]` with a block-diagonal weight
    would multiply as many zeros as numbers. Instead both products write straight into their half of the
    result, and backward adds the neighbours' gradient to that of the rows themselves inside the sparse
    product: no concatenation, no slice copied, no separate addition.

    Shapes: adj (n, m), h (m, f_in), weight (f_in, f_out), result (n, f_out), its first `num_neighbor`
    columns from the neighbours.
    """
    if adj.num_rows > h.shape[0] or not 0 <= num_neighbor <= weight.shape[1]:
        raise ShoalError(
            f"h has {h.shape[0]} rows and weight {weight.shape[1]} columns: expected at least {adj.num_rows} rows "
            f"(the nodes computed come first) and at least num_neighbor = {num_neighbor} columns"
        )
    return _SageLinear.apply(h, weight, adj, num_neighbor, transform_first)


def sage_linear_reference(adj: Adjacency, h: Tensor, weight: Tensor, num_neighbor: int) -> Tensor:
    """The same by concatenation."""
    neighbors = spmm(adj, h) @ weight[:, :num_neighbor]
    return torch.cat([neighbors, h[: adj.num_rows] @ weight[:, num_neighbor:]], dim=1)


class _SageLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, adj: Adjacency, k: int, transform_first: bool) -> Tensor:
        n = adj.num_rows
        out = h.new_empty(n, weight.shape[1])
        aggregated = None
        if transform_first:
            multiply(adj, h @ weight[:, :k], out[:, :k])
        else:
            aggregated = multiply(adj, h)
            torch.mm(aggregated, weight[:, :k], out=out[:, :k])
        torch.mm(h[:n], weight[:, k:], out=out[:, k:])
        ctx.save_for_backward(h, weight, aggregated)
        ctx.adj, ctx.k = adj, k
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None]:
        h, weight, aggregated = ctx.saved_tensors
        adj, k, n = ctx.adj, ctx.k, ctx.adj.num_rows
        needs_h, needs_weight = ctx.needs_input_grad[:2]
        to_neighbors, to_self = grad[:, :k], grad[:, k:]
        grad_weight = (
            torch.empty_like(weight, memory_format=torch.contiguous_format) if needs_weight else None
        )
        grad_h = torch.empty_like(h, memory_format=torch.contiguous_format) if needs_h else None
        sent = multiply(adj.transpose(), to_neighbors) if aggregated is None else None
        if grad_weight is not None:
            if sent is None:
                torch.mm(aggregated.t(), to_neighbors, out=grad_weight[:, :k])
            else:
                torch.mm(h.t(), sent, out=grad_weight[:, :k])
            torch.mm(h[:n].t(), to_self, out=grad_weight[:, k:])
        if grad_h is not None:
            if sent is not None:
                torch.mm(sent, weight[:, :k].t(), out=grad_h)
                torch.addmm(grad_h[:n], to_self, weight[:, k:].t(), out=grad_h[:n])
            else:
                torch.mm(to_self, weight[:, k:].t(), out=grad_h[:n])
                grad_h[n:].zero_()
                multiply(adj.transpose(), to_neighbors @ weight[:, :k].t(), grad_h, accumulate=True)
        return grad_h, grad_weight, None, None, None
