"""PartPattern: the operators of one kind of aggregation over a part, in the pieces that exchanges need."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from shoal.aggregation import Aggregation, find_aggregation
from shoal.block import count_loops
from shoal.distributed.cover import CoverPlan
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import INPUT
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor
from shoal.kernels.patterns import count_up, join_columns

_INNER_SHARE = 0.25  # least share of local entries in rows without halo columns, for which overlap pays
_PIECES = 8  # of the local product, between which a transport that needs it makes progress


class PartPattern:
    """`[A_local ‖ A_halo]` of one kind of aggregation, shared by all layers of this kind.

    Pieces are made at first use and cached.
    """

    def __init__(self, local: Adjacency, plan: HaloPlan, kind: str) -> None:
        self.local = local
        self.plan = plan
        self.kind = kind
        self._cuts: dict[int, list[tuple[int, int, Adjacency]]] = {}

    @cached_property
    def summed(self) -> PartPattern:
        """The pattern that products use: by covers if the plan has them and the aggregation is linear."""
        if self.plan.items is None or not find_aggregation(self.kind).weighted:
            return self
        return _CoverPattern(self.local, CoverPlan(self.plan, self.local.column_scale), self.kind)

    @cached_property
    def halo(self) -> Adjacency:
        """The operator over the received rows."""
        return scale_halo(self.plan, self.kind, self.local)

    @cached_property
    def out_degree(self) -> Tensor:
        """Out-degree of each local row over all ranks, weighted if edges are, with self loops if the kind has them.

        A collective call: counts of halo rows are sent to their owners as gradients are.
        """
        part = self.plan.part
        dtype = torch.int64 if part.local_weight is None else torch.float64
        counts = []
        for adj in (self.local, self.halo):
            weights = torch.ones(adj.num_entries) if adj.values is None else adj.values
            read = torch.zeros(adj.num_columns, dtype=dtype)
            counts.append(read.index_add_(0, adj.indices.long(), weights.to(dtype)))
        plan = HaloPlan(part, self.plan.transport, self.plan.ledger)
        exchange = plan.start_backward(1, dtype, INPUT)
        plan.transport.phase = "the degrees of reversed edges"
        exchange.outgoing[:, 0] = counts[1]
        for peer, first, last in plan.halo_spans:
            exchange.send(peer, first, last)
        return counts[0].index_add_(0, plan.send_rows, exchange.wait()[:, 0])

    @cached_property
    def wide(self) -> Adjacency:
        """The same rows over `[local ‖ halo]` columns, for aggregations that cannot be summed in two steps."""
        return join_operators(self.local, self.halo)

    @cached_property
    def inner(self) -> Adjacency | None:
        """The rows without halo columns, the others empty; None where separate work on them does not pay."""
        if not (self.plan.is_fixed and self.plan.overlaps) or self.halo.num_entries == 0:
            return None
        inner = keep_rows(self.local, self._owner == -1)
        return inner if inner.num_entries >= _INNER_SHARE * self.local.num_entries else None

    @cached_property
    def outer(self) -> Adjacency:
        """The rows of `wide` that `inner` lacks."""
        return keep_rows(self.wide, self._owner != -1)

    @cached_property
    def by_peer(self) -> dict[int, tuple[int, int, Adjacency]]:
        """For every peer: its halo span, and the rows with halo columns of no other peer. Empty if arrivals have a fixed order."""
        spans = self.plan.halo_spans
        if not self.plan.is_fixed or not self.plan.transport.in_any_order or len(spans) < 2:
            return {}
        return {q: (a, b, self._keep_rows(self._owner == q, a, b)) for q, a, b in spans}

    @cached_property
    def shared(self) -> Adjacency:
        """The rows with halo columns of several peers."""
        return self._keep_rows(self._owner == -2, 0, self.halo.num_columns)

    @cached_property
    def returned(self) -> list[Adjacency]:
        """The transposed halo pattern, cut by the owners of its rows."""
        transposed = self.halo.transpose()
        return [transposed.slice_rows(a, b) for _, a, b in self.plan.halo_spans]

    def cut(self, adj: Adjacency) -> list[tuple[int, int, Adjacency]]:
        """The local operator or its transpose in a few pieces of rows, cut once."""
        if id(adj) not in self._cuts:
            edges = [adj.num_rows * piece // _PIECES for piece in range(_PIECES + 1)]
            self._cuts[id(adj)] = [(a, b, adj.slice_rows(a, b)) for a, b in pairwise(edges) if b > a]
        return self._cuts[id(adj)]

    @cached_property
    def _owner(self) -> Tensor:
        """The peer of each row's halo columns; -1 for none, -2 for several."""
        indptr, indices = self.halo.indptr, self.halo.indices
        bounds = as_tensor(self.plan.halo_offsets)
        filled = indptr.diff().nonzero()[:, 0]
        ends = torch.stack([indices[indptr[filled]], indices[indptr[filled + 1] - 1]]).long()
        first, last = torch.searchsorted(bounds, ends, right=True) - 1
        owner = torch.full((len(indptr) - 1,), -1)
        owner[filled] = torch.where(first == last, first, -2)
        return owner

    def _keep_rows(self, keep: Tensor, first: int, last: int) -> Adjacency:
        """The halo pattern's rows in `keep`, the others empty, over halo columns first…last-1."""
        rows, scale = keep_rows(self.halo, keep), self.halo.column_scale
        return Adjacency(
            rows.indptr,
            rows.indices - first,
            last - first,
            values=rows.values,
            row_scale=rows.row_scale,
            column_scale=None if scale is None else scale[first:last],
            checked=True,
        )


class _CoverPattern(PartPattern):
    """The pattern over items in place of halo rows; their owners have applied the column scales."""

    plan: CoverPlan

    @cached_property
    def halo(self) -> Adjacency:
        plan = self.plan
        scale = None if plan.halo_scale == 1 else torch.full((plan.num_halo,), plan.halo_scale)
        return Adjacency(
            plan.items.indptr,
            plan.items.indices,
            plan.num_halo,
            values=plan.items.values,
            row_scale=self.local.row_scale,
            column_scale=scale,
            checked=True,
        )


def keep_rows(adj: Adjacency, keep: Tensor) -> Adjacency:
    """The same operator with the rows that are not in `keep` (num_rows,) empty."""
    counts = adj.indptr.diff()
    entries = torch.repeat_interleave(keep, counts)
    return Adjacency(
        count_up(counts * keep),
        adj.indices[entries],
        adj.num_columns,
        values=None if adj.values is None else adj.values[entries],
        row_scale=adj.row_scale,
        column_scale=adj.column_scale,
        checked=True,
    )


def find_halo_factor(plan: HaloPlan, aggregation: Aggregation) -> float:
    """Factor of a halo row in an aggregation."""
    counts = (aggregation.weighted or plan.edge_norms is None) and plan.items is None
    return plan.halo_scale if counts else 1.0


def scale_halo(plan: HaloPlan, kind: str, local: Adjacency) -> Adjacency:
    """The operator over the halo columns: the whole graph's scales, times the plan's factor of halo rows.

    A layer that normalises by itself uses no edge norms. Where local entries are dropped too, its halo rows have the
    factor 1.
    """
    part, norms, aggregation = plan.part, plan.edge_norms, find_aggregation(kind)
    values = None if part.halo_weight is None else as_tensor(part.halo_weight)
    if norms is not None and norms[1] is not None and aggregation.weighted:
        values = norms[1] if values is None else values * norms[1]
    factor = find_halo_factor(plan, aggregation)
    column_scale = None if factor == 1 else torch.full((part.num_halo,), factor)
    if aggregation.scales_columns:
        degree = as_tensor(part.degree[part.num_local :])
        if aggregation.loops:
            has_loop = None if part.has_loop is None else as_tensor(part.has_loop[part.num_local :])
            degree = count_loops(degree, has_loop)
        column_scale = factor * aggregation.scale_degrees(degree)
    return Adjacency(
        as_tensor(part.halo_indptr),
        as_tensor(part.halo_indices),
        part.num_halo,
        values=values,
        row_scale=local.row_scale,
        column_scale=column_scale,
        checked=True,
    )


def join_operators(local: Adjacency, halo: Adjacency) -> Adjacency:
    """`[local ‖ halo]` as one operator."""
    n = local.num_columns
    mine, others = ((adj.indptr, adj.indices) for adj in (local, halo))
    indptr, indices = join_columns(mine, others, n, halo.num_columns)
    scale = None
    if halo.column_scale is not None:
        own = halo.column_scale.new_ones(n) if local.column_scale is None else local.column_scale
        scale = torch.cat([own, halo.column_scale])
    values = None
    if local.values is not None or halo.values is not None:
        both = [
            adj.values if adj.values is not None else torch.ones(adj.num_entries) for adj in (local, halo)
        ]
        values, is_halo = both[0].new_empty(len(indices)), indices >= n
        values[~is_halo], values[is_halo] = both[0], both[1].to(values)
    return Adjacency(
        indptr,
        indices,
        n + halo.num_columns,
        values=values,
        row_scale=local.row_scale,
        column_scale=scale,
        checked=True,
    )
