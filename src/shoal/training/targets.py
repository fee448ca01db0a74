"""Regression targets: standardized for the model, in the user's units everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from shoal.graph import Graph


@dataclass(frozen=True)
class TargetScale:
    """Mean and standard deviation of each target over the training nodes, (targets,) float64.

    A model predicts `(y - mean) / deviation`, so that losses and learning rates do not depend on the user's units.
    """

    mean: Tensor
    deviation: Tensor
    one_column: bool

    def standardize(self, y: Tensor) -> Tensor:
        """Standardized targets, (n, targets)."""
        return (_as_matrix(y).double() - self.mean) / self.deviation

    def restore(self, predicted: Tensor) -> Tensor:
        """A model's predictions in the user's units, in the shape of y."""
        found = (predicted.double() * self.deviation + self.mean).to(predicted.dtype)
        return found[:, 0] if self.one_column else found


def measure_targets(
    graph: Graph, total: Callable[[Tensor], Tensor] = lambda sums: sums
) -> TargetScale | None:
    """The scale of a graph's targets; None if labels are classes. `total` sums over ranks that hold parts."""
    if not graph.regression:
        return None
    assert graph.y is not None
    assert graph.train_mask is not None
    y = _as_matrix(torch.from_numpy(graph.y[graph.train_mask])).double()
    known = ~y.isnan()
    counts, sums = total(torch.stack([known.sum(0).double(), y.nan_to_num().sum(0)]))
    mean = sums / counts.clamp(min=1)
    spread = total(torch.where(known, y - mean, 0.0).square().sum(0))
    deviation = (spread / counts.clamp(min=1)).sqrt()
    return TargetScale(mean, torch.where(deviation > 0, deviation, 1.0), graph.y.ndim == 1)


def _as_matrix(y: Tensor) -> Tensor:
    return y if y.dim() == 2 else y[:, None]
