"""Mini-batches shared by all ranks: drawn alike everywhere, each rank works on its rows (VLDB'22 §4.3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shoal.distributed.batch import local_graph
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import INPUT, SAMPLING
from shoal.distributed.operator import PartBlock, exchange_rows
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.csr import index_dtype
from shoal.kernels.jit import kernel
from shoal.partitioning.part import Part
from shoal.partitioning.split import mark_loops
from shoal.sampling.base import Sampler
from shoal.sampling.batch import Batch, Block, as_tensor
from shoal.sampling.full import FullSampler
from shoal.sampling.layered import LayeredSampler
from shoal.sampling.normalize import Norms


class SharedBatch(Batch):
    """This rank's rows of a batch; every aggregation exchanges rows with the ranks that hold the others."""

    def __init__(self, graph: Graph, rows: np.ndarray, plan: HaloPlan, index: int, node_norm: Tensor) -> None:
        self.plan = plan
        self._pattern = PartBlock(plan, INPUT)
        self._layers: dict[int, Block] = {}
        super().__init__(graph, rows, (self._pattern,), index=index, node_norm=node_norm)

    def block(self, layer: int) -> Block:
        if layer not in self._layers:
            self._layers[layer] = PartBlock(self.plan, layer + 1, like=self._pattern)
        return self._layers[layer]

    @cached_property
    def n_id(self) -> Tensor:
        return as_tensor(self.plan.part.n_id)


class SharedBatchSampler(Sampler):
    """Restricts the batches of `source` to this rank's rows.

    A batch is a pure function of its number, so every rank draws it without a message. Each then reads the
    entries of its own rows, from which it knows its halo and, where edges go both ways, who reads its rows; of a
    directed graph it reads the whole batch's entries for that. Only the halo's degrees in the batch are asked
    for, where the model scales by them and the batch is not normalised.

    Args:
        source: draws nodes of the whole graph, whose topology every rank can read.
        plan: of this rank's part of that graph.
        scales_columns: whether the model's aggregation depends on the degree of what is read, as GCN's does.
    """

    name = "shared"
    is_for_one_rank = True

    def __init__(self, source: Sampler, plan: HaloPlan, *, scales_columns: bool) -> None:
        if isinstance(source, LayeredSampler | FullSampler) or source.is_for_one_rank:
            raise ShoalError(
                f"sampler {source.name!r} draws no whole subgraphs that ranks could share: use node, edge, random-walk or frontier"
            )
        part, whole = plan.part, source.graph
        while whole.parent is not None:
            whole = whole.parent
        if whole.checksum != part.checksum:
            raise ShoalError(
                "the sampler was made for another graph than the parts: give it the graph that was partitioned, with the same split"
            )
        super().__init__(local_graph(part), seed=source.seed)
        self.source = source
        self.plan = plan
        self.scales_columns = scales_columns
        self.coverage = source.coverage
        self.notices = source.notices
        self.owner = find_owners(plan)
        self._rows = np.zeros(part.num_global_nodes, index_dtype(part.num_local))
        self._rows[part.n_id] = np.arange(part.num_local)
        self._place = np.full(source.graph.num_nodes, -1, np.int32)

    def draw_nodes(self, k: int) -> np.ndarray:
        """This rank's rows of batch k, in its own numbering."""
        ids = self.source.graph.global_ids(self.source.draw_nodes(k))
        return np.asarray(self._rows[ids[self.owner[ids] == self.plan.part.rank]], np.int64)

    def normalize(
        self,
        coverage: int = 50,
        *,
        num_threads: int | None = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Norms:
        norms = self.source.normalize(coverage, num_threads=num_threads, progress=progress)
        self.coverage, self.notices = coverage, self.source.notices
        return norms

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
            edge_norm = None if norms is None else norms.edge_norm
            part, edge_norms = cut_batch(self.plan.part, graph, nodes, owners, self._place, edge_norm)
            plan = self.plan.thinned(part, edge_norms=edge_norms)
            if self.scales_columns and norms is None and not graph.directed:
                own = as_tensor(part.degree[: part.num_local])[:, None]
                plan.part = replace(part, degree=exchange_rows(own, plan, INPUT)[:, 0].numpy())
            rows = np.asarray(self._rows[part.n_id], np.int64)
            return SharedBatch(self.graph, rows, plan, k, self._weigh_nodes(nodes, owners))

    def _weigh_nodes(self, nodes: np.ndarray, owners: np.ndarray) -> Tensor:
        """What the loss of each of this rank's rows counts for in that of the batch."""
        norms, mask = self.source.norms, self.source.graph.train_mask
        own = nodes[owners == self.plan.part.rank]
        if norms is not None:
            return as_tensor(norms.node_norm[own])
        count = len(nodes) if mask is None else int(np.count_nonzero(mask[nodes]))
        return torch.full((len(own),), 1 / max(count, 1), dtype=torch.float64)


def find_owners(plan: HaloPlan) -> np.ndarray:
    """The rank of every node of the graph, int32 (n,), from what each rank owns."""
    owner = torch.zeros(plan.part.num_global_nodes, dtype=torch.int32)
    owner[as_tensor(plan.part.n_id)] = plan.part.rank
    plan.transport.phase = "the exchange of who owns which node"
    return plan.transport.sum(owner).numpy()


def cut_batch(
    part: Part,
    graph: Graph,
    nodes: np.ndarray,
    owners: np.ndarray,
    place: np.ndarray,
    edge_norm: np.ndarray | None,
) -> tuple[Part, tuple[Tensor, Tensor] | None]:
    """This rank's share of the subgraph that `nodes` induce, and the edge norms of its local and halo entries.

    Degrees are the graph's with `edge_norm`, one factor for each entry of the graph, and else those in the batch; of
    the halo these are known in a directed graph and zero in an undirected one, of which only own rows are read.
    `place` holds -1 for every node of the graph and does so afterwards.
    """
    rank, num_parts = part.rank, part.num_parts
    own = np.flatnonzero(owners == rank)
    read = np.arange(len(nodes)) if graph.directed else own
    indptr, columns, values = induce_rows(graph, nodes, read, place, edge_norm)
    degree = np.zeros(len(nodes), np.int64)
    degree[read] = np.diff(indptr)
    rows = np.repeat(read, np.diff(indptr))
    if graph.directed:
        coming = (owners[columns] == rank) & (owners[rows] != rank)
        readers = owners[rows[coming]] * np.int64(len(nodes)) + columns[coming]
        mine = owners[rows] == rank
        rows, columns, values = rows[mine], columns[mine], None if values is None else values[mine]
    is_local = owners[columns] == rank
    if not graph.directed:
        readers = owners[columns[~is_local]] * np.int64(len(nodes)) + rows[~is_local]
    receivers, sent = np.divmod(np.unique(readers), len(nodes))

    by_owner = np.argsort(owners, kind="stable")
    halo = by_owner[np.isin(by_owner, columns[~is_local])]
    number = np.empty(len(nodes), np.int32)
    number[own] = np.arange(len(own))
    number[halo] = np.arange(len(halo))
    local_indptr, halo_indptr = (
        _point_rows(number[rows[chosen]], len(own)) for chosen in (is_local, ~is_local)
    )
    local_indices, halo_indices = number[columns[is_local]], number[columns[~is_local]]
    norms = None
    halo_values = np.empty(0, np.float32)
    if values is not None:
        halo_values = values[~is_local]
        norms = as_tensor(values[is_local]), as_tensor(halo_values)
    _sort_rows(halo_indptr, halo_indices, halo_values)

    members = np.concatenate([own, halo])
    loops = mark_loops(graph.indptr, graph.indices, nodes[members])
    if edge_norm is not None:
        degree = np.asarray(graph.indptr[nodes + 1] - graph.indptr[nodes], np.int64)
    ids = np.ascontiguousarray(graph.global_ids(nodes), np.int64)
    thin = replace(
        part,
        n_id=ids[own],
        halo_id=ids[halo],
        halo_offsets=_point_rows(owners[halo], num_parts),
        send_rows=number[sent],
        send_offsets=_point_rows(receivers, num_parts),
        local_indptr=local_indptr,
        local_indices=local_indices,
        halo_indptr=halo_indptr,
        halo_indices=halo_indices,
        degree=degree[members],
        has_loop=loops if loops.any() else None,
        x=None,
        y=None,
        train_mask=None,
        val_mask=None,
        test_mask=None,
    )
    return thin, norms


def induce_rows(
    graph: Graph, nodes: np.ndarray, read: np.ndarray, place: np.ndarray, values: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(indptr, columns, values) of the rows `nodes[read]` in the subgraph of `nodes`, columns numbered as in it."""
    rows = nodes[read]
    room = int((graph.indptr[rows + 1] - graph.indptr[rows]).sum()) + 1
    indptr, columns = np.zeros(len(rows) + 1, np.int64), np.empty(room, np.int32)
    taken = np.empty(0 if values is None else room, np.float32)
    given = taken if values is None else values
    count = _induce_rows(graph.indptr, graph.indices, nodes, rows, place, given, indptr, columns, taken)
    return indptr, columns[:count], None if values is None else taken[:count]


def _point_rows(rows: np.ndarray, num_rows: int) -> np.ndarray:
    """Where each row's entries begin, from the row of every entry, in order."""
    indptr = np.zeros(num_rows + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=num_rows), out=indptr[1:])
    return indptr


@kernel
def _induce_rows(indptr, indices, nodes, rows, place, values, sub_indptr, columns, taken):
    for i in range(len(nodes)):
        place[nodes[i]] = i
    count = 0
    for i in range(len(rows)):
        u = rows[i]
        for k in range(indptr[u], indptr[u + 1]):
            position = place[indices[k]]
            columns[count] = position
            if len(taken):
                taken[count] = values[k]
            count += position >= 0
        sub_indptr[i + 1] = count
    for i in range(len(nodes)):
        place[nodes[i]] = -1
    return count


@kernel
def _sort_rows(indptr, indices, values):
    """Sort every row's columns, and their values where there are any."""
    for r in range(len(indptr) - 1):
        a, b = indptr[r], indptr[r + 1]
        order = np.argsort(indices[a:b])
        indices[a:b] = indices[a:b][order]
        if len(values):
            values[a:b] = values[a:b][order]
