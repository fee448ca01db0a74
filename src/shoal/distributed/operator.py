"""PartAdjacency: a rank's rows of the graph's operator, multiplied while the columns it lacks are on their way."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from shoal.distributed.halo import HaloExchange, HaloPlan
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply
from shoal.partitioning.part import Part
from shoal.sampling.batch import Block, as_tensor

_PIECES = 8  # of the local product, where the transport moves data only when asked


class PartAdjacency(Adjacency):
    """The rows of `[A_local ‖ A_halo]` that a rank owns, as a square operator over its own rows.

    `spmm(adj, h)` with the local rows of h gives the local rows of the whole graph's product: boundary rows
    leave and halo rows arrive while the local columns are multiplied, then the halo columns are added. The
    transpose does the same in reverse: gradients of halo rows are computed and sent home first, the local
    product runs meanwhile, and what the others send back is added last.

    Sums are made in an order that does not depend on which message comes first: rows that read one peer
    only are finished as soon as that peer's rows are here, those that read several at the end, by rank.
    """

    def __init__(self, local: Adjacency, halo: Adjacency, plan: HaloPlan, layer: int) -> None:
        super().__init__(local.indptr, local.indices, local.num_columns)
        self.local, self.halo = local, halo
        self.plan, self.layer = plan, layer
        self.product = self._multiply

    @property
    def num_entries(self) -> int:
        """At least one, so that every rank, one without edges too, plans its layers alike."""
        return max(self.local.num_entries + self.halo.num_entries, 1)

    def _multiply(self, h: Tensor, out: Tensor, accumulate: bool) -> Tensor:
        exchange = self.plan.start_forward(h, self.layer)
        self._multiply_local(self.local, h, out, accumulate, exchange)
        if len(self._by_peer) > 1:
            for peer in exchange.arrivals():
                first, last, rows = self._by_peer[peer]
                multiply(rows, exchange.rows[first:last], out, accumulate=True)
            exchange.finish()
            multiply(self._shared, exchange.rows, out, accumulate=True)
        else:
            multiply(self.halo, exchange.wait(), out, accumulate=True)
        return out

    def _multiply_transposed(self, grad: Tensor, out: Tensor, accumulate: bool) -> Tensor:
        plan = self.plan
        exchange = plan.start_backward(grad.shape[1], grad.dtype, self.layer)
        gradients = plan.halo_buffer(grad.shape[1], grad.dtype, self.layer)
        for (peer, first, last), rows in zip(plan.halo_spans, self._returned):
            multiply(rows, grad, gradients[first:last])
            plan.send_back(exchange, self.layer, peer, gradients[first:last])
        self._multiply_local(self.local.transpose(), grad, out, accumulate, exchange)
        return multiply(plan.returning, exchange.wait(), out, accumulate=True)

    def _multiply_local(
        self, adj: Adjacency, h: Tensor, out: Tensor, accumulate: bool, exchange: HaloExchange
    ) -> None:
        if not self.plan.transport.needs_progress:
            multiply(adj, h, out, accumulate=accumulate)
            return
        for first, last, rows in self._cut(adj):
            multiply(rows, h, out[first:last], accumulate=accumulate)
            exchange.progress()

    def _make_transpose(self) -> Adjacency:
        transposed = _Transposed(self.local.indptr, self.local.indices, self.num_columns)
        transposed.origin = self
        transposed.product = self._multiply_transposed
        return transposed

    def complete(self, z: Tensor) -> tuple[Adjacency, Tensor]:
        return self.wide, exchange_rows(z, self.plan, self.layer)

    @cached_property
    def wide(self) -> Adjacency:
        """The same rows over `[local ‖ halo]` columns, for what cannot be summed in two steps."""
        return join_columns(self.local, self.halo)

    @cached_property
    def _by_peer(self) -> dict[int, tuple[int, int, Adjacency]]:
        """For every peer: its halo span, and the rows that read no other peer. Only where order is free."""
        spans = self.plan.halo_spans
        if not self.plan.is_fixed or not self.plan.transport.in_any_order or len(spans) < 2:
            return {}
        return {q: (a, b, self._keep_rows(self._owner == q, a, b)) for q, a, b in spans}

    @cached_property
    def _shared(self) -> Adjacency:
        """The rows that read several peers."""
        return self._keep_rows(self._owner == -2, 0, self.halo.num_columns)

    @cached_property
    def _owner(self) -> np.ndarray:
        """The one peer each row reads; -1 for none, -2 for several."""
        indptr, indices = self.halo.indptr.numpy(), self.halo.indices.numpy()
        bounds = self.plan.part.halo_offsets
        filled = np.flatnonzero(np.diff(indptr))
        first = np.searchsorted(bounds, indices[indptr[filled]], side="right") - 1
        last = np.searchsorted(bounds, indices[indptr[filled + 1] - 1], side="right") - 1
        owner = np.full(len(indptr) - 1, -1)
        owner[filled] = np.where(first == last, first, -2)
        return owner

    def _keep_rows(self, keep: np.ndarray, first: int, last: int) -> Adjacency:
        """The halo pattern's rows in `keep`, the others empty, over halo columns first…last-1."""
        indptr, indices = self.halo.indptr.numpy(), self.halo.indices.numpy()
        counts = np.diff(indptr) * keep
        kept = np.repeat(keep, np.diff(indptr))
        scale = self.halo.column_scale
        return Adjacency(
            torch.from_numpy(np.concatenate([[0], np.cumsum(counts)])),
            torch.from_numpy(indices[kept] - np.asarray(first, indices.dtype)),
            last - first,
            row_scale=self.halo.row_scale,
            column_scale=None if scale is None else scale[first:last],
        )

    @cached_property
    def _returned(self) -> list[Adjacency]:
        """The transposed halo pattern, cut by the ranks its rows go home to."""
        transposed = self.halo.transpose()
        return [transposed.slice_rows(a, b) for _, a, b in self.plan.halo_spans]

    @cached_property
    def _cuts(self) -> dict[int, list[tuple[int, int, Adjacency]]]:
        return {}

    def _cut(self, adj: Adjacency) -> list[tuple[int, int, Adjacency]]:
        """`adj` in a few pieces of rows, cut once."""
        if id(adj) not in self._cuts:
            edges = np.linspace(0, adj.num_rows, _PIECES + 1).astype(int).tolist()
            self._cuts[id(adj)] = [(a, b, adj.slice_rows(a, b)) for a, b in pairwise(edges) if b > a]
        return self._cuts[id(adj)]


class _Transposed(Adjacency):
    """The transpose of a PartAdjacency; it keeps its origin, whose plan and patterns it uses."""

    origin: PartAdjacency

    def transpose(self) -> Adjacency:
        return self.origin


class PartBlock(Block):
    """One aggregation over a part: `adjacency` answers operators whose products exchange rows.

    Blocks of one plan share the patterns; each has its own `layer`, by which its messages are counted. A thinned
    plan's share the local pattern with the plan it was thinned from, unless that lost entries too.
    """

    def __init__(self, plan: HaloPlan, layer: int, like: PartBlock | None = None) -> None:
        part = plan.part
        n = part.num_local
        super().__init__(
            as_tensor(part.local_indptr),
            as_tensor(part.local_indices),
            n,
            symmetric=not part.directed,
            edge_norm=_scale_edges(part, plan.local_scale) if plan.edge_norms is None else plan.edge_norms[0],
            degree=as_tensor(part.degree[:n]),
            has_loop=None if part.has_loop is None else as_tensor(part.has_loop[:n]),
        )
        self.plan = plan
        self.layer = layer
        same_plan = like is not None and like.plan is plan
        same_rows = like is not None and like.plan.part.local_indices is part.local_indices
        self._halos: dict[str, Adjacency] = like._halos if like is not None and same_plan else {}
        self._locals: dict[str, Adjacency] = like._locals if like is not None and same_rows else {}

    @property
    def num_edges(self) -> int:
        return len(self.plan.part.local_indices) + len(self.plan.part.halo_indices)

    def adjacency(self, kind: str) -> Adjacency:
        if kind not in self._adjacencies:
            if kind not in self._locals:
                self._locals[kind] = super().adjacency(kind)
            if kind not in self._halos:
                self._halos[kind] = scale_halo(self.plan, kind, self._locals[kind])
            local, halo = self._locals[kind], self._halos[kind]
            self._adjacencies[kind] = PartAdjacency(local, halo, self.plan, self.layer)
        return self._adjacencies[kind]


def scale_halo(plan: HaloPlan, kind: str, local: Adjacency) -> Adjacency:
    """The operator over the halo columns: the whole graph's scales, times what an entry of the plan counts for.

    Attention divides by its weights' sum, so that only what a halo entry counts beside a local one matters to it.
    """
    part = plan.part
    factor = plan.halo_scale / plan.local_scale if kind == "attention" else plan.halo_scale
    column_scale = _fill_scale(part.num_halo, factor)
    if kind == "gcn":
        degree = as_tensor(part.degree[part.num_local :])
        loops = 1 if part.has_loop is None else ~as_tensor(part.has_loop[part.num_local :])
        column_scale = factor * (degree + loops).float().rsqrt()
    return Adjacency(
        as_tensor(part.halo_indptr),
        as_tensor(part.halo_indices),
        part.num_halo,
        values=None if plan.edge_norms is None or kind == "attention" else plan.edge_norms[1],
        row_scale=local.row_scale,
        column_scale=column_scale,
    )


def _scale_edges(part: Part, scale: float) -> Tensor | None:
    """What every local entry counts for; a self loop, which is never left out, counts once."""
    norm = _fill_scale(len(part.local_indices), scale)
    if norm is not None and part.has_loop is not None:
        rows = np.repeat(np.arange(part.num_local), np.diff(part.local_indptr))
        norm[as_tensor(rows == part.local_indices)] = 1
    return norm


def _fill_scale(count: int, scale: float) -> Tensor | None:
    """`count` times the same factor; None for the factor 1."""
    return None if scale == 1 else torch.full((count,), scale)


def join_columns(local: Adjacency, halo: Adjacency) -> Adjacency:
    """`[local ‖ halo]` as one operator."""
    n = local.num_columns
    counts = local.indptr.diff(), halo.indptr.diff()
    indptr = local.indptr + halo.indptr
    dtype = local.indices.dtype if n + halo.num_columns < 1 << 31 else torch.int64
    indices = torch.empty(local.num_entries + halo.num_entries, dtype=dtype)
    for adj, count, shift, before in ((local, counts[0], 0, None), (halo, counts[1], n, counts[0])):
        start = indptr[:-1] if before is None else indptr[:-1] + before
        place = torch.arange(adj.num_entries) + torch.repeat_interleave(start - adj.indptr[:-1], count)
        indices[place] = adj.indices.to(dtype) + shift
    scale = None
    if halo.column_scale is not None:
        own = torch.ones(n) if local.column_scale is None else local.column_scale
        scale = torch.cat([own, halo.column_scale])
    return Adjacency(indptr, indices, n + halo.num_columns, row_scale=local.row_scale, column_scale=scale)


def exchange_rows(z: Tensor, plan: HaloPlan, layer: int) -> Tensor:
    """`[z ‖ halo rows of z]`, (num_local + num_halo, f), differentiable: gradients go home and are added."""
    widened: Tensor = _ExchangeRows.apply(z, plan, layer)
    return widened


class _ExchangeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, plan: HaloPlan, layer: int) -> Tensor:
        ctx.plan, ctx.layer = plan, layer
        exchange = plan.start_forward(z, layer)
        out = torch.empty(len(z) + plan.part.num_halo, z.shape[1], dtype=z.dtype)
        out[: len(z)] = z  # while the rows are on their way
        out[len(z) :] = exchange.wait()
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        plan, n = ctx.plan, ctx.plan.part.num_local
        exchange = plan.start_backward(grad.shape[1], grad.dtype, ctx.layer)
        gradients = plan.halo_buffer(grad.shape[1], grad.dtype, ctx.layer)
        for peer, first, last in plan.halo_spans:
            gradients[first:last] = grad[n + first : n + last]
            plan.send_back(exchange, ctx.layer, peer, gradients[first:last])
        home = grad[:n].clone()
        return multiply(plan.returning, exchange.wait(), home, accumulate=True), None, None
