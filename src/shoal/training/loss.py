"""The loss of a batch, and losses by name: cross-entropy for single-label, per-class sigmoid for multi-label graphs."""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn import functional

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.registry import Registry
from shoal.settings import Above, Choices, Null, Rate, Setting, check_options, list_settings
from shoal.training.targets import TargetScale

# A loss is a function of (logits, y) of n training nodes that returns their n losses. With class weights it also gets
# `class_weights=`. Its other annotated arguments are settings of training. The trainer sums the losses and divides
# them, over all ranks.
Loss = Callable[..., Tensor]
LOSSES: Registry[Loss] = Registry("loss", "shoal.training")
ChosenLoss = Annotated[
    str | Loss | None, Choices(LOSSES), Null("cross_entropy, regression mse"), "the loss of every node"
]
Smoothing = Annotated[float, Rate, "share of each label that is spread evenly over all classes"]


@LOSSES.named("cross_entropy")
def cross_entropy(
    logits: Tensor, y: Tensor, class_weights: Tensor | None = None, *, label_smoothing: Smoothing = 0.0
) -> Tensor:
    """Softmax cross-entropy; for multi-label `y` (n, classes) the mean of the classes' sigmoid cross-entropies.

    `class_weights` multiply a node's loss by the weight of its class; multi-label, they weight the positive labels.
    With `label_smoothing` s the target is `(1 - s) y + s / classes`; multi-label, `(1 - s) y + s / 2` for each class.
    """
    if y.dim() == 2:
        each = functional.binary_cross_entropy_with_logits(
            logits, _smooth_labels(y, logits, label_smoothing), pos_weight=class_weights, reduction="none"
        )
        return each.mean(1)
    losses = functional.cross_entropy(logits, y, reduction="none", label_smoothing=label_smoothing)
    return losses if class_weights is None else losses * class_weights[y]


@LOSSES.named("log_epsilon")
def log_epsilon(
    logits: Tensor,
    y: Tensor,
    class_weights: Tensor | None = None,
    *,
    label_smoothing: Smoothing = 0.0,
    epsilon: Annotated[
        float, Above(0), "offset of the cross-entropy inside the logarithm; small values tolerate outliers"
    ] = 1 - math.log(2),
) -> Tensor:
    """`log(epsilon + z) - log(epsilon)` of the cross-entropy z: nodes far from their label count less.

    For multi-label `y` (n, classes) it is the mean over the classes, with z the sigmoid cross-entropy of each.
    `class_weights` and `label_smoothing` are as in `cross_entropy`; the weights are outside the logarithm.
    """
    if y.dim() == 2:
        target = _smooth_labels(y, logits, label_smoothing)
        z = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        factor = 1 if class_weights is None else torch.where(y.bool(), class_weights, 1.0)
        return (factor * torch.log1p(z / epsilon)).mean(1)
    z = functional.cross_entropy(logits, y, reduction="none", label_smoothing=label_smoothing)
    losses = torch.log1p(z / epsilon)
    return losses if class_weights is None else losses * class_weights[y]


def _smooth_labels(y: Tensor, logits: Tensor, share: float) -> Tensor:
    target = y.to(logits.dtype)
    return target if share == 0 else target * (1 - share) + share / 2


def loss_settings(name: str) -> Mapping[str, Setting]:
    """Settings of the registered loss `name`."""
    loss = LOSSES[name]
    return list_settings(loss) if inspect.isroutine(loss) else {}


def make_loss(name: str, **settings: Any) -> Loss:
    """A registered loss with its settings, such as `make_loss("log_epsilon", epsilon=0.5)`, for a Trainer.

    Args:
        name: one of `LOSSES`.
        settings: settings of the loss.
    """
    checked = check_options(loss_settings(name), settings, what=f"loss {name!r}")
    return partial(LOSSES[name], **checked) if checked else LOSSES[name]


def compute_loss(
    logits: Tensor,
    batch: Batch,
    class_weights: Tensor | None = None,
    loss: Loss = cross_entropy,
    targets: TargetScale | None = None,
) -> Tensor:
    """Mean loss of the batch's training nodes; or their sum weighted by `node_norm`, if the batch has one.

    `targets` is the scale of regression targets. A batch without training nodes gives 0, with zero gradients.
    """
    mask = batch.train_mask
    weights = {} if class_weights is None else {"class_weights": class_weights.to(logits)}
    y = batch.y[mask] if targets is None else targets.standardize(batch.y[mask]).to(logits.dtype)
    losses = loss(logits[mask], y, **weights)
    if losses.shape != (int(mask.sum()),):
        raise ShoalError(
            f"the loss has shape {tuple(losses.shape)}: expected one number for each of {int(mask.sum())} nodes (reduction='none')"
        )
    if batch.node_norm is not None:
        return (losses * batch.node_norm[mask]).sum()
    return losses.sum() / torch.clamp(mask.sum(), min=1)


def weigh_classes(
    graph: Graph,
    weights: str | Sequence[float] | None,
    total: Callable[[Tensor], Tensor] = lambda counts: counts,
) -> Tensor | None:
    """One weight per class: as given, or `"balanced"`, so that every class has the same total weight in training.

    Balanced weights have mean 1 over the training nodes. In multi-label graphs a class's weight is the ratio of nodes
    without it to nodes with it. A class without training nodes has weight 1. `total` sums counts over ranks with parts.
    """
    if weights is None:
        return None
    if graph.regression:
        raise ShoalError(
            f"class_weights are for classes and the labels of graph {graph.name!r} are numbers: leave them out"
        )
    if not isinstance(weights, str):
        if len(weights) != graph.num_classes:
            raise ShoalError(
                f"class_weights has {len(weights)} numbers: expected {graph.num_classes} numbers, one per class"
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
    multi_label = y.dim() == 2
    counts = y.sum(0, dtype=torch.float64) if multi_label else torch.bincount(y, minlength=graph.num_classes)
    *each, nodes = total(torch.cat([counts.double(), torch.tensor([len(y)], dtype=torch.float64)])).tolist()
    counts = torch.tensor(each, dtype=torch.float64)
    even = nodes / max(int((counts > 0).sum()), 1)
    wanted = nodes - counts if multi_label else torch.full_like(counts, even)
    return torch.where((counts > 0) & (wanted > 0), wanted / counts.clamp(min=1), 1.0).float()


def check_weighs(loss: Loss) -> None:
    """Raise if a loss does not take class weights."""
    if "class_weights" not in inspect.signature(loss).parameters:
        raise ShoalError(
            f"loss {name_loss(loss)!r} takes no class_weights: leave them out, or give it that argument"
        )


def name_loss(loss: Loss) -> str | Loss:
    """The registered name of a loss, or the loss itself."""
    plain = loss.func if isinstance(loss, partial) else loss
    return next((name for name, one in LOSSES.items() if one is plain), loss)


def default_loss(*, regression: bool) -> str:
    """The name of the default loss of a task."""
    return "mse" if regression else "cross_entropy"
