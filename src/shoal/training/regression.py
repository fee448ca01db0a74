"""Regression losses of predictions and y (n, targets), in units of the targets' standard deviation; NaN is unknown."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor
from torch.nn import functional

from shoal.settings import Above
from shoal.training.loss import LOSSES

REGRESSION_LOSSES = ("mse", "mae", "huber")


@LOSSES.named("mse")
def mse(predicted: Tensor, y: Tensor) -> Tensor:
    """Squared error, in units of the targets' variance; several targets count the same."""
    return _average(functional.mse_loss(predicted, y.nan_to_num(), reduction="none"), y)


@LOSSES.named("mae")
def mae(predicted: Tensor, y: Tensor) -> Tensor:
    """Absolute error, in units of the targets' standard deviation."""
    return _average(functional.l1_loss(predicted, y.nan_to_num(), reduction="none"), y)


@LOSSES.named("huber")
def huber(
    predicted: Tensor,
    y: Tensor,
    *,
    delta: Annotated[float, Above(0), "standard deviations up to which the error is squared"] = 1.0,
) -> Tensor:
    """Squared error up to `delta` standard deviations, absolute error beyond."""
    return _average(functional.huber_loss(predicted, y.nan_to_num(), reduction="none", delta=delta), y)


def _average(losses: Tensor, y: Tensor) -> Tensor:
    """The mean loss of each node's known targets."""
    known = ~y.isnan()
    return torch.where(known, losses, 0.0).sum(1) / known.sum(1).clamp(min=1)
