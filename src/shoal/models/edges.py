"""PyG's edge_index, `(2, num_edges)`, for Shoal's convs and models; the block made of it is cached by tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from shoal.batch import Batch
from shoal.block import Block
from shoal.edge_weights import attach_weights
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.arrays import as_tensor

_known: Any = WeakTensorKeyDictionary()  # edge_index → its version, the number of nodes, the block
_weighted: Any = WeakTensorKeyDictionary()  # edge_weight → its version, the block without and with weights


def find_block(edge_index: Any, num_nodes: int, edge_weight: Any = None) -> Block:
    """The block of `edge_index` over `num_nodes` nodes, cached until the tensor is modified.

    `edge_weight` has a number above 0 for each edge. It gets no gradient.
    """
    if not isinstance(edge_index, Tensor) or edge_index.dim() != 2 or len(edge_index) != 2:
        found = tuple(edge_index.shape) if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise ShoalError(f"edge_index is {found}: expected a tensor of sources and targets, (2, num_edges)")
    if edge_index.is_floating_point():
        raise ShoalError(f"edge_index holds {edge_index.dtype}: expected node numbers")
    version, nodes, block = _known.get(edge_index, (None, None, None))
    if (version, nodes) != (edge_index._version, num_nodes):
        adj = Adjacency.from_edge_index(edge_index, num_nodes)
        block = Block(adj.indptr, adj.indices, num_nodes, symmetric=adj.symmetric, checked=True)
        _known[edge_index] = edge_index._version, num_nodes, block
    found_block: Block = block
    return found_block if edge_weight is None else _weigh(found_block, edge_index, edge_weight)


def check_width(x: Tensor, conv: Any) -> None:
    """Raise unless `x` has a row per node and a column per input feature of a conv."""
    if x.dim() != 2 or x.shape[1] != conv.in_features:
        raise ShoalError(
            f"x is {tuple(x.shape)} but {type(conv).__name__} has in_features={conv.in_features:,}: expected (num_nodes, {conv.in_features:,})"
        )


def _weigh(block: Block, edge_index: Tensor, edge_weight: Any) -> Block:
    if not isinstance(edge_weight, Tensor):
        raise ShoalError(
            f"edge_weight is a {type(edge_weight).__name__}: expected a tensor, one number per edge"
        )
    if edge_weight.requires_grad:
        raise ShoalError(
            "edge_weight requires a gradient, which Shoal's layers do not compute: detach it, or learn it in a PyG layer"
        )
    version, plain, found = _weighted.get(edge_weight, (None, None, None))
    if (version, plain) != (edge_weight._version, block):
        graph = _make_graph(block)
        graph = attach_weights(graph, edge_index.cpu().numpy(), edge_weight, directed=None)
        assert graph.edge_weight is not None
        weights, symmetric = as_tensor(graph.edge_weight), not graph.directed
        found = Block(
            block.indptr,
            block.indices,
            block.num_columns,
            symmetric=symmetric,
            edge_weight=weights,
            checked=True,
        )
        _weighted[edge_weight] = edge_weight._version, block, found
    weighted: Block = found
    return weighted


def _make_graph(block: Block) -> Graph:
    weights = None if block.edge_weight is None else block.edge_weight.numpy()
    indptr, indices = block.indptr.numpy(), block.indices.numpy()
    return Graph(indptr, indices, directed=not block.symmetric, edge_weight=weights, checked=True)


def make_batch(
    x: Any, edge_index: Tensor | None, edge_weight: Tensor | None = None, *, training: bool
) -> Batch:
    """A Batch of `(x, edge_index)`, with or without edge weights.

    Dropout depends on the batch's step. In training the step is drawn from torch's random state.
    """
    if not isinstance(x, Tensor) or edge_index is None:
        raise ShoalError(f"a {type(x).__name__} was given: expected a Batch, or (x, edge_index)")
    block = find_block(edge_index, len(x), edge_weight)
    nodes = np.arange(len(x))
    batch = Batch(_make_graph(block), nodes, (block,), x=x, n_id=torch.from_numpy(nodes))
    if training:
        batch.step = int(torch.randint(1 << 31, ()))
    return batch
