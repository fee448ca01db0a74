"""Layer-by-layer inference over the full graph: memory is two layers' activations, whatever the depth."""

from collections.abc import Callable

import torch
from torch import Tensor

from shoal.graph import Graph
from shoal.models.convs import Conv, Input, take_rows
from shoal.models.gnn import GNN, Layer
from shoal.sampling.base import Block
from shoal.sampling.full import FullSampler

ROWS_AT_ONCE = 1 << 15


@torch.no_grad()
def embed_nodes(
    model: GNN,
    graph: Graph,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The last layer's output for every node, (num_nodes, hidden).

    Every layer is computed for all nodes, a chunk of rows at a time, before the next begins: each node is
    computed once a layer, and only the input and output of the current layer are held.
    `progress(done, total)` is called after each chunk.
    """
    was_training = model.training
    model.eval()
    batch = FullSampler(graph).sample(0)
    h: Input = batch.x
    starts = range(0, graph.num_nodes, rows_at_once)
    total, done = len(starts) * len(model.layers), 0
    for layer in model.layers:
        assert isinstance(layer, Layer)
        z, projected = h, False
        if isinstance(layer.linear, Conv) and not isinstance(h, Tensor):
            z, projected = layer.linear.project(h), True
        out = torch.empty(graph.num_nodes, model.hidden)
        for start in starts:
            end = min(start + rows_at_once, graph.num_nodes)
            out[start:end] = _compute_rows(
                layer, batch.blocks[0], z, take_rows(h, start, end), start, projected
            )
            done += 1
            if progress is not None:
                progress(done, total)
        h = out
    model.train(was_training)
    assert isinstance(h, Tensor)
    return h


def _compute_rows(layer: Layer, block: Block, z: Input, h_self: Input, start: int, projected: bool) -> Tensor:
    if not isinstance(layer.linear, Conv):
        return layer.finish(layer.linear(h_self))
    assert layer.kind is not None
    assert isinstance(z, Tensor)
    count = h_self.shape[0]
    adj = block.adjacency(layer.kind).slice_rows(start, start + count)
    return layer.finish(layer.linear.combine(adj, z, h_self, projected=projected))


@torch.no_grad()
def classify_nodes(model: GNN, embedding: Tensor, *, rows_at_once: int = ROWS_AT_ONCE) -> Tensor:
    """Logits for every node from `embed_nodes`' result."""
    return torch.cat([model.classify(chunk) for chunk in embedding.split(rows_at_once)])
