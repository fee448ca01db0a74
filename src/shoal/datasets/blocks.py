"""Edges and features of the degree-corrected stochastic block model: classes that edges reveal better than features do."""

import numpy as np
from numba import prange

from shoal.datasets.attributes import EDGES, MEANS, NUMBERING, draw_normal
from shoal.kernels.csr import count_rows
from shoal.kernels.jit import kernel, parallel_kernel
from shoal.rng import below, key, permute, random_u64, uniform

_EDGES_AT_ONCE = 1 << 22


def draw_features(y: np.ndarray, num_classes: int, num_features: int, signal: float, seed: int) -> np.ndarray:
    """Features (num_nodes, num_features): standard normal around a random mean per class, scaled by `signal`."""
    means = draw_normal(num_classes, num_features, seed, MEANS) * np.float32(signal / num_features**0.5)

    def shift(start: int, block: np.ndarray) -> None:
        _add_rows(block, means, y[start : start + len(block)])

    return draw_normal(len(y), num_features, seed, shift=shift)


def draw_edges(y, num_classes, num_edges, homophily, skew, seed):
    """The edges in chunks of int32 (sources, targets), self loops left out."""
    order = permute(len(y), seed, NUMBERING)  # so that a node's number says nothing about its degree
    offsets = np.zeros(num_classes + 1, np.int64)
    count_rows(y, offsets)
    offsets = np.cumsum(offsets)
    members = np.empty_like(order)
    _gather_classes(order, y, offsets[:-1].copy(), members)
    del order
    for start in range(0, num_edges, _EDGES_AT_ONCE):
        size = min(_EDGES_AT_ONCE, num_edges - start)
        sources, targets = np.empty(size, members.dtype), np.empty(size, members.dtype)
        _draw_edges(start, y, members, offsets, homophily, 1 / (1 - skew), seed, sources, targets)
        proper = sources != targets
        yield sources[proper], targets[proper]


@kernel
def _gather_classes(order, y, cursor, members):
    """The nodes of class 0, of class 1, …, each class in the order given."""
    for i in range(len(order)):
        c = y[order[i]]
        members[cursor[c]] = order[i]
        cursor[c] += 1


@parallel_kernel
def _draw_edges(start, y, members, offsets, homophily, power, seed, sources, targets):
    """Member r is drawn by the closed-form inverse of its distribution, r = ⌊m · u^power⌋: no table is needed."""
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
