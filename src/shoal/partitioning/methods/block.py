"""The method `block`: runs of consecutive nodes."""

from __future__ import annotations

import numpy as np

from shoal.partitioning.work import PARTITION_METHODS, Work


@PARTITION_METHODS.named("block")
def assign_in_blocks(work: Work) -> np.ndarray:
    """Consecutive nodes of about equal weight: a baseline for the order of the nodes."""
    return partition_in_blocks(work.weights, work.num_parts)


def partition_in_blocks(weights: np.ndarray, num_parts: int) -> np.ndarray:
    """Runs of consecutive vertices of about equal weight."""
    middle = np.cumsum(weights) - weights / 2
    total = max(float(weights.sum()), 1.0)
    return np.minimum(middle * num_parts / total, num_parts - 1).astype(np.int32)
