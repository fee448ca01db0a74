"""Evaluation over the full graph: layer by layer for models that offer it, by a plain forward pass for others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.errors import ShoalError

ROWS_AT_ONCE = 1 << 15


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients inside the block; afterwards the model is in the mode it was in."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def has_embeddings(model: nn.Module) -> bool:
    """Whether a model is a stack with a classifier, as GNN is: `embed`, `infer` and `classify` are its methods."""
    return all(callable(getattr(model, name, None)) for name in ("embed", "infer", "classify"))


def embed_nodes(
    model: nn.Module,
    whole: Batch,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
    out: Tensor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The classifier's input for every node of the graph that `whole` is, (num_nodes, embedding_width).

    Every layer is computed for all nodes, a chunk of rows at a time, before the next begins: each node is computed once
    a layer, and only the input and output of the current layer are held. The result goes to `out` where given, which
    may be a memory-mapped file. `progress(done, total)` is called after each chunk.
    """
    embed: Callable[[Batch], Tensor] | None = getattr(model, "embed", None)
    if embed is not None and not has_embeddings(model):
        with evaluating(model):
            found = embed(whole)
        return found if out is None else out.copy_(found)
    stack = _require_embeddings(model)
    with evaluating(model):
        embedding: Tensor = stack.infer(whole, rows_at_once=rows_at_once, out=out, progress=progress)
        return embedding


def classify_nodes(model: nn.Module, embedding: Tensor, *, rows_at_once: int = ROWS_AT_ONCE) -> Tensor:
    """Logits from rows of `embed_nodes`' result."""
    stack = _require_embeddings(model)
    with evaluating(model):
        return torch.cat([stack.classify(chunk) for chunk in embedding.split(rows_at_once)])


def predict_logits(
    model: nn.Module,
    whole: Batch,
    *,
    rows: Tensor | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Logits in eval mode of the nodes of `whole`, or of `rows` of them, a mask or numbers.

    Layer by layer for a model with embeddings; any other module's `forward` is called with the whole batch.
    """
    if has_embeddings(model):
        embedding = embed_nodes(model, whole, rows_at_once=rows_at_once, progress=progress)
        return classify_nodes(
            model, embedding if rows is None else embedding[rows], rows_at_once=rows_at_once
        )
    with evaluating(model):
        logits: Tensor = model(whole)
    return logits if rows is None else logits[rows]


def _require_embeddings(model: nn.Module) -> Any:
    if not has_embeddings(model):
        raise ShoalError(
            f"{type(model).__name__} has no embeddings: expected a model with methods embed, infer and classify, as GNN has"
        )
    return model
