"""Edges as PyG has them, `(2, num_edges)`, for Shoal's convs and models: the block they make is kept with the tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from shoal.batch import Batch
from shoal.block import Block
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency

_known: Any = WeakTensorKeyDictionary()  # edge_index → its version, the number of nodes, the block


def find_block(edge_index: Any, num_nodes: int) -> Block:
    """The pattern of `edge_index` over `num_nodes` nodes, made once for a tensor as long as nobody writes to it."""
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
    return found_block


def make_batch(x: Any, edge_index: Tensor | None, *, training: bool) -> Batch:
    """A Batch of `(x, edge_index)`. In training its step, on which dropout depends, is drawn from torch's random state."""
    if not isinstance(x, Tensor) or edge_index is None:
        raise ShoalError(f"a {type(x).__name__} was given: expected a Batch, or (x, edge_index)")
    block = find_block(edge_index, len(x))
    graph = Graph(block.indptr.numpy(), block.indices.numpy(), directed=not block.symmetric, checked=True)
    nodes = np.arange(len(x))
    batch = Batch(graph, nodes, (block,), x=x, n_id=torch.from_numpy(nodes))
    if training:
        batch.step = int(torch.randint(1 << 31, ()))
    return batch
