"""LayeredSampler: batches with one block per layer, grown from output nodes back to the input."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any

import numpy as np

from shoal.batch import Batch, as_tensor
from shoal.block import Block
from shoal.graph import Graph
from shoal.kernels.entry_weights import take_weights
from shoal.kernels.jit import kernel
from shoal.sampling.base import Count, TrainingGraph
from shoal.sampling.targets import BatchSize, TargetSampler
from shoal.settings import Seed, check_settings

NumLayers = Annotated[Count, "aggregations of the model; a batch has a block for each"]
Grown = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class LayeredSampler(TargetSampler):
    """Batches of `batch_size` output nodes, each training node once per epoch in a new random order.

    Other `outputs` than the training nodes may be given, and with `shuffle=False` they keep their order.

    A subclass implements `grow`: from the nodes that a layer computes to its pattern and the nodes it aggregates from.
    Blocks are wide, their first columns are their rows, and they carry the training graph's
    degrees, so that `edge_norm` makes both mean and GCN aggregation unbiased.
    """

    needs_edges = True

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: BatchSize,
        num_layers: NumLayers,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        outputs: Any = None,
        shuffle: bool = True,
    ) -> None:
        super().__init__(
            graph, batch_size=batch_size, setting=setting, seed=seed, outputs=outputs, shuffle=shuffle
        )
        self.num_layers = num_layers

    @abstractmethod
    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        """(indptr, indices, columns, edge_norm) of the block whose rows are `nodes`.

        `columns` begins with `nodes`; `indices` point into it, increasing within a row.

        Args:
            nodes: rows of the block.
            layer: number of the layer, counted from the output, 0 first.
            k: number of the batch.
        """

    def sample(self, k: int) -> Batch:
        """Batch number k: its blocks from the input to the output, its output nodes first."""
        nodes = self.draw_outputs(k)
        blocks: list[Block] = []
        for layer in range(self.num_layers):
            indptr, indices, columns, edge_norm = self.grow(nodes, layer, k)
            degree = self.graph.indptr[columns + 1] - self.graph.indptr[columns]
            if self.graph.edge_weight is not None:
                degree = self.graph.weighted_degree[columns]
            block = Block(
                as_tensor(indptr), as_tensor(indices), len(columns), degree=as_tensor(degree), checked=True
            )
            block.edge_norm = as_tensor(edge_norm)
            if (weights := self.graph.edge_weight) is not None:
                pattern = self.graph.indptr, self.graph.indices
                block.edge_weight = as_tensor(
                    take_weights(*pattern, weights, nodes, columns, indptr, indices)
                )
            block.has_loop = None if self._has_loop is None else as_tensor(self._has_loop[columns])
            blocks.insert(0, block)
            nodes = columns
        return Batch(self.graph, nodes, tuple(blocks), index=k)

    def list_inputs(self, k: int) -> np.ndarray:
        return self.sample(k).nodes

    def draw_nodes(self, k: int) -> np.ndarray:
        return np.sort(self.list_inputs(k))


@kernel
def sort_row(columns, values):
    """Sort a row's columns and its values with them (Shell's sort: in place, rows are short)."""
    gap = len(columns) // 2
    while gap > 0:
        for i in range(gap, len(columns)):
            column, value = columns[i], values[i]
            j = i
            while j >= gap and columns[j - gap] > column:
                columns[j], values[j] = columns[j - gap], values[j - gap]
                j -= gap
            columns[j], values[j] = column, value
        gap = 1 if gap == 2 else gap * 5 // 11
