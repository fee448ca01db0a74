"""The method `random`: equally many nodes in every part."""

from __future__ import annotations

import numpy as np

from shoal.partitioning.work import PARTITION_METHODS, Work, traits
from shoal.rng import permute

_ORDER = 1 << 60  # the stream of the random order


@PARTITION_METHODS.named("random")
@traits(balances=False)
def assign_at_random(work: Work) -> np.ndarray:
    """Equally many random nodes in each part: the baseline."""
    return partition_at_random(work.graph.num_nodes, work.num_parts, work.seed)


def partition_at_random(num_nodes: int, num_parts: int, seed: int) -> np.ndarray:
    """Equally many nodes in every part, drawn at random: the baseline of the other methods, as in VLDB'22."""
    assignment = np.empty(num_nodes, np.int32)
    assignment[permute(num_nodes, seed, _ORDER)] = np.arange(num_nodes) % num_parts
    return assignment
