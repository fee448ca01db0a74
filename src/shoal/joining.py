"""join_layers: the blocks of a layered batch as one graph, as PyG's NeighborLoader returns it."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from shoal.batch import Batch, as_tensor
from shoal.block import Block
from shoal.graph import Graph
from shoal.kernels.gather import gather_csr_rows


class JoinedBatch(Batch):
    """One pattern over the nodes of a layered batch, the output nodes first, then those of each hop.

    y and train_mask have rows for the first `num_outputs` nodes; a model's output has rows for all nodes.
    """

    def __init__(self, graph: Graph, nodes: np.ndarray, block: Block, num_outputs: int, index: int) -> None:
        super().__init__(graph, nodes, (block,), index=index)
        self._num_outputs = num_outputs

    @property
    def num_outputs(self) -> int:
        return self._num_outputs


def join_layers(batch: Batch) -> Batch:
    """Join the layers of a batch to one graph, for models that take `(x, edge_index)`. A subgraph is returned as it is.

    A node aggregates from the neighbours that were drawn in the hop that first reached it. This is the distribution of
    PyG's NeighborLoader, which draws neighbours once per node. Nodes that are not reached are dropped. `edge_norm` of the
    result includes the edge weights.

    Args:
        batch: a batch of any sampler.
    """
    if batch.is_square:
        return batch
    new = np.arange(batch.num_outputs)
    is_reached = np.zeros(batch.num_nodes, bool)
    is_reached[new] = True
    hops, lengths, columns, norms = [new], [], [], []
    for block in reversed(batch.blocks):
        weights = torch.ones(block.num_edges) if block.edge_norm is None else block.edge_norm
        weights = weights if block.edge_weight is None else weights * block.edge_weight
        indptr, indices, norm = gather_csr_rows(
            block.indptr.numpy(), block.indices.numpy(), weights.numpy(), new
        )
        lengths.append(np.diff(indptr))
        columns.append(indices)
        norms.append(norm)
        new = np.unique(indices[~is_reached[indices]])
        is_reached[new] = True
        hops.append(new)
    kept = np.concatenate(hops)
    number = np.empty(batch.num_nodes, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    indptr = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(np.concatenate([*lengths, np.zeros(len(new), np.int64)]), out=indptr[1:])
    entries = np.concatenate(norms), number[np.concatenate(columns)], indptr
    pattern = sp.csr_array(entries, shape=(len(kept), len(kept)))
    pattern.sort_indices()
    block = Block(
        as_tensor(indptr),
        as_tensor(pattern.indices),
        len(kept),
        edge_norm=as_tensor(pattern.data),
        checked=True,
    )
    return JoinedBatch(batch.graph, batch.nodes[kept], block, batch.num_outputs, batch.index)
