"""The statistics that batch norm uses in evaluation, measured without dropout on training batches.

Running statistics are those of steps, with dropout. Evaluation has none, so its activations have other means and variances.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from shoal.training.inference import evaluating

MOST_BATCHES = (
    20  # batches that are measured at most: about as many as running statistics of momentum 0.1 weigh
)


def list_norms(model: nn.Module) -> list[nn.BatchNorm1d]:
    """The batch norms of a model that have running statistics, torch's own and PyG's among them."""
    return [
        one for one in model.modules() if isinstance(one, nn.BatchNorm1d) and one.running_mean is not None
    ]


@contextmanager
def collecting(model: nn.Module) -> Iterator[None]:
    """Inside the `with` block the model is in eval mode, but for batch norms: these normalise by the batch.

    Afterwards a norm's running mean and variance are the means over the batches it normalised; without any they are as
    before. The count of its steps does not change.
    """
    norms = list_norms(model)
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    with evaluating(model):
        for norm in norms:
            norm.momentum = None  # the cumulative mean; the first batch replaces what was there
            norm.num_batches_tracked = torch.tensor(0)
            norm.train()
        try:
            yield
        finally:
            for norm, (momentum, count) in zip(norms, before):
                norm.momentum, norm.num_batches_tracked = momentum, count


def read_statistics(model: nn.Module) -> list[Tensor]:
    """Copies of the running means and variances of a model's batch norms."""
    return [one.clone() for one in _list_statistics(model)]


def write_statistics(model: nn.Module, statistics: list[Tensor]) -> None:
    """Replace the running means and variances by what `read_statistics` returned."""
    for one, value in zip(_list_statistics(model), statistics, strict=True):
        one.copy_(value)


def _list_statistics(model: nn.Module) -> list[Tensor]:
    pairs = [(norm.running_mean, norm.running_var) for norm in list_norms(model)]
    return [one for pair in pairs for one in pair if one is not None]
