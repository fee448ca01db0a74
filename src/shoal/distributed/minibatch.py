"""Mini-batches shared by all ranks: all draw the same batch, each works on its own rows (VLDB'22 §4.3.3)."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.batch import Batch, as_tensor
from shoal.distributed.batch_cover import cover_batch
from shoal.distributed.block import PartBlock
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import SAMPLING
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.csr import index_dtype
from shoal.kernels.entry_weights import take_weights
from shoal.kernels.jit import kernel
from shoal.partitioning.part import Part
from shoal.sampling.base import Sampler
from shoal.sampling.shard import RankSampler


class RestrictedSampler(RankSampler):
    """Restricts the batches of `source` to this rank's rows.

    A batch is a pure function of its number, so every rank draws it without a message. Each rank reads the entries of
    its own rows, which give its halo and, in an undirected graph, which ranks need its rows. In a directed graph it reads
    the entries of the whole batch for the latter. If the model scales by degrees in the batch, it reads the entries of
    the halo too. So nothing is sent to make a batch.

    Args:
        source: draws nodes of the whole graph, whose topology every rank can read.
        graph: this rank's local rows.
        plan: of its part of the whole graph.
        scales_columns: whether the model's aggregation depends on the neighbours' degrees, as GCN's does.
    """

    name = "restricted"

    def __init__(self, source: Sampler, graph: Graph, plan: HaloPlan, *, scales_columns: bool) -> None:
        source.require_shareable()
        part, whole = plan.part, source.graph
        while whole.parent is not None:
            whole = whole.parent
        if not whole.has_checksum(part.checksum):
            raise ShoalError(
                f"batches are drawn from {whole.name!r} and the parts were made from {part.name!r}, or from another split of it: name the graph that was partitioned"
            )
        if (whole.edge_weight is None) != (part.local_weight is None):
            raise ShoalError(
                f"only one of graph {whole.name!r} and its stored parts has edge weights: partition the graph that is trained on"
            )
        super().__init__(source, graph)
        self.plan = plan
        self.scales_columns = scales_columns
        self.owner = find_owners(plan)
        self._rows = np.zeros(part.num_global_nodes, index_dtype(part.num_local))
        self._rows[part.n_id] = np.arange(part.num_local)
        self._place = np.full(source.graph.num_nodes, -1, np.int32)

    def draw_nodes(self, k: int) -> np.ndarray:
        """This rank's rows of batch k, in its own numbering."""
        ids = self.source.graph.global_ids(self.source.draw_nodes(k))
        return np.asarray(self._rows[ids[self.owner[ids] == self.plan.part.rank]], np.int64)

    @cached_property
    def batch_size(self) -> float:
        """Nodes in a batch, those of all ranks."""
        return self.source.batch_size

    @property
    def num_batches(self) -> int:
        return self.source.num_batches

    def sample(self, k: int) -> Batch:
        norms, graph = self.source.norms, self.source.graph
        with self.plan.ledger.timing(SAMPLING):
            nodes = self.source.draw_nodes(k)
            owners = self.owner[graph.global_ids(nodes)]
            part, edge_norms = cut_batch(
                self.plan.part,
                graph,
                nodes,
                owners,
                self._place,
                edge_norm=None if norms is None else norms.edge_norm,
                has_loop=self.source._has_loop,
                halo_degrees=self.scales_columns and norms is None and self.plan.items is None,
            )
            items = None
            if self.plan.items is not None:
                weights = [None if edge_norms is None else edge_norms[1].numpy(), part.halo_weight]
                given = [one for one in weights if one is not None]
                items = cover_batch(
                    part,
                    graph,
                    nodes,
                    owners,
                    self._place,
                    edge_norm=self._entry_factors,
                    halo_norm=np.prod(given, axis=0) if given else None,
                )
            plan = self.plan.thinned(part, edge_norms=edge_norms, items=items)
            return Batch(
                self.graph,
                np.asarray(self._rows[part.n_id], np.int64),
                (PartBlock(plan),),
                index=k,
                node_norm=self._weigh_nodes(nodes, owners),
                n_id=as_tensor(part.n_id),
                exchange=plan,
            )

    @cached_property
    def _entry_factors(self) -> np.ndarray | None:
        """Factor of every entry of the graph in a batch: its norm times its weight; None for 1."""
        norms, weights = self.source.norms, self.source.graph.edge_weight
        norm = None if norms is None else norms.edge_norm
        if norm is None or weights is None:
            return weights if norm is None else norm
        return np.asarray(norm * weights, np.float32)

    def _weigh_nodes(self, nodes: np.ndarray, owners: np.ndarray) -> Tensor:
        """Weight of each of this rank's rows in the loss of the batch."""
        norms, mask = self.source.norms, self.source.graph.train_mask
        own = nodes[owners == self.plan.part.rank]
        if norms is not None:
            return as_tensor(norms.node_norm[own])
        count = len(nodes) if mask is None else int(np.count_nonzero(mask[nodes]))
        return torch.full((len(own),), 1 / max(count, 1), dtype=torch.float64)


def find_owners(plan: HaloPlan) -> np.ndarray:
    """The rank of every node of the graph, int32 (n,); a collective call."""
    owner = torch.zeros(plan.part.num_global_nodes, dtype=torch.int32)
    owner[as_tensor(plan.part.n_id)] = plan.part.rank
    plan.transport.phase = "the exchange of the nodes' owners"
    return plan.transport.sum(owner).numpy()


def cut_batch(
    part: Part,
    graph: Graph,
    nodes: np.ndarray,
    owners: np.ndarray,
    place: np.ndarray,
    *,
    edge_norm: np.ndarray | None = None,
    has_loop: np.ndarray | None = None,
    halo_degrees: bool = True,
) -> tuple[Part, tuple[Tensor, Tensor] | None]:
    """This rank's share of the subgraph that `nodes` induce, and the edge norms of its local and halo entries.

    With `edge_norm`, one factor for each entry of the graph, degrees are those in the graph. Without it they are those in
    the batch, which are counted for halo nodes only with `halo_degrees`.

    Args:
        owners: the rank of each node.
        place: int32 scratch, -1 for every node of the graph; it is reset before returning.
        has_loop: which nodes of the graph have a self loop, None if none has.
    """
    rank, num_parts, directed = part.rank, part.num_parts, graph.directed
    own = np.flatnonzero(owners == rank)
    lengths = np.asarray(graph.indptr[nodes + 1] - graph.indptr[nodes], np.int64)
    room = int((lengths if directed else lengths[own]).sum()) + 1
    indptrs = [np.zeros(len(own) + 1, np.int64) for _ in ("local", "halo")]
    indices = [np.empty(room, np.int32) for _ in ("local", "halo")]
    norms = [np.empty(0 if edge_norm is None else room, np.float32) for _ in ("local", "halo")]
    given = norms[0] if edge_norm is None else edge_norm
    pairs, degree = np.empty(room, np.int64), np.zeros(len(nodes), np.int64)
    is_halo = np.zeros(len(nodes), np.bool_)
    count = _cut_rows(
        graph.indptr, graph.indices, nodes, owners, rank, num_parts, own, directed, place, given,
        *indptrs, *indices, *norms, pairs, degree, is_halo,
    )  # fmt: skip
    sizes = [int(indptr[-1]) for indptr in indptrs]
    indices = [array[:size] for array, size in zip(indices, sizes)]
    norms = [array[:size] for array, size in zip(norms, sizes)]
    pairs = np.sort(pairs[:count])
    receivers, sent = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], len(nodes))
    by_owner = np.argsort(owners, kind="stable")
    halo = by_owner[is_halo[by_owner]]
    number = np.empty(len(nodes), np.int32)
    number[own], number[halo] = np.arange(len(own)), np.arange(len(halo))
    _number_columns(indptrs[1], indices[1], norms[1], number)
    members = np.concatenate([own, halo])
    weights: dict[str, Any] = {"local_weight": None, "halo_weight": None}
    degrees: np.ndarray
    if graph.edge_weight is None:
        if halo_degrees and edge_norm is None:
            _count_entries(graph.indptr, graph.indices, nodes, halo, place, degree)
        degrees = (degree if edge_norm is None else lengths)[members]
    else:
        for name, ids, columns in (("local", own, 0), ("halo", halo, 1)):
            weights[f"{name}_weight"] = take_weights(
                graph.indptr, graph.indices, graph.edge_weight, nodes[own], nodes[ids],
                indptrs[columns], indices[columns],
            )  # fmt: skip
        if edge_norm is None:
            read = members if halo_degrees else own
            degrees = np.zeros(len(nodes))
            _sum_entries(graph.indptr, graph.indices, graph.edge_weight, nodes, read, place, degrees)
            degrees = degrees[members]
        else:
            degrees = graph.weighted_degree[nodes[members]]
    loops = None if has_loop is None else has_loop[nodes[members]]
    ids = np.ascontiguousarray(graph.global_ids(nodes), np.int64)
    share = replace(
        part,
        n_id=ids[own],
        halo_id=ids[halo],
        halo_offsets=_count_up(owners[halo], num_parts),
        send_rows=number[sent],
        send_offsets=_count_up(receivers, num_parts),
        local_indptr=indptrs[0],
        local_indices=indices[0],
        halo_indptr=indptrs[1],
        halo_indices=indices[1],
        degree=degrees,
        **weights,
        has_loop=loops if loops is not None and loops.any() else None,
        keep=None,
        x=None,
        y=None,
        train_mask=None,
        val_mask=None,
        test_mask=None,
        checked=True,
    )
    return share, None if edge_norm is None else (as_tensor(norms[0]), as_tensor(norms[1]))


def _count_up(ranks: np.ndarray, num_parts: int) -> np.ndarray:
    """Offsets of each rank's entries, from the rank of every entry, in ascending order."""
    offsets = np.zeros(num_parts + 1, np.int64)
    np.cumsum(np.bincount(ranks, minlength=num_parts), out=offsets[1:])
    return offsets


# fmt: off
@kernel
def _cut_rows(
    indptr, indices, nodes, owners, rank, num_parts, own, directed, place, values,
    local_indptr, halo_indptr, local_indices, halo_indices, local_values, halo_values, pairs, degree, is_halo,
):
    """Split this rank's rows into local columns, by their local numbers, and halo columns, by their position in the batch.

    `pairs` gets receiver · n + row for every row that another rank reads; returns their number. In a directed graph some
    are repeated.
    """
    for i in range(len(nodes)):
        place[nodes[i]] = i
    local_number = np.empty(len(nodes), np.int32)
    for i in range(len(own)):
        local_number[own[i]] = i
    seen_by = np.full(num_parts, -1, np.int64)
    a, b, count = 0, 0, 0
    for i in range(len(own)):
        row = own[i]
        u = nodes[row]
        for k in range(indptr[u], indptr[u + 1]):
            column = place[indices[k]]
            if column < 0:
                continue
            owner = owners[column]
            if owner == rank:
                local_indices[a] = local_number[column]
                if len(local_values):
                    local_values[a] = values[k]
                a += 1
                continue
            halo_indices[b] = column
            if len(local_values):
                halo_values[b] = values[k]
            b += 1
            is_halo[column] = True
            if not directed and seen_by[owner] != i:
                seen_by[owner] = i
                pairs[count] = np.int64(owner) * len(nodes) + row
                count += 1
        local_indptr[i + 1], halo_indptr[i + 1] = a, b
        degree[row] = (a - local_indptr[i]) + (b - halo_indptr[i])
    if directed:
        for row in range(len(nodes)):
            if owners[row] == rank:
                continue
            u = nodes[row]
            for k in range(indptr[u], indptr[u + 1]):
                column = place[indices[k]]
                if column >= 0 and owners[column] == rank:
                    pairs[count] = np.int64(owners[row]) * len(nodes) + column
                    count += 1
    for i in range(len(nodes)):
        place[nodes[i]] = -1
    return count
# fmt: on


@kernel
def _number_columns(indptr, indices, values, number):
    """Renumber the columns and sort every row by them (insertion sort: rows are short and nearly sorted)."""
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            column = number[indices[k]]
            value = values[k] if len(values) else np.float32(0)
            j = k
            while j > indptr[r] and indices[j - 1] > column:
                indices[j] = indices[j - 1]
                if len(values):
                    values[j] = values[j - 1]
                j -= 1
            indices[j] = column
            if len(values):
                values[j] = value


@kernel
def _sum_entries(indptr, indices, weights, nodes, rows, place, degree):
    """Weighted degrees in the batch of the nodes at positions `rows`."""
    for i in range(len(nodes)):
        place[nodes[i]] = i
    for i in range(len(rows)):
        u = nodes[rows[i]]
        for k in range(indptr[u], indptr[u + 1]):
            if place[indices[k]] >= 0:
                degree[rows[i]] += weights[k]
    for i in range(len(nodes)):
        place[nodes[i]] = -1


@kernel
def _count_entries(indptr, indices, nodes, rows, place, degree):
    """Degrees in the batch of the nodes at positions `rows`."""
    for i in range(len(nodes)):
        place[nodes[i]] = i
    for i in range(len(rows)):
        u = nodes[rows[i]]
        for k in range(indptr[u], indptr[u + 1]):
            degree[rows[i]] += place[indices[k]] >= 0
    for i in range(len(nodes)):
        place[nodes[i]] = -1
