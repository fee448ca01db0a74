"""Shared by all frontier methods: their registry, the first frontier, a node's weight, a step to a neighbour."""

from collections.abc import Callable
from typing import Any

import numpy as np

from shoal.kernels.bits import mark
from shoal.kernels.jit import kernel
from shoal.registry import Registry
from shoal.rng import below, random_u64

FRONTIER_METHODS: Registry[Callable[..., Any]] = Registry("method", "shoal.sampling.frontier_methods")


@kernel
def draw_frontier(num_nodes, frontier, stream, bitmap):
    """`frontier` distinct nodes, every set equally likely; they are put into `bitmap`.

    Floyd's algorithm: for j = n-m … n-1 take a random node up to j, or j itself if that one is taken. Uses the
    counters 0 … m-1 of the stream. Only the set is random, not its order.
    """
    walkers = np.empty(frontier, np.int64)
    for i in range(frontier):
        j = num_nodes - frontier + i
        v = below(random_u64(stream, i), j + 1)
        if mark(bitmap, v) == 0:
            v = j
            mark(bitmap, v)
        walkers[i] = v
    return walkers


@kernel
def weigh(degree, pin_cap):
    """A node's weight in the frontier: its degree, at least 1 and at most the pin cap."""
    return min(max(degree, 1), pin_cap)


@kernel
def step(indptr, indices, node, bits):
    """A uniformly random node that `node` aggregates from; any node of the graph if there is none."""
    start = indptr[node]
    degree = indptr[node + 1] - start
    if degree == 0:
        return below(bits, len(indptr) - 1)
    return np.int64(indices[start + below(bits, degree)])
