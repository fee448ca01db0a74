"""Edges and features of the degree-corrected stochastic block model: classes that edges reveal better than features do."""

import numpy as np
from numba import prange

from shoal.datasets.attributes import EDGES, MEANS, NUMBERING, draw_normal
from shoal.kernels.jit import parallel_kernel
from shoal.rng import below, key, permute, random_u64, uniform

_EDGES_AT_ONCE = 1 << 22


def draw_features(y: np.ndarray, num_classes: int, num_features: int, signal: float, seed: int) -> np.ndarray:
    means = draw_normal(num_classes, num_features, seed, MEANS) * np.float32(signal / num_features**0.5)
    x = draw_normal(len(y), num_features, seed)
    _add_rows(x, means, y)
    return x


def draw_edges(y, num_classes, num_edges, homophily, skew, seed):
    """The edges in chunks of int32 (sources, targets), self loops left out."""
    order = permute(len(y), seed, NUMBERING)  # so that a node's number says nothing about its degree
    members = order[np.argsort(y[order], kind="stable")]
    offsets = np.searchsorted(y, np.arange(num_classes + 1), sorter=members)
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        size = min(_EDGES_AT_ONCE, num_edges - start)
        sources, targets = np.empty(size, members.dtype), np.empty(size, members.dtype)
        _draw_edges(start, y, members, offsets, homophily, 1 / (1 - skew), seed, sources, targets)
        proper = sources != targets
        yield sources[proper], targets[proper]


@parallel_kernel
def _draw_edges(start, y, members, offsets, homophily, power, seed, sources, targets):
    """The chance of member r has a closed inverse, r = ⌊m · u^power⌋: no table is needed."""
    k = key(seed, EDGES)
    num_classes = len(offsets) - 1
    for e in prange(len(sources)):
        c = 5 * (start + e)
        a = y[below(random_u64(k, c), len(y))]
        b = a
        if num_classes > 1 and uniform(random_u64(k, c + 1)) >= homophily:
            b = (a + 1 + below(random_u64(k, c + 2), num_classes - 1)) % num_classes
        m = offsets[a + 1] - offsets[a]
        sources[e] = members[offsets[a] + int(m * uniform(random_u64(k, c + 3)) ** power)]
        m = offsets[b + 1] - offsets[b]
        targets[e] = members[offsets[b] + int(m * uniform(random_u64(k, c + 4)) ** power)]


@parallel_kernel
def _add_rows(x, means, y):
    for i in prange(len(x)):
        for j in range(x.shape[1]):
            x[i, j] += means[y[i], j]
