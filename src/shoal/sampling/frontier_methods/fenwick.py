"""Frontier sampling by a Fenwick tree over the weights of the frontier's slots."""

import numpy as np

from shoal.kernels.bits import mark
from shoal.kernels.jit import kernel
from shoal.rng import below, random_u64
from shoal.sampling.frontier_methods.start import FRONTIER_METHODS, draw_frontier, step, weigh


@FRONTIER_METHODS.named("fenwick")
@kernel
def draw_by_fenwick(indptr, indices, pin_cap, frontier, budget, max_pops, stream, bitmap):
    """Put the batch's nodes into `bitmap`; returns (number of nodes, pops).

    `tree[i]` sums the weights of the slots i - (i & -i) … i - 1. A pop draws x below the total, descends to
    the slot in which the running sum passes x, and adds the change of weight on the way up.
    Cost: O(log m) per pop.
    """
    top = 1
    while top < frontier:
        top <<= 1
    tree = np.zeros(top + 1, np.int64)
    weights = np.zeros(top, np.int64)
    walkers = draw_frontier(len(indptr) - 1, frontier, stream, bitmap)
    everything = 0
    for i in range(frontier):
        v = walkers[i]
        weights[i] = weigh(indptr[v + 1] - indptr[v], pin_cap)
        tree[i + 1] = weights[i]
        everything += weights[i]
    for i in range(1, top + 1):
        above = i + (i & -i)
        if above <= top:
            tree[above] += tree[i]
    counter = frontier
    count, pops = frontier, 0
    while count < budget and pops < max_pops:
        x = below(random_u64(stream, counter), everything)
        slot, half = 0, top
        while half > 0:
            if slot + half <= top and tree[slot + half] <= x:
                slot += half
                x -= tree[slot]
            half >>= 1
        v = step(indptr, indices, walkers[slot], random_u64(stream, counter + 1))
        counter += 2
        walkers[slot] = v
        weight = weigh(indptr[v + 1] - indptr[v], pin_cap)
        change = weight - weights[slot]
        weights[slot] = weight
        everything += change
        i = slot + 1
        while i <= top:
            tree[i] += change
            i += i & -i
        count += mark(bitmap, v)
        pops += 1
    return count, pops
