"""PartBatch: a rank's part as the Batch that every model and the trainer work on."""

from __future__ import annotations

from copy import copy
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shoal.batch import Batch, Block, as_tensor
from shoal.distributed.features import widen_features
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import INPUT
from shoal.distributed.operator import PartAdjacency, PartBlock
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.gather import gather_rows
from shoal.kernels.spmm import multiply
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.models.mixhop import MixHopConv
from shoal.partitioning.part import Part
from shoal.sampling.base import Sampler


def local_graph(part: Part) -> Graph:
    """The part's local rows with features, labels and split, as a graph of their own."""
    return Graph(
        part.local_indptr,
        part.local_indices,
        x=part.x,
        y=part.y,
        train_mask=part.train_mask,
        val_mask=part.val_mask,
        test_mask=part.test_mask,
        directed=part.directed,
        num_classes=part.num_classes,
        name=part.name,
    )


class PartBatch(Batch):
    """The local rows of a part. Every aggregation over them exchanges rows with other ranks.

    What the first layer reads of other ranks never changes and is exchanged once: as `A x` where the layer
    can start from it, else as the halo's features, beside which the layer then works without messages.

    Args:
        num_train: training nodes on all ranks; the loss is this rank's share of their mean.
    """

    def __init__(self, plan: HaloPlan, model: GNN, num_train: int) -> None:
        part = plan.part
        graph = local_graph(part)
        self.plan = plan
        self._input_block = self._pattern = PartBlock(plan, INPUT)
        first = model.layers[0]
        assert isinstance(first, Layer)
        sparse = not isinstance(part.x, np.ndarray)
        changes = (
            sparse or first.kind == "attention" or model.input_dropout > 0
        )  # what is read of others does
        self._wide = first.kind is not None and changes and not isinstance(first.linear, MixHopConv)
        self._kind = first.kind
        self._layers: dict[int, Block] = {}
        norm = torch.full((part.num_local,), 1 / max(num_train, 1), dtype=torch.float64)
        nodes = np.arange(part.num_local)
        super().__init__(graph, nodes, (self._input_block,), node_norm=norm, fixed=True)

    def prepare(self) -> None:
        """Exchange now what is exchanged only once, and gather what thinned batches share."""
        _ = self.x, self.n_id, self.y, self.train_mask
        if self._kind is not None:
            self.aggregate_input(self._kind)

    def thinned(self, plan: HaloPlan) -> PartBatch:
        """The same rows with what a thinned plan exchanges. What is exchanged only once stays as it is: whole."""
        batch = copy(self)
        batch.plan = plan
        batch._pattern = PartBlock(plan, INPUT, like=self._pattern)
        batch._layers = {}
        return batch

    def block(self, layer: int) -> Block:
        if layer not in self._layers:
            if layer == 0 and self._wide:
                self._layers[layer] = _WideBlock(self._input_block)
            else:
                self._layers[layer] = PartBlock(self.plan, layer + 1, like=self._pattern)
        return self._layers[layer]

    @cached_property
    def n_id(self) -> Tensor:
        """Global ids of the rows that x has: the local ones first."""
        part = self.plan.part
        ids = np.concatenate([part.n_id, part.halo_id]) if self._wide else part.n_id
        return as_tensor(np.ascontiguousarray(ids, np.int64))

    @cached_property
    def x(self) -> Tensor | Adjacency:
        """Features of the local rows, followed by the halo's where the first layer needs them."""
        x = self._local_x
        if not self._wide:
            return x
        x = widen_features(x, self.plan)
        self.plan.release()
        return x

    @cached_property
    def _local_x(self) -> Tensor | Adjacency:
        x = self.plan.part.x
        if x is None:
            raise ShoalError(f"graph {self.graph.name!r} has no features: training needs x")
        if isinstance(x, np.ndarray):
            return gather_rows(x, self.nodes) if x.dtype == np.float16 else as_tensor(x)
        indptr = as_tensor(np.asarray(x.indptr, np.int64))
        return Adjacency(indptr, as_tensor(x.indices), int(x.shape[1]), values=as_tensor(x.data))

    def aggregate_input(self, kind: str) -> Tensor | None:
        if self._wide or not isinstance(self.x, Tensor):
            return None
        if kind not in self._aggregated:
            self._aggregated[kind] = multiply(self._input_block.adjacency(kind), self.x)
            self.plan.release()
        return self._aggregated[kind]


class _WideBlock(Block):
    """A part's pattern over local and halo columns, for a layer whose input has rows for both."""

    def __init__(self, block: PartBlock) -> None:
        part = block.plan.part
        super().__init__(block.indptr, block.indices, part.num_local + part.num_halo)
        self._block = block

    @property
    def num_edges(self) -> int:
        return self._block.num_edges

    def adjacency(self, kind: str) -> Adjacency:
        adj = self._block.adjacency(kind)
        assert isinstance(adj, PartAdjacency)
        return adj.pattern.wide


class PartBatchSampler(Sampler):
    """Full-batch training across ranks as a sampler: one batch an epoch, this rank's share of it."""

    name = "partitioned"
    is_for_one_rank = True

    def __init__(self, batch: PartBatch) -> None:
        super().__init__(batch.graph)
        self.batch = batch

    def draw_nodes(self, k: int) -> np.ndarray:
        return self.batch.nodes

    def sample(self, k: int) -> Batch:
        return self.batch

    @property
    def num_batches(self) -> int:
        return 1
