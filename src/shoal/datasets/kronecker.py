"""Edges of a stochastic Kronecker (R-MAT) graph, from a counter-based generator."""

from collections.abc import Iterator

import numpy as np
from numba import prange

from shoal.datasets.attributes import EDGES, NUMBERING
from shoal.kernels.jit import parallel_kernel
from shoal.rng import key, permute, random_u64

# Probability that an edge falls in quadrant (0,0), (0,1), (1,0), (1,1): [[0.9, 0.5], [0.5, 0.1]] over its sum.
INITIATOR = (0.45, 0.25, 0.25, 0.05)
_BOUNDS = np.round(np.cumsum(INITIATOR)[:3] * 2**32).astype(np.uint64)
_EDGES_AT_ONCE = 1 << 20


def draw_numbered(num_edges: int, scale: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The edges in chunks of int32 (sources, targets), renumbered, self loops left out."""
    number = permute(1 << scale, seed, NUMBERING)
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        sources, targets = draw_edges(start, min(_EDGES_AT_ONCE, num_edges - start), scale, seed)
        proper = sources != targets
        yield number[sources[proper]], number[targets[proper]]


def draw_edges(start: int, count: int, scale: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Edges number `start` to `start + count - 1`, before renumbering: int32 (sources, targets)."""
    sources, targets = np.empty(count, np.int32), np.empty(count, np.int32)
    _descend(start, scale, seed, _BOUNDS, sources, targets)
    return sources, targets


@parallel_kernel
def _descend(start, scale, seed, bounds, sources, targets):
    """One level takes 32 random bits: the number of `bounds` they reach is the quadrant."""
    k = key(seed, EDGES)
    first, second, third = bounds[0], bounds[1], bounds[2]
    draws = (scale + 1) // 2
    for e in prange(len(sources)):
        row = 0
        column = 0
        for d in range(draws):
            bits = random_u64(k, (start + e) * draws + d)
            for half in range(min(2, scale - 2 * d)):
                level = (bits >> np.uint64(32 * half)) & np.uint64(0xFFFFFFFF)
                quadrant = int(level >= first) + int(level >= second) + int(level >= third)
                row = 2 * row + (quadrant >> 1)
                column = 2 * column + (quadrant & 1)
        sources[e] = row
        targets[e] = column
