"""Task: single-label, multi-label or regression, with the loss of a batch and predictions from logits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from torch import Tensor

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.training.loss import (
    LOSSES,
    Loss,
    check_weighs,
    compute_loss,
    default_loss,
    name_loss,
    weigh_classes,
)
from shoal.training.metrics import decide_class, decide_labels
from shoal.training.regression import REGRESSION_LOSSES
from shoal.training.targets import measure_targets


class Task:
    """Single-label or multi-label classification, or regression, by the labels of `graph`.

    Args:
        loss: by name or as a function; None for the task's default.
        class_weights: `balanced`, or one factor for each class's loss.
        total: sums counts over ranks that hold parts.
    """

    def __init__(
        self,
        graph: Graph,
        loss: str | Loss | None,
        class_weights: str | Sequence[float] | None,
        total: Callable[[Tensor], Tensor],
    ) -> None:
        self.loss = choose_loss(loss, graph)
        self.class_weights = weigh_classes(graph, class_weights, total)
        if self.class_weights is not None:
            check_weighs(self.loss)
        self.targets = measure_targets(graph, total)
        self._multi_label = graph.multi_label

    def measure(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of a batch."""
        return compute_loss(logits, batch, self.class_weights, self.loss, self.targets)

    def decide(self, logits: Tensor) -> Tensor:
        """Predictions: classes, a 0/1 matrix (multi-label), or numbers in the units of y (regression)."""
        if self.targets is not None:
            return self.targets.restore(logits)
        return decide_labels(logits) if self._multi_label else decide_class(logits)


def choose_loss(loss: str | Loss | None, graph: Graph) -> Loss:
    """The loss by name, or the task's default; an error if it is for another task."""
    loss = default_loss(regression=graph.regression) if loss is None else loss
    found = LOSSES[loss] if isinstance(loss, str) else loss
    name = name_loss(found)
    if name in REGRESSION_LOSSES and not graph.regression:
        raise ShoalError(
            f"loss {name!r} is for numbers and the labels of graph {graph.name!r} are classes: give float labels, or use cross_entropy"
        )
    if graph.regression and "class_weights" in inspect.signature(found).parameters:
        raise ShoalError(
            f"loss {name!r} is for classes and the labels of graph {graph.name!r} are numbers: use {', '.join(REGRESSION_LOSSES)}"
        )
    return found
