"""Batch: what one optimizer step works on."""

from __future__ import annotations

import tempfile
import threading
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from shoal.block import Block
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import take_space
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor as as_tensor
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.gather import gather_csr_rows, gather_rows
from shoal.kernels.patterns import list_edges
from shoal.kernels.spmm import multiply
from shoal.memory import memory_left
from shoal.notebook import show_facts

if TYPE_CHECKING:
    from shoal.distributed.halo import HaloPlan
    from shoal.label_columns import JoinedRows

_DECODED_AT_ONCE = 1 << 16  # rows
SAMPLE_LAYERS = "sample as many layers as the model aggregates (sampler.fanouts has a number for each, such as 10-10-10 for three; sampler.num_layers counts them), or change model.num_layers"


class Batch:
    """What one optimizer step works on: nodes, the blocks they aggregate over, their features and labels.

    The same type for a sampled subgraph, a layered neighbourhood, a cluster, the whole graph, a rank's part with its
    halo, and a rank's rows of a mini-batch shared by all ranks. Features and labels are gathered on first use.

    Attributes:
        graph: the graph that `nodes` are numbered in; labels and training mask come from it.
        nodes: the batch's nodes in `graph`, the output nodes first.
        blocks: one Block for each layer, or one for all of them.
        n_id: ids of the rows of x in the graph the user loaded, int64.
        x, y: features and labels; sparse features are an `Adjacency` (rows × columns). On a rank's part, features of halo
            rows follow those of local rows if the first layer needs them.
        train_mask: which output nodes count in the loss.
        node_norm: weight of every output node's loss; the loss is the weighted sum. None: the mean over training nodes.
        index: the batch's number in the sampler's sequence.
        step: the optimizer step it is used in; dropout depends on it.
        fixed: whether the same batch is used in many steps, so that `A x` is worth caching.
        exchange: the HaloPlan of the halo exchange. None: all rows are local.
    """

    def __init__(
        self,
        graph: Graph,
        nodes: np.ndarray,
        blocks: tuple[Block, ...],
        *,
        index: int = 0,
        node_norm: Tensor | None = None,
        fixed: bool = False,
        x: Tensor | Adjacency | None = None,
        n_id: Tensor | None = None,
        exchange: HaloPlan | None = None,
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.blocks = blocks
        self.index = self.step = index
        self.node_norm = node_norm
        self.fixed = fixed
        self.exchange = exchange
        self._aggregated: dict[str, Tensor] = {}
        if x is not None:
            self.x = x
        if n_id is not None:
            self.n_id = n_id

    @property
    def num_nodes(self) -> int:
        """Nodes whose features the batch reads, the output nodes included."""
        return len(self.nodes)

    @property
    def num_edges(self) -> int:
        """Entries of all blocks."""
        return sum(block.num_edges for block in self.blocks)

    @property
    def num_outputs(self) -> int:
        """Rows of the model's output: the first ones of `nodes`."""
        return self.blocks[-1].num_rows

    @property
    def is_square(self) -> bool:
        """Whether all layers share one pattern over all nodes, as in a sampled subgraph."""
        return len(self.blocks) == 1 and self.blocks[0].num_rows == self.blocks[0].num_columns

    @property
    def nodes_per_layer(self) -> list[int]:
        """Number of nodes that each layer reads, input layer first, then the output nodes: shows neighbourhood explosion."""
        return [*(block.num_columns for block in self.blocks), self.num_outputs]

    @property
    def edges_per_layer(self) -> list[int]:
        """Entries that each layer aggregates over, input first."""
        return [block.num_edges for block in self.blocks]

    def block(self, layer: int) -> Block:
        """The pattern of aggregation number `layer`. A single square block serves every layer.

        Args:
            layer: number of the aggregation, from 0.
        """
        if self.is_square:
            return self.blocks[0].at_layer(layer)
        if layer >= len(self.blocks):
            raise ShoalError(
                f"the model aggregates more than {len(self.blocks)} times but the batch has {len(self.blocks)} blocks: {SAMPLE_LAYERS}"
            )
        return self.blocks[layer]

    @cached_property
    def n_id(self) -> Tensor:
        """Ids of the rows of x in the graph the user loaded, int64 (num_nodes,)."""
        return as_tensor(np.ascontiguousarray(self.graph.global_ids(self.nodes), np.int64))

    @cached_property
    def x(self) -> Tensor | Adjacency:
        """Features (num_nodes, num_features), gathered on first use; sparse ones are an `Adjacency`."""
        x, rows = self.graph.find_features(self.nodes)
        if not isinstance(x, sp.csr_array):
            if not self.fixed or len(rows) != len(x):
                return _gather(x, rows)
            return as_tensor(x) if isinstance(x, np.ndarray) else _decode_all(x)
        indptr, indices, data = gather_csr_rows(x.indptr, x.indices, x.data, rows)
        return Adjacency(
            as_tensor(indptr), as_tensor(indices), int(x.shape[1]), values=as_tensor(data), checked=True
        )

    @property
    def stored_x(self) -> Tensor | Adjacency | EncodedRows | JoinedRows:
        """x. For a whole graph with encoded features, the EncodedRows, so that rows are decoded as they are read."""
        if self.fixed and "x" not in self.__dict__:
            x, rows = self.graph.find_features(self.nodes)
            if isinstance(x, EncodedRows) and len(rows) == len(x):
                return x
        return self.x

    def aggregate_input(self, kind: str) -> Tensor | None:
        """`A x` of the first layer, computed (and exchanged) once; None unless the batch is fixed and x dense.

        Args:
            kind: the aggregation, such as `mean` or `gcn` (`shoal.aggregation`).
        """
        block = self.blocks[0].for_input()
        if not self.fixed or block is None or not isinstance(self.x, Tensor):
            return None
        if kind not in self._aggregated:
            self._aggregated[kind] = multiply(block.adjacency(kind), self.x)
            if self.exchange is not None:
                self.exchange.wire.release()
        return self._aggregated[kind]

    def with_blocks(self, blocks: tuple[Block, ...], exchange: HaloPlan) -> Batch:
        """A copy of the batch with other patterns, such as those of a sampled halo.

        Args:
            blocks: the patterns, one for each layer or one for all.
            exchange: the halo plan of these patterns.
        """
        batch = copy(self)
        batch.blocks, batch.exchange = blocks, exchange
        return batch

    def forget_input(self) -> None:
        """Drop the cached `A x`, because the pattern of the first layer has changed."""
        self._aggregated = {}

    @cached_property
    def y(self) -> Tensor:
        """Labels of the output nodes."""
        if self.graph.y is None:
            raise ShoalError(f"graph {self.graph.name!r} has no labels: training needs y")
        return as_tensor(self.graph.y[self.nodes[: self.num_outputs]])

    @cached_property
    def train_mask(self) -> Tensor:
        """Which output nodes count in the loss, bool (num_outputs,)."""
        if self.graph.train_mask is None:
            return torch.ones(self.num_outputs, dtype=torch.bool)
        return as_tensor(self.graph.train_mask[self.nodes[: self.num_outputs]])

    @cached_property
    def edge_index(self) -> Tensor:
        """(2, num_edges) sources and targets in the batch's numbering, for PyG models."""
        if self.exchange is not None:
            raise ShoalError(
                "a rank's part has no edge_index, because its halo would be missing: aggregate with batch.block(i).adjacency(kind)"
            )
        block = self.blocks[0]
        if not self.is_square:
            raise ShoalError(
                "a batch with a block for each layer has no edge_index of its own: shoal.join_layers(batch) has one"
            )
        return list_edges(block.indptr, block.indices)

    @cached_property
    def dense_x(self) -> Tensor:
        """x, made dense where it is sparse, for models that take `(x, edge_index)`."""
        return self.x.to_dense() if isinstance(self.x, Adjacency) else self.x

    @property
    def edge_weight(self) -> Tensor | None:
        """Weights of the first block's entries, None for an unweighted graph."""
        return self.blocks[0].edge_weight

    @property
    def edge_norm(self) -> Tensor | None:
        """The sampler's normalisation factors of the first block's entries; None without normalisation."""
        return self.blocks[0].edge_norm

    def to(self, device: str | torch.device) -> Batch:
        """The batch itself, so that loops which move PyG's batches to a device run on the CPU.

        Args:
            device: the CPU; other devices are refused.
        """
        if torch.device(device).type != "cpu":
            raise ShoalError(f"batches stay on the CPU: move x and edge_index to {device} yourself")
        return self

    def __repr__(self) -> str:
        return f"Batch({self.index}, {self.num_nodes:,} nodes, {self.num_edges:,} entries)"

    def _repr_html_(self) -> str:
        facts = {
            "graph": self.graph.name,
            "nodes": self.num_nodes,
            "output nodes": self.num_outputs,
            "nodes per layer": self.nodes_per_layer if len(self.blocks) > 1 else None,
            "entries per layer" if len(self.blocks) > 1 else "entries": self.edges_per_layer,
            "features": self.graph.num_features or None,
            "normalised": "yes" if self.node_norm is not None else "no",
        }
        return show_facts(f"Batch {self.index}", facts)


def _gather(x: np.ndarray | EncodedRows, rows: np.ndarray) -> Tensor:
    """`x[rows]`: with all threads if called by the main thread, with one if called by a sampling thread."""
    is_main = threading.current_thread() is threading.main_thread()
    return gather_rows(x, rows, num_threads=None if is_main else 1)


def _decode_all(x: EncodedRows) -> Tensor:
    """All rows, decoded: in memory if they take at most a quarter of the memory left, else in an unnamed temporary file."""
    size = 4 * x.shape[0] * x.shape[1]
    if size <= memory_left() // 4:
        return _gather(x, np.arange(len(x)))
    with explain_full_disk(tempfile.gettempdir()), tempfile.TemporaryFile(prefix="shoal-") as file:
        file.truncate(size)
        take_space(file.fileno(), size)
        out = as_tensor(np.memmap(file, np.float32, "r+", shape=x.shape))
    for start in range(0, len(x), _DECODED_AT_ONCE):
        rows = np.arange(start, min(start + _DECODED_AT_ONCE, len(x)))
        gather_rows(x, rows, out[start : start + len(rows)])
    return out
