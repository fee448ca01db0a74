"""Initial weights: equal on all ranks; with `prior_bias`, an output bias from the frequencies of the classes."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor, nn

from shoal.distributed.gradients import broadcast_weights
from shoal.errors import ShoalError
from shoal.models.stack import Stack
from shoal.training.baselines import count_training_nodes
from shoal.training.share import Share

PriorBias = Annotated[
    bool,
    "start the bias of the logits at the log-frequencies of the classes among training nodes (multi-label: log-odds)",
]


def start_weights(
    model: nn.Module, share: Share, *, prior_bias: bool = False, class_weights: Tensor | None = None
) -> None:
    """Give every rank the weights of rank 0; with `prior_bias`, set the bias of the logits first, trained or not."""
    if prior_bias:
        _set_prior(model, share, class_weights)
    if share.transport.size > 1:
        broadcast_weights(model, share.transport)


def find_prior(counts: Tensor, *, multi_label: bool, class_weights: Tensor | None = None) -> Tensor:
    """Logits of a constant prediction: log-odds (multi-label) or logarithms of the classes' shares.

    Every count is increased by one (Laplace), so that no logit is infinite.

    Args:
        counts: nodes of each class, and behind them all nodes.
        class_weights: factors on the classes' losses; a factor w acts like w times as many nodes of the class.
    """
    with_class, nodes = counts[:-1].double() + 1, counts[-1].double()
    others = nodes + 2 - with_class if multi_label else with_class.sum()
    found = torch.log(with_class / others)
    return found if class_weights is None else found + torch.log(class_weights.double())


def _set_prior(model: nn.Module, share: Share, class_weights: Tensor | None) -> None:
    bias = model.output_bias if isinstance(model, Stack) else None
    if bias is None:
        raise ShoalError(
            f"prior_bias sets the bias of a GNN's logits and the model, a {type(model).__name__}, has none: leave it out"
        )
    if share.graph.regression:
        raise ShoalError(
            f"prior_bias is for classes and the labels of graph {share.graph.name!r} are numbers: leave it out"
        )
    share.transport.phase = "the counts of the classes"
    prior = find_prior(
        count_training_nodes(share), multi_label=share.graph.multi_label, class_weights=class_weights
    )
    with torch.no_grad():
        bias.copy_(prior)
