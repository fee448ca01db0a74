"""PartPattern: the operators of one kind of aggregation over a part, cut as its exchanges need them."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
import torch

from shoal.batch import as_tensor
from shoal.distributed.halo import HaloPlan
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.jit import kernel

_INNER_SHARE = 0.25  # of the local entries
_PIECES = 8  # of the local product, where the transport moves data only when asked


class PartPattern:
    """`[A_local ‖ A_halo]` of one kind of aggregation; every layer that aggregates so shares it.

    Pieces are made when they are first asked for and kept.
    """

    def __init__(self, local: Adjacency, plan: HaloPlan, kind: str) -> None:
        self.local = local
        self.halo = scale_halo(plan, kind, local)
        self.plan = plan
        self._cuts: dict[int, list[tuple[int, int, Adjacency]]] = {}

    @cached_property
    def wide(self) -> Adjacency:
        """The same rows over `[local ‖ halo]` columns, for what cannot be summed in two steps."""
        return join_columns(self.local, self.halo)

    @cached_property
    def inner(self) -> Adjacency | None:
        """The rows that read no halo row, the others empty; None where working on them apart does not pay."""
        if not (self.plan.is_fixed and self.plan.overlaps) or self.halo.num_entries == 0:
            return None
        inner = _empty_rows(self.local, self._owner != -1)
        return inner if inner.num_entries >= _INNER_SHARE * self.local.num_entries else None

    @cached_property
    def outer(self) -> Adjacency:
        """The rows of `wide` that `inner` lacks."""
        return _empty_rows(self.wide, self._owner == -1)

    @cached_property
    def by_peer(self) -> dict[int, tuple[int, int, Adjacency]]:
        """For every peer: its halo span, and the rows that read no other peer. Only where order is free."""
        spans = self.plan.halo_spans
        if not self.plan.is_fixed or not self.plan.transport.in_any_order or len(spans) < 2:
            return {}
        return {q: (a, b, self._keep_rows(self._owner == q, a, b)) for q, a, b in spans}

    @cached_property
    def shared(self) -> Adjacency:
        """The rows that read several peers."""
        return self._keep_rows(self._owner == -2, 0, self.halo.num_columns)

    @cached_property
    def returned(self) -> list[Adjacency]:
        """The transposed halo pattern, cut by the ranks its rows go home to."""
        transposed = self.halo.transpose()
        return [transposed.slice_rows(a, b) for _, a, b in self.plan.halo_spans]

    def cut(self, adj: Adjacency) -> list[tuple[int, int, Adjacency]]:
        """The local operator or its transpose in a few pieces of rows, cut once."""
        if id(adj) not in self._cuts:
            edges = np.linspace(0, adj.num_rows, _PIECES + 1).astype(int).tolist()
            self._cuts[id(adj)] = [(a, b, adj.slice_rows(a, b)) for a, b in pairwise(edges) if b > a]
        return self._cuts[id(adj)]

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


def _empty_rows(adj: Adjacency, dropped: np.ndarray) -> Adjacency:
    """The same operator without the entries of some rows."""
    counts = np.diff(adj.indptr.numpy())
    kept = torch.from_numpy(np.repeat(~dropped, counts))
    indptr = np.concatenate([[0], np.cumsum(np.where(dropped, 0, counts))])
    return Adjacency(
        torch.from_numpy(indptr),
        adj.indices[kept],
        adj.num_columns,
        row_scale=adj.row_scale,
        column_scale=adj.column_scale,
    )


def scale_halo(plan: HaloPlan, kind: str, local: Adjacency) -> Adjacency:
    """The operator over the halo columns: the whole graph's scales, times what a halo row counts for in the plan.

    Attention divides by the sum of its weights, so that edge norms play no part in it, and where local entries were
    left out as well a halo row counts as much as a local one.
    """
    part, norms = plan.part, plan.edge_norms
    factor = 1.0 if kind == "attention" and norms is not None else plan.halo_scale
    column_scale = None if factor == 1 else torch.full((part.num_halo,), factor)
    if kind == "gcn":
        degree = as_tensor(part.degree[part.num_local :])
        loops = 1 if part.has_loop is None else ~as_tensor(part.has_loop[part.num_local :])
        column_scale = factor * (degree + loops).float().rsqrt()
    return Adjacency(
        as_tensor(part.halo_indptr),
        as_tensor(part.halo_indices),
        part.num_halo,
        values=None if norms is None or kind == "attention" else norms[1],
        row_scale=local.row_scale,
        column_scale=column_scale,
    )


def join_columns(local: Adjacency, halo: Adjacency) -> Adjacency:
    """`[local ‖ halo]` as one operator."""
    n = local.num_columns
    dtype = local.indices.dtype if n + halo.num_columns < 1 << 31 else torch.int64
    indices = torch.empty(local.num_entries + halo.num_entries, dtype=dtype)
    patterns = (part.numpy() for adj in (local, halo) for part in (adj.indptr, adj.indices))
    _join_columns(*patterns, n, indices.numpy())
    scale = None
    if halo.column_scale is not None:
        own = torch.ones(n) if local.column_scale is None else local.column_scale
        scale = torch.cat([own, halo.column_scale])
    indptr = local.indptr + halo.indptr
    return Adjacency(indptr, indices, n + halo.num_columns, row_scale=local.row_scale, column_scale=scale)


@kernel
def _join_columns(local_indptr, local_indices, halo_indptr, halo_indices, shift, indices):
    count = 0
    for r in range(len(local_indptr) - 1):
        for k in range(local_indptr[r], local_indptr[r + 1]):
            indices[count] = local_indices[k]
            count += 1
        for k in range(halo_indptr[r], halo_indptr[r + 1]):
            indices[count] = halo_indices[k] + shift
            count += 1
