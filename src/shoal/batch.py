"""Batch: what one optimizer step works on. Block: the pattern one of its layers aggregates over."""

from __future__ import annotations

import threading
import warnings
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.csr import add_diagonal, list_edges
from shoal.kernels.gather import gather_csr_rows, gather_rows
from shoal.kernels.spmm import multiply

KINDS = ("sum", "mean", "gcn", "attention")


def as_tensor(array: np.ndarray) -> Tensor:
    """`array` as a tensor that shares its memory; memory-mapped graphs are read-only and stay so."""
    return torch.from_numpy(array)


with warnings.catch_warnings():  # torch warns once in a process that a read-only array must not be written
    warnings.simplefilter("ignore")
    _read_only = np.zeros(1)
    _read_only.flags.writeable = False
    as_tensor(_read_only)


SAMPLE_LAYERS = "sample as many layers as the model aggregates (for three: sampler.fanouts=10-10-10, or sampler.num_layers=3)"


class Block:
    """The pattern one layer aggregates over. Row i reads from the columns listed; the first `num_rows`
    columns are the rows themselves, so a square block is a subgraph and a wide one a neighbourhood or a
    part with its halo.

    Args:
        edge_norm: factor on every entry's weight that makes the aggregation unbiased, or None.
        degree: every column's degree in the graph the batch was drawn from. Normalised aggregation uses it
            when given, and the degree within the block otherwise.
        has_loop: which columns have a self loop there, where `degree` is given and any has: GCN gives those
            no second one.
    """

    def __init__(
        self,
        indptr: Tensor,
        indices: Tensor,
        num_columns: int,
        *,
        symmetric: bool = False,
        edge_norm: Tensor | None = None,
        degree: Tensor | None = None,
        has_loop: Tensor | None = None,
    ) -> None:
        self.indptr = indptr
        self.indices = indices
        self.num_columns = num_columns
        self.symmetric = symmetric
        self.edge_norm = edge_norm
        self.degree = degree
        self.has_loop = has_loop
        self._adjacencies: dict[str, Adjacency] = {}

    @property
    def num_rows(self) -> int:
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        return len(self.indices)

    def adjacency(self, kind: str) -> Adjacency:
        """The operator of a kind of aggregation, made once.

        `sum` A, `mean` D⁻¹A, `gcn` D̃^-½(A + I)D̃^-½, `attention` the pattern of A + I for weights to come.
        """
        if kind not in self._adjacencies:
            if kind not in KINDS:
                raise unknown_name("aggregation", kind, KINDS)
            make = {"gcn": self._normalize_symmetric, "attention": self._add_loops}.get(kind)
            self._adjacencies[kind] = make() if make is not None else self._scale_rows(kind)
        return self._adjacencies[kind]

    def _scale_rows(self, kind: str) -> Adjacency:
        scale = None
        if kind == "mean":
            degree = self.indptr.diff() if self.degree is None else self.degree[: self.num_rows]
            scale = 1.0 / degree.clamp(min=1).float()
        return Adjacency(
            self.indptr,
            self.indices,
            self.num_columns,
            values=self.edge_norm,
            row_scale=scale,
            symmetric=self.symmetric,
        )

    def _add_loops(self) -> Adjacency:
        indptr, indices, _ = add_diagonal(self.indptr.numpy(), self.indices.numpy())
        return Adjacency(
            torch.from_numpy(indptr), torch.from_numpy(indices), self.num_columns, symmetric=self.symmetric
        )

    def _normalize_symmetric(self) -> Adjacency:
        indptr, indices, origin = (
            torch.from_numpy(part) for part in add_diagonal(self.indptr.numpy(), self.indices.numpy())
        )
        values = None
        if self.edge_norm is not None:
            values = torch.ones(len(origin), dtype=self.edge_norm.dtype)
            values[origin >= 0] = self.edge_norm[origin[origin >= 0]]
        if self.degree is not None:
            degree = self.degree + (1 if self.has_loop is None else ~self.has_loop)
        elif self.num_rows == self.num_columns:
            degree = indptr.diff()
        else:
            raise ShoalError("a block with more columns than rows needs `degree` for GCN normalisation")
        scale = degree.float().rsqrt()
        return Adjacency(
            indptr,
            indices,
            self.num_columns,
            values=values,
            row_scale=scale[: self.num_rows],
            column_scale=scale,
            symmetric=self.symmetric,
        )


class Batch:
    """Nodes, the blocks they aggregate over, and (gathered on first use) their features and labels.

    Attributes:
        n_id: the nodes' ids in the graph the user loaded, (num_nodes,) int64.
        blocks: one Block for every layer, or one for all of them.
        x, y: features and labels of the batch's nodes; sparse features are an `Adjacency` (rows × columns).
        train_mask: which of the nodes the loss counts.
        node_norm: factor on every node's loss, or None.
        index: the batch's number.
        fixed: whether the batch serves many steps, so that what depends on x alone is worth keeping.
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
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.blocks = blocks
        self.index = index
        self.node_norm = node_norm
        self.fixed = fixed
        self._aggregated: dict[str, Tensor] = {}

    @property
    def num_nodes(self) -> int:
        return len(self.nodes)

    @property
    def num_edges(self) -> int:
        return sum(block.num_edges for block in self.blocks)

    @property
    def num_outputs(self) -> int:
        """Rows the model answers for: the first ones of `nodes`."""
        return self.blocks[-1].num_rows

    @property
    def nodes_per_layer(self) -> list[int]:
        """Nodes whose features each layer reads, input first, and last the outputs: shows how they multiply."""
        return [*(block.num_columns for block in self.blocks), self.num_outputs]

    @property
    def edges_per_layer(self) -> list[int]:
        """Entries that each layer aggregates over, input first."""
        return [block.num_edges for block in self.blocks]

    def block(self, layer: int) -> Block:
        """The pattern of aggregation number `layer`. A single square block serves every layer."""
        if len(self.blocks) == 1 and self.blocks[0].num_rows == self.blocks[0].num_columns:
            return self.blocks[0]
        if layer >= len(self.blocks):
            raise ShoalError(
                f"the model aggregates more than {len(self.blocks)} times but the batch has {len(self.blocks)} blocks: {SAMPLE_LAYERS}"
            )
        return self.blocks[layer]

    @cached_property
    def n_id(self) -> Tensor:
        return as_tensor(np.ascontiguousarray(self.graph.global_ids(self.nodes), np.int64))

    @cached_property
    def x(self) -> Tensor | Adjacency:
        x, rows = self.graph.find_features(self.nodes)
        if isinstance(x, np.ndarray):
            return as_tensor(x) if self.fixed and len(rows) == len(x) else _gather(x, rows)
        indptr, indices, data = gather_csr_rows(x.indptr, x.indices, x.data, rows)
        return Adjacency(as_tensor(indptr), as_tensor(indices), int(x.shape[1]), values=as_tensor(data))

    def aggregate_input(self, kind: str) -> Tensor | None:
        """`A x` of the first layer if the batch is fixed and x dense: then it is computed only once."""
        if not self.fixed or not isinstance(self.x, Tensor):
            return None
        if kind not in self._aggregated:
            self._aggregated[kind] = multiply(self.block(0).adjacency(kind), self.x)
        return self._aggregated[kind]

    @cached_property
    def y(self) -> Tensor:
        if self.graph.y is None:
            raise ShoalError(f"graph {self.graph.name!r} has no labels: training needs y")
        return as_tensor(self.graph.y[self.nodes[: self.num_outputs]])

    @cached_property
    def train_mask(self) -> Tensor:
        if self.graph.train_mask is None:
            return torch.ones(self.num_outputs, dtype=torch.bool)
        return as_tensor(self.graph.train_mask[self.nodes[: self.num_outputs]])

    @cached_property
    def edge_index(self) -> Tensor:
        """(2, num_edges) sources and targets in the batch's numbering, for PyG models."""
        block = self.blocks[0]
        return as_tensor(list_edges(block.indptr.numpy(), block.indices.numpy()))

    @property
    def edge_norm(self) -> Tensor | None:
        return self.blocks[0].edge_norm

    def __repr__(self) -> str:
        return f"Batch({self.index}, {self.num_nodes:,} nodes, {self.num_edges:,} entries)"


def _gather(x: np.ndarray, rows: np.ndarray) -> Tensor:
    """`x[rows]`: by all threads in the training thread, by one in a thread that samples beside it."""
    if threading.current_thread() is threading.main_thread():
        return gather_rows(x, rows)
    out = torch.empty(len(rows), x.shape[1])
    np.take(x, rows, axis=0, out=out.numpy())
    return out
