"""Layer-by-layer inference over the full graph: memory is two layers' activations, whatever the depth."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from shoal.batch import Batch, Block
from shoal.models.convs import Conv, Input, take_rows
from shoal.models.gnn import GNN
from shoal.models.layers import Layer

ROWS_AT_ONCE = 1 << 15


def embed_nodes(
    model: GNN,
    whole: Batch,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
    out: Tensor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """What the classifier sees of every node of the graph that `whole` is, (num_nodes, embedding_width).

    Every layer is computed for all nodes, a chunk of rows at a time, before the next begins: each node is
    computed once a layer, and only the input and output of the current layer are held. The result goes to
    `out` where given, which may be mapped to a file. `progress(done, total)` is called after each chunk.
    """
    with evaluating(model):
        return _embed(model, whole, rows_at_once, out, progress)


@contextmanager
def evaluating(model: GNN) -> Iterator[None]:
    """Within it nothing is dropped and batch norm uses what training measured; afterwards the model is as before."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def _embed(
    model: GNN,
    whole: Batch,
    rows_at_once: int,
    out: Tensor | None,
    progress: Callable[[int, int], None] | None,
) -> Tensor:
    dtype = next(model.parameters()).dtype
    if out is None:
        out = torch.empty(whole.num_nodes, model.embedding_width, dtype=dtype)
    h: Input = whole.x
    starts = range(0, whole.num_nodes, rows_at_once)
    total, done = len(starts) * len(model.layers), 0
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        is_last = number == len(model.layers) - 1
        keep = is_last and model.jumping == "none"
        result = out if keep else torch.empty(whole.num_nodes, model.widths[number], dtype=dtype)
        for start, end, rows in _infer(layer, whole.blocks[0], h, rows_at_once):
            rows = model.connect(layer, layer.finish(rows), take_rows(h, start, end))
            result[start:end] = rows
            if model.jumping == "concat":
                out[start:end, sum(model.widths[:number]) : sum(model.widths[: number + 1])] = rows
            elif model.jumping == "max":
                out[start:end] = rows if number == 0 else torch.maximum(out[start:end], rows)
            done += 1
            if progress is not None:
                progress(done, total)
        h = result
    return out


def _infer(layer: Layer, block: Block, h: Input, rows_at_once: int) -> Iterator[tuple[int, int, Tensor]]:
    """The layer's linear part, a chunk of rows at a time."""
    if layer.kind is not None:
        assert isinstance(layer.linear, Conv)
        yield from layer.linear.infer(block.adjacency(layer.kind), h, rows_at_once)
        return
    for start in range(0, block.num_rows, rows_at_once):
        end = min(start + rows_at_once, block.num_rows)
        yield start, end, layer.linear(take_rows(h, start, end))


def classify_nodes(model: GNN, embedding: Tensor, *, rows_at_once: int = ROWS_AT_ONCE) -> Tensor:
    """Logits for every node from `embed_nodes`' result."""
    with evaluating(model):
        return torch.cat([model.classify(chunk) for chunk in embedding.split(rows_at_once)])
