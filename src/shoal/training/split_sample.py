"""A fixed sample of a split's nodes, and the standard error of scores on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from shoal.batch import as_tensor
from shoal.rng import draw_uniform
from shoal.settings import AtLeast, Null
from shoal.training.share import Share

_GROUPS = 20
_SEED, _STREAM = 0, 0x5A3D1E  # fixed: all runs on a graph use the same sample
EvalSample = Annotated[int | None, AtLeast(_GROUPS), Null("all"), "validation nodes to evaluate, drawn once"]


@dataclass(frozen=True)
class SplitSample:
    """Nodes of a split, drawn without replacement; on ranks with parts, this rank's share of them.

    Attributes:
        mask: the sampled nodes among this rank's rows.
        groups: the group of each sampled node; random groups of equal size.
        size, total: nodes of the sample and of the split, over all ranks.
        metric: the score whose standard error is reported.
    """

    mask: Tensor
    groups: Tensor
    size: int
    total: int
    metric: str

    def estimate_error(self, score: Callable[[Tensor], float]) -> float:
        """The standard error of the sample's score as an estimate of the split's; `score(chosen)` scores chosen nodes.

        It is a jackknife over groups, times √(1 - size / total): a sample of all nodes has no error.
        """
        without = np.array([score(self.groups != group) for group in range(_GROUPS)])
        variance = (_GROUPS - 1) / _GROUPS * float(np.square(without - without.mean()).sum())
        return math.sqrt(variance * (1 - self.size / self.total))


def draw_sample(share: Share, split: str, size: int | None, metric: str) -> SplitSample | None:
    """`size` nodes of a split, the same in every run and on any number of ranks; None if the split has no more."""
    total = share.count_nodes(split)
    if size is None or total <= size:
        return None
    mask = np.asarray(getattr(share.graph, f"{split}_mask"))
    rows = np.flatnonzero(mask)
    nodes = rows if share.n_id is None else share.n_id.numpy()[rows]
    share.transport.phase = f"the sample of {split} nodes"
    drawn = as_tensor(draw_uniform(nodes, _SEED, _STREAM))
    first = share.collect(drawn).sort().values[:size]
    chosen = drawn <= first[-1]
    own = torch.zeros(len(mask), dtype=torch.bool)
    own[as_tensor(rows)[chosen]] = True
    groups = torch.searchsorted(first, drawn[chosen]) % _GROUPS
    return SplitSample(own, groups, size, total, metric)
