"""PartAdjacency: a rank's rows of the graph's operator, whose local product overlaps with the halo exchange."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.aggregation import find_aggregation
from shoal.distributed.halo import HaloPlan
from shoal.distributed.messages import HaloExchange
from shoal.distributed.pattern import PartPattern, find_halo_factor
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor
from shoal.kernels.spmm import multiply


class PartAdjacency(Adjacency):
    """The rows of `[A_local ‖ A_halo]` that a rank owns, as a square operator over its own rows.

    `spmm(adj, h)` with the local rows of h gives the local rows of the whole graph's product: boundary rows are sent and
    halo rows, or sums of them, received while the local columns are multiplied; then the halo columns are added. The
    transpose does the same in reverse: gradients of halo rows are computed first and sent to their owners, the local
    product runs meanwhile, and the gradients received are added last.

    The order of summation does not depend on the order of arrival: rows with halo columns of one peer are finished when
    that peer's rows have arrived, rows with halo columns of several at the end, by rank.
    """

    def __init__(self, pattern: PartPattern, layer: int) -> None:
        local = pattern.local
        super().__init__(
            local.indptr,
            local.indices,
            local.num_columns,
            row_scale=local.row_scale,
            column_scale=local.column_scale,
            checked=True,
        )
        self.pattern, self.summed = pattern, pattern.summed
        self.plan, self.layer = pattern.plan, layer
        self.product = self._multiply

    @property
    def num_entries(self) -> int:
        """At least 1, so that a rank without edges plans its layers like the others."""
        return max(self.pattern.local.num_entries + len(self.plan.part.halo_indices), 1)

    def _multiply(self, h: Tensor, out: Tensor, accumulate: bool) -> Tensor:
        pattern = self.summed
        exchange = pattern.plan.start_forward(h, self.layer)
        self._multiply_local(pattern.local, h, out, accumulate, exchange)
        if len(pattern.by_peer) > 1:
            for peer in exchange.arrivals():
                first, last, rows = pattern.by_peer[peer]
                multiply(rows, exchange.rows[first:last], out, accumulate=True)
            exchange.finish()
            multiply(pattern.shared, exchange.rows, out, accumulate=True)
        else:
            multiply(pattern.halo, exchange.wait(), out, accumulate=True)
        return out

    def _multiply_transposed(self, grad: Tensor, out: Tensor, accumulate: bool) -> Tensor:
        plan = self.summed.plan
        exchange = plan.start_backward(grad.shape[1], grad.dtype, self.layer)
        for (peer, first, last), rows in zip(plan.halo_spans, self.summed.returned):
            multiply(rows, grad, exchange.outgoing[first:last])
            exchange.send(peer, first, last)
        self._multiply_local(self.pattern.local.transpose(), grad, out, accumulate, exchange)
        return multiply(plan.returning, exchange.wait(), out, accumulate=True)

    def _multiply_local(
        self, adj: Adjacency, h: Tensor, out: Tensor, accumulate: bool, exchange: HaloExchange
    ) -> None:
        if not self.plan.transport.needs_progress:
            multiply(adj, h, out, accumulate=accumulate)
            return
        for first, last, rows in self.pattern.cut(adj):
            multiply(rows, h, out[first:last], accumulate=accumulate)
            exchange.progress()

    def _make_transpose(self) -> Adjacency:
        transposed = _Transposed(self.indptr, self.indices, self.num_columns)
        transposed.origin = self
        transposed.product = self._multiply_transposed
        return transposed

    def column_ids(self, ids: Tensor) -> Tensor:
        part = self.plan.part
        return torch.cat([as_tensor(part.n_id), as_tensor(part.halo_id)])

    def column_counts(self) -> Tensor | None:
        factor = find_halo_factor(self.plan, find_aggregation(self.pattern.kind))
        if factor == 1:
            return None
        local, halo = self.plan.part.num_local, self.plan.part.num_halo
        return torch.cat([torch.ones(local), torch.full((halo,), factor)])

    def reverse(self, scale: Callable[[Tensor], Tensor]) -> Adjacency:
        if self._reversed is None:
            self._reversed = _Reversed(self, scale(self.pattern.out_degree))
        return self._reversed

    def pieces(self, z: Tensor) -> Iterator[tuple[Adjacency, Tensor]]:
        """Rows without halo columns come first: their attention overlaps with the halo exchange, forward and backward."""
        under_way = _UnderWay(self.plan, self.layer)
        z = _SendRows.apply(z, under_way)
        inner = self.pattern.inner
        if inner is None:
            yield self.pattern.wide, _ReceiveRows.apply(z, under_way)
        else:
            yield inner, z
            yield self.pattern.outer, _ReceiveRows.apply(z, under_way)


class _Reversed(Adjacency):
    """A PartAdjacency's kind of operator over the reversed edges: its transpose, with scales by other degrees.

    It is `diag(s / b) · originᵀ · diag(s / a)`, with row and column scales `a` and `b` of the origin and `s` of the
    reversed edges, each 1 where the kind has none. Its messages are those of the gradients.
    """

    def __init__(self, origin: PartAdjacency, scale: Tensor) -> None:
        super().__init__(origin.indptr, origin.indices, origin.num_columns, checked=True)
        rows, columns = origin.row_scale, origin.column_scale
        self.origin = origin
        scale = scale.double()  # so that quotients of scales are not rounded
        ones = torch.ones_like(scale)
        self.before = ones if rows is None else (ones if columns is None else scale) / rows.double()
        self.after = (ones if rows is None else scale) / (ones if columns is None else columns.double())
        self.product = partial(self._multiply, origin.transpose(), self.before, self.after)

    @property
    def num_entries(self) -> int:
        return self.origin.num_entries

    @staticmethod
    def _multiply(
        adj: Adjacency, before: Tensor, after: Tensor, h: Tensor, out: Tensor, accumulate: bool
    ) -> Tensor:
        product = multiply(adj, h * before[:, None].to(h.dtype)) * after[:, None].to(h.dtype)
        return out.add_(product) if accumulate else out.copy_(product)

    def _make_transpose(self) -> Adjacency:
        transposed = _Transposed(self.indptr, self.indices, self.num_columns, checked=True)
        transposed.origin = self
        transposed.product = partial(self._multiply, self.origin, self.after, self.before)
        return transposed


class _Transposed(Adjacency):
    """The transpose of a PartAdjacency, or of its reverse; it keeps its origin, whose plan and patterns it uses."""

    origin: Adjacency

    def transpose(self) -> Adjacency:
        return self.origin


def exchange_rows(z: Tensor, plan: HaloPlan, layer: int) -> Tensor:
    """`[z ‖ halo rows of z]`, (num_local + num_halo, f), differentiable: gradients are sent to their owners and added."""
    under_way = _UnderWay(plan, layer)
    widened: Tensor = _ReceiveRows.apply(_SendRows.apply(z, under_way), under_way)
    return widened


@dataclass
class _UnderWay:
    """An exchange in flight, of rows or, backward, of their gradients.

    Autograd runs the last operation first. So the backward of operations between `_SendRows` and `_ReceiveRows` runs
    after that of `_ReceiveRows`, which sends gradients, and before that of `_SendRows`, which waits for those of others.
    """

    plan: HaloPlan
    layer: int
    exchange: HaloExchange | None = None

    def take(self) -> Tensor:
        """Wait for the rows and return them."""
        assert self.exchange is not None
        rows = self.exchange.wait()
        self.exchange = None
        return rows


class _SendRows(torch.autograd.Function):
    """Identity that starts sending the boundary rows of z; backward, it adds the gradients received."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, under_way: _UnderWay) -> Tensor:
        ctx.under_way = under_way
        under_way.exchange = under_way.plan.start_forward(z, under_way.layer)
        return z.view_as(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        returned = ctx.under_way.take()
        return multiply(ctx.under_way.plan.returning, returned, grad.clone(), accumulate=True), None


class _ReceiveRows(torch.autograd.Function):
    """`[z ‖ halo rows]`; backward, it starts sending the halo rows' gradients to their owners."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, under_way: _UnderWay) -> Tensor:
        ctx.under_way = under_way
        out = z.new_empty(len(z) + under_way.plan.part.num_halo, z.shape[1])
        out[: len(z)] = z
        out[len(z) :] = under_way.take()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        plan, layer = ctx.under_way.plan, ctx.under_way.layer
        n = plan.part.num_local
        exchange = plan.start_backward(grad.shape[1], grad.dtype, layer)
        for peer, first, last in plan.halo_spans:
            exchange.outgoing[first:last] = grad[n + first : n + last]
            exchange.send(peer, first, last)
        ctx.under_way.exchange = exchange
        return grad[:n], None
