"""The loss of a batch: softmax cross-entropy for one label a node, per-class sigmoid for many."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.graph import Graph


def compute_loss(logits: Tensor, batch: Batch, class_weights: Tensor | None = None) -> Tensor:
    """Mean loss of the batch's training nodes, each weighted by `node_norm` where the batch has one.

    `class_weights` multiply the loss of every node by its class's weight, or with several labels a node the
    loss of the labels it has. A batch without training nodes gives 0, with zero gradients.
    """
    mask = batch.train_mask
    if class_weights is not None:
        class_weights = class_weights.to(logits)
    if batch.y.dim() == 2:
        losses = functional.binary_cross_entropy_with_logits(
            logits[mask], batch.y[mask].to(logits.dtype), pos_weight=class_weights, reduction="none"
        ).mean(1)
    else:
        losses = functional.cross_entropy(logits[mask], batch.y[mask], weight=class_weights, reduction="none")
    if batch.node_norm is not None:
        return (losses * batch.node_norm[mask]).sum()
    return losses.sum() / torch.clamp(mask.sum(), min=1)


def weigh_classes(graph: Graph, weights: str | Sequence[float] | None) -> Tensor | None:
    """One weight a class: as given, or with `"balanced"` such that every class counts the same in training.

    Balanced weights have mean 1 over the training nodes; with several labels a node, a class's weight is how
    many nodes lack it for one that has it. A class without training nodes has weight 1.
    """
    if weights is None:
        return None
    if not isinstance(weights, str):
        if len(weights) != graph.num_classes:
            raise ShoalError(
                f"class_weights has {len(weights)} numbers: expected {graph.num_classes} numbers, one a class"
            )
        for weight in weights:
            if not isinstance(weight, int | float) or not 0 < weight < float("inf"):
                raise ShoalError(f"class_weights has {weight!r}: expected numbers above 0")
        return torch.tensor(list(weights), dtype=torch.float32)
    if weights != "balanced":
        raise ShoalError(f"class_weights is {weights!r}: expected balanced, a list of numbers, or null")
    assert graph.y is not None
    assert graph.train_mask is not None
    y = torch.from_numpy(graph.y[graph.train_mask])
    return balance_classes(count_classes(y, graph.num_classes), len(y), multi_label=y.dim() == 2)


def count_classes(y: Tensor, num_classes: int) -> Tensor:
    """Nodes of every class; counts add up over ranks."""
    counts = y.sum(0, dtype=torch.float64) if y.dim() == 2 else torch.bincount(y, minlength=num_classes)
    return counts.double()


def balance_classes(counts: Tensor, num_nodes: int, *, multi_label: bool) -> Tensor:
    """The weights of `"balanced"` from how many of the training nodes have each class."""
    each = num_nodes / max(int((counts > 0).sum()), 1)
    wanted = num_nodes - counts if multi_label else torch.full_like(counts, each)
    return torch.where((counts > 0) & (wanted > 0), wanted / counts.clamp(min=1), 1.0).float()
