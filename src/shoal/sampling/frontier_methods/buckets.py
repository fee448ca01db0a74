"""Frontier sampling by buckets of similar weight, with rejection inside a bucket."""

import numpy as np

from shoal.kernels.bits import mark
from shoal.kernels.jit import kernel
from shoal.rng import below, random_u64
from shoal.sampling.frontier_methods.start import FRONTIER_METHODS, draw_frontier, step, weigh

_NUM_BUCKETS = 48  # weights up to 2⁴⁸


@FRONTIER_METHODS.named("buckets")
@kernel
def draw_by_buckets(indptr, indices, pin_cap, frontier, budget, max_pops, stream, bitmap):
    """Put the batch's nodes into `bitmap`; returns (number of nodes, pops).

    Bucket b holds the frontier nodes with weight in [2^b, 2^(b+1)). A pop draws a bucket by its exact total
    weight, then nodes of it uniformly until one is accepted with probability w(v) / 2^(b+1) ≥ 1/2.
    Cost: O(log of the largest weight) per pop, at most 2 tries on average.
    """
    members = np.empty((_NUM_BUCKETS, frontier), np.int64)
    size = np.zeros(_NUM_BUCKETS, np.int64)
    total = np.zeros(_NUM_BUCKETS, np.int64)
    everything = 0
    walkers = draw_frontier(len(indptr) - 1, frontier, stream, bitmap)
    for i in range(frontier):
        everything += _put(indptr, pin_cap, walkers[i], members, size, total)
    counter = frontier
    count, pops = frontier, 0
    while count < budget and pops < max_pops:
        x = below(random_u64(stream, counter), everything)
        counter += 1
        b = 0
        while x >= total[b]:
            x -= total[b]
            b += 1
        while True:
            bits = random_u64(stream, counter)
            slot = below(bits, size[b])
            u = members[b, slot]
            weight = weigh(indptr[u + 1] - indptr[u], pin_cap)
            counter += 2
            if below(random_u64(stream, counter - 1), 2 << b) < weight:
                break
        size[b] -= 1
        members[b, slot] = members[b, size[b]]
        total[b] -= weight
        everything -= weight
        v = step(indptr, indices, u, random_u64(stream, counter))
        counter += 1
        everything += _put(indptr, pin_cap, v, members, size, total)
        count += mark(bitmap, v)
        pops += 1
    return count, pops


@kernel
def _put(indptr, pin_cap, node, members, size, total):
    weight = weigh(indptr[node + 1] - indptr[node], pin_cap)
    b = 0
    while (2 << b) <= weight:
        b += 1
    members[b, size[b]] = node
    size[b] += 1
    total[b] += weight
    return weight
