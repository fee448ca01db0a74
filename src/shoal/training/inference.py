"""Inference over the full graph: layer by layer for models that support it, one forward pass for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.row_sets import Rows
from shoal.memory import available_memory, given_budget, memory_left, return_freed_memory
from shoal.models.calling import call_model, check_one_pass
from shoal.models.layerwise import ROWS_AT_ONCE, count_chunk_bytes
from shoal.scratch import KeptScratch, Scratch

_SPARE = 1 << 25  # bytes beside chunks, such as kernels that are not loaded yet
_SHARE = 0.8  # share of the memory left that matrices may take; the rest is for everything else


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode without gradients inside the `with` block; the previous mode is restored afterwards."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def has_embeddings(model: nn.Module) -> bool:
    """Whether a model supports layer-wise inference: it has the methods `embed`, `infer` and `classify`, as GNN does."""
    return all(callable(getattr(model, name, None)) for name in ("embed", "infer", "classify"))


def count_held(model: nn.Module, whole: Batch) -> int:
    """Bytes that inference holds beside matrices of all nodes; 0 for models without layer-wise inference."""
    if not has_embeddings(model):
        return 0
    stack = _require_embeddings(model)
    layers = [(layer.linear.in_features, layer.linear.out_features) for layer in stack.list_layers()]
    last = (stack.embedding_width, stack.num_classes)
    normal = 0 if getattr(model, "input_norm", "none") == "none" else _count_normal(stack.in_features, whole)
    reverse = (
        count_reverse(whole.num_nodes, whole.num_edges) if getattr(stack, "directions", "in") == "both" else 0
    )
    return normal + reverse + count_chunk_bytes([*layers, last], whole.num_nodes, whole.num_edges)


def count_reverse(num_nodes: int, num_entries: int) -> int:
    """Bytes of the reversed edges of a graph: indices, with those of self loops, and where each entry comes from."""
    entries = num_nodes + num_entries
    return (8 + (4 if entries < 1 << 31 else 8)) * entries + 8 * num_nodes


def _count_normal(width: int, whole: Batch) -> int:
    """Bytes of a whole graph's normalised features, and of its decoded ones if they are encoded; 0 if they are sparse."""
    x = whole.graph.find_features(np.empty(0, np.int64))[0]
    copies = 0 if isinstance(x, sp.csr_array) else 2 if isinstance(x, EncodedRows) else 1
    return 4 * copies * whole.num_nodes * width


def free_for_matrices(promised: int = 0) -> int:
    """Bytes of matrices that inference may hold in memory now, within the budget; `promised` bytes are reserved."""
    return max(int(_SHARE * (memory_left() - _SPARE - promised)), 0)


def near_bytes() -> int:
    """Largest matrix, in bytes, that can be read in any order: the system can hold it as memory or in its page cache."""
    return max(int(_SHARE * available_memory()), 1 << 26)


def open_scratch(
    folder: Path | None = None, stamp: dict[str, Any] | None = None, *, promised: int = 0
) -> Scratch:
    """A Scratch within the memory budget; beyond it in files of `folder`, or of the system's temporary folder.

    With a `stamp`, files survive a killed process (`KeptScratch`). `promised` bytes of the budget are reserved, for chunks
    (`count_held`) and for matrices that are not written yet.
    """
    if given_budget() is not None:
        return_freed_memory()
    limit, near = free_for_matrices(promised), near_bytes()
    if folder is not None and stamp is not None:
        return KeptScratch(limit, folder, stamp, near=near)
    return Scratch(limit, folder if folder is not None and folder.is_dir() else None, near=near)


def embed_nodes(
    model: nn.Module,
    whole: Batch,
    *,
    rows_at_once: int = ROWS_AT_ONCE,
    out: Tensor | None = None,
    scratch: Scratch | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """The classifier's input for every node of the batch `whole`, (num_nodes, embedding_width).

    Every layer is computed for all nodes, a chunk of rows at a time, before the next begins. So each node is computed once
    per layer, and only the input and output of the current layer are held, in files if memory is short. The result is
    written to `out` if given, which may be a memory-mapped file. `progress(done, total)` is called after each chunk.
    `scratch` is closed at the end.
    """
    embed: Callable[[Batch], Tensor] | None = getattr(model, "embed", None)
    if embed is not None and not has_embeddings(model):
        with evaluating(model):
            found = embed(whole)
        return found if out is None else out.copy_(found)
    stack = _require_embeddings(model)
    with evaluating(model), scratch or open_scratch(promised=count_held(model, whole)) as room:
        if out is None:
            dtype = next(model.parameters()).dtype
            out = torch.empty(whole.num_nodes, stack.embedding_width, dtype=dtype)
        result = out

        def take(rows: Rows, embedding: Tensor) -> None:
            result[rows] = embedding

        stack.infer(whole, take, rows_at_once=rows_at_once, scratch=room, progress=progress)
    return out


def classify_nodes(model: nn.Module, embedding: Tensor, *, rows_at_once: int = ROWS_AT_ONCE) -> Tensor:
    """Logits from embeddings that `embed_nodes` returned."""
    stack = _require_embeddings(model)
    with evaluating(model):
        return torch.cat([stack.classify(chunk) for chunk in embedding.split(rows_at_once)])


def predict_logits(
    model: nn.Module,
    whole: Batch,
    *,
    rows: Tensor | None = None,
    rows_at_once: int = ROWS_AT_ONCE,
    scratch: Scratch | None = None,
    progress: Callable[[int, int], None] | None = None,
    take: Callable[[Tensor], Tensor] = lambda logits: logits,
    out: Tensor | None = None,
) -> Tensor:
    """Logits in eval mode of the nodes of `whole`, or of `rows`, a mask or node numbers.

    A model with layer-wise inference computes only what those rows depend on. Any other module is called with the whole
    batch. `take` maps chunks of logits to the result, such as classes, which is written to `out` if given.
    """
    if not has_embeddings(model):
        check_one_pass(model, whole)
        with evaluating(model):
            logits = take(call_model(model, whole))
        found = logits if rows is None else logits[rows]
        return found if out is None else out.copy_(found)
    stack = _require_embeddings(model)
    mask = rows
    if rows is not None and rows.dtype != torch.bool:
        mask = torch.zeros(whole.num_nodes, dtype=torch.bool)
        mask[rows] = True
    count = whole.num_nodes if mask is None else int(mask.sum())
    done = 0

    def keep(some: Rows, embedding: Tensor) -> None:
        nonlocal out, done
        if mask is not None:  # a layer may compute more rows than requested
            wanted = mask[some]
            embedding = embedding if bool(wanted.all()) else embedding[wanted]
        values = take(stack.classify(embedding))
        if out is None:
            out = torch.empty(count, *values.shape[1:], dtype=values.dtype)
        out[done : done + len(values)] = values
        done += len(values)

    with evaluating(model), scratch or open_scratch(promised=count_held(model, whole)) as room:
        if count:
            stack.infer(whole, keep, rows=mask, rows_at_once=rows_at_once, scratch=room, progress=progress)
        else:
            keep(slice(0, 0), next(model.parameters()).new_empty(0, stack.embedding_width))
    assert out is not None
    if mask is rows or rows is None:
        return out
    places = torch.empty(whole.num_nodes, dtype=torch.int64)
    places[mask] = torch.arange(count)
    return out[places[rows]]


def _require_embeddings(model: nn.Module) -> Any:
    if not has_embeddings(model):
        raise ShoalError(
            f"{type(model).__name__} has no embeddings: expected a model with methods embed, infer and classify, as GNN has"
        )
    return model
