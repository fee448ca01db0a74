"""Alias tables: draw from any fixed distribution over 0 … n-1 in constant time."""

import numpy as np

from shoal.kernels.csr import index_dtype
from shoal.kernels.jit import kernel
from shoal.rng import below, random_u64, uniform


def build_alias(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The table (threshold, other) of a distribution proportional to `weights` (n,), in O(n).

    A draw takes a slot i uniformly and returns i with probability threshold[i], other[i] otherwise. Weights
    below the mean are filled up by one above it, so each slot has at most two outcomes.
    """
    threshold = np.asarray(weights, np.float64) * (len(weights) / np.sum(weights, dtype=np.float64))
    other = np.arange(len(weights), dtype=index_dtype(len(weights)))
    _fill_table(threshold, other)
    return threshold.astype(np.float32), other


@kernel
def _fill_table(threshold, other):
    n = len(threshold)
    small = np.empty(n, other.dtype)
    large = np.empty(n, other.dtype)
    num_small, num_large = 0, 0
    for i in range(n):
        if threshold[i] < 1.0:
            small[num_small] = i
            num_small += 1
        else:
            large[num_large] = i
            num_large += 1
    while num_small > 0 and num_large > 0:
        num_small -= 1
        i, j = small[num_small], large[num_large - 1]
        other[i] = j
        threshold[j] -= 1.0 - threshold[i]
        if threshold[j] < 1.0:
            num_large -= 1
            small[num_small] = j
            num_small += 1
    for k in range(num_small):
        threshold[small[k]] = 1.0
    for k in range(num_large):
        threshold[large[k]] = 1.0


@kernel
def draw_alias(threshold, other, stream, counter):
    """One draw; uses the stream's numbers `counter` and `counter + 1`."""
    i = below(random_u64(stream, counter), len(threshold))
    if uniform(random_u64(stream, counter + 1)) < threshold[i]:
        return i
    return np.int64(other[i])
