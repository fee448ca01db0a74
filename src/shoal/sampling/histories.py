"""HistorySampler: batches that aggregate over all neighbours; those outside the batch come from histories (GAS, VR-GCN)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.batch import Batch, as_tensor
from shoal.block import Block
from shoal.errors import ShoalError
from shoal.kernels.entry_weights import take_weights
from shoal.kernels.jit import kernel
from shoal.sampling.base import Sampler
from shoal.sampling.layered import LayeredSampler, sort_row
from shoal.sampling.neighbor import ALL, draw_neighbours
from shoal.sampling.shard import RankSampler


class HistorySampler(RankSampler):
    """The batches of `source`, their blocks completed to `S h + (A - S) h̄`, which equals `A h` if h̄ = h.

    A is the training graph's operator, h are the embeddings that a batch computes, h̄ historical embeddings. S is the
    operator that the source draws. For a subgraph sampler S is A between the batch's nodes, and other neighbours are read
    from h̄ (GAS). For a layered sampler S is an unbiased estimate of A and h̄ a control variate (VR-GCN): the completed
    estimate is unbiased for any h̄. The columns of h̄ are the last ones of a block, its `outside`.

    The nodes and entries of a batch are a pure function of (graph, settings, seed, k); histories are read in the step.

    Args:
        num_blocks: aggregations of the model.
        wide: whether the first aggregation reads features of neighbours. Features are exact, so nothing is drawn for it.
            False: the model starts from `A x`.

    Cost: that of the source and the total degree of the rows.
    """

    def __init__(self, source: Sampler, num_blocks: int, *, wide: bool) -> None:
        super().__init__(source, source.graph)
        self.name = source.name  # type: ignore[misc]
        self.num_blocks, self.wide = num_blocks, wide
        self.is_layered = isinstance(source, LayeredSampler)
        if not self.is_layered and not source.draws_subgraphs:
            raise ShoalError(
                f"sampler {source.name} leaves no neighbours out, so there is nothing to read from a history: leave out history, or use "
                "a subgraph or layered sampler"
            )
        if isinstance(source, LayeredSampler) and source.num_layers != num_blocks:
            raise ShoalError(
                f"sampler {source.name} draws {source.num_layers} layers and the model aggregates {num_blocks} times: expected as many layers as aggregations"
            )

    def sample(self, k: int) -> Batch:
        batch = self.source.sample(k)
        if not self.is_layered:
            block = self._complete(batch.nodes, batch.blocks[0], with_norms=False)
            nodes = batch.nodes
            if self.wide:
                assert block.outside is not None
                nodes = np.concatenate([nodes, block.outside])
            blocks = (block,) * self.num_blocks
            return Batch(self.graph, nodes, blocks, index=k, node_norm=batch.node_norm)
        first, *others = batch.blocks
        nodes = batch.nodes[: first.num_rows]
        later = [self._complete(batch.nodes[: one.num_columns], one, with_norms=True) for one in others]
        nodes, block = self._take_input(nodes)
        return Batch(self.graph, nodes, (block, *later), index=k)

    def _complete(self, nodes: np.ndarray, drawn: Block, *, with_norms: bool) -> Block:
        """`S h + (A - S) h̄` for the rows of a drawn block, whose columns are `nodes`."""
        norms = drawn.edge_norm if with_norms else None
        factors = np.ones(drawn.num_edges, np.float32) if norms is None else norms.numpy()
        with self.borrow_numbers() as numbers, self.borrow_factor() as factor:
            indptr, indices, outside, edge_norm = _complete_rows(
                self.graph.indptr,
                self.graph.indices,
                nodes,
                drawn.indptr.numpy(),
                drawn.indices.numpy(),
                factors,
                numbers,
                factor,
            )
            numbers[outside] = -1
        block = self._make_block(nodes[: drawn.num_rows], np.concatenate([nodes, outside]), indptr, indices)
        block.outside = outside
        block.edge_norm = None if norms is None else as_tensor(edge_norm)
        return block

    def _take_input(self, nodes: np.ndarray) -> tuple[np.ndarray, Block]:
        """(columns, block) of the first aggregation for the rows `nodes`: exact, or empty if the model starts from `A x`."""
        if not self.wide:
            return nodes, self._make_block(
                nodes, nodes, np.zeros(len(nodes) + 1, np.int64), np.empty(0, np.int32)
            )
        with self.borrow_numbers() as numbers:
            pattern = self.graph.indptr, self.graph.indices
            indptr, indices, columns, _ = draw_neighbours(*pattern, nodes, ALL, np.uint64(0), 0, numbers)
            numbers[columns] = -1
        return columns, self._make_block(nodes, columns, indptr, indices)

    def _make_block(
        self, rows: np.ndarray, columns: np.ndarray, indptr: np.ndarray, indices: np.ndarray
    ) -> Block:
        graph, weights = self.graph, self.graph.edge_weight
        degree = graph.indptr[columns + 1] - graph.indptr[columns]
        block = Block(as_tensor(indptr), as_tensor(indices), len(columns), checked=True)
        if weights is not None:
            degree = graph.weighted_degree[columns]
            block.edge_weight = as_tensor(
                take_weights(graph.indptr, graph.indices, weights, rows, columns, indptr, indices)
            )
        block.degree = as_tensor(degree)
        block.has_loop = None if self._has_loop is None else as_tensor(self._has_loop[columns])
        return block

    def draw_nodes(self, k: int) -> np.ndarray:
        return self.source.draw_nodes(k)

    def list_inputs(self, k: int) -> np.ndarray:
        return self.sample(k).nodes

    @property
    def batch_size(self) -> float:
        return self.source.batch_size

    @property
    def num_batches(self) -> int:
        return self.source.num_batches

    @property
    def settings(self) -> dict[str, Any]:
        return self.source.settings


@kernel
def _complete_rows(indptr, indices, nodes, sub_indptr, sub_indices, edge_norm, numbers, factor):
    """(indptr, indices, outside, edge_norm): every row's drawn entries, and historical ones that complete it to its row of A.

    A drawn entry with factor f in column v adds a historical entry for v with factor 1 - f; an entry that is not drawn
    adds one with factor 1. A row never reads its own history: a drawn pattern has every self loop of the graph.
    """
    num_rows, num_fresh = len(sub_indptr) - 1, len(nodes)
    room = 0
    for i in range(num_rows):
        room += indptr[nodes[i] + 1] - indptr[nodes[i]]
    out_indptr = np.zeros(num_rows + 1, np.int64)
    out_indices = np.empty(room + len(sub_indices), np.int32)
    norms = np.empty(room + len(sub_indices), np.float32)
    outside = np.empty(room, np.int64)
    size = num_outside = 0
    for i in range(num_rows):
        first = size
        for k in range(sub_indptr[i], sub_indptr[i + 1]):
            out_indices[size] = sub_indices[k]
            norms[size] = edge_norm[k]
            factor[nodes[sub_indices[k]]] = edge_norm[k]
            size += 1
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            v = indices[k]
            left = 1.0 - factor[v]
            if v == nodes[i] or left == 0.0:
                continue
            if numbers[v] < 0:
                numbers[v] = num_outside
                outside[num_outside] = v
                num_outside += 1
            out_indices[size] = num_fresh + numbers[v]
            norms[size] = left
            size += 1
        for k in range(sub_indptr[i], sub_indptr[i + 1]):
            factor[nodes[sub_indices[k]]] = 0.0
        sort_row(out_indices[first:size], norms[first:size])
        out_indptr[i + 1] = size
    return out_indptr, out_indices[:size].copy(), outside[:num_outside].copy(), norms[:size].copy()
