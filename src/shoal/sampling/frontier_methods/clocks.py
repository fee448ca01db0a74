"""Frontier sampling by exponential clocks: independent walkers, merged in time order."""

import math

import numpy as np

from shoal.kernels.bits import mark, prefetch
from shoal.kernels.jit import kernel
from shoal.rng import below, random_u64, uniform
from shoal.sampling.frontier_methods.start import FRONTIER_METHODS, draw_frontier, weigh

_AHEAD = 16  # walkers


@kernel
def _choose(start, degree, bits):
    """The position of a uniformly drawn neighbour, -1 for a node without neighbours."""
    return start + below(bits, degree) if degree > 0 else -1


@FRONTIER_METHODS.named("clocks")
@kernel
def draw_by_clocks(indptr, indices, pin_cap, frontier, budget, max_pops, stream, bitmap):
    """Put the batch's nodes into `bitmap`; returns (number of nodes, pops).

    Walker i at node v waits a time Exp(w(v)) and then steps. The waiting times are independent and memoryless, so
    walker i is the next to step with probability w(v_i) / Σ w. The steps of all walkers in time order therefore have the
    distribution of the frontier's pops.

    Walkers advance together through windows of time: every active walker takes one step, then the next one. What a step
    reads is prefetched, so that cache misses overlap. Inside a window the order matters only if the
    window could exceed the budget, so only the last window or two are sorted. Cost: O(pops + windows · m).
    """
    num_nodes = len(indptr) - 1
    walkers = draw_frontier(num_nodes, frontier, stream, bitmap)
    counter = frontier
    count, pops = frontier, 0
    start = np.empty(frontier, np.int64)
    degree = np.empty(frontier, np.int64)
    when = np.empty(frontier)
    active = np.empty(frontier, np.int64)
    place = np.empty(frontier, np.int64)  # of the next step's neighbour, -1 if there is none
    room = max(4 * frontier, 2 * budget)
    event_time = np.empty(room)
    event_node = np.empty(room, np.int64)
    for i in range(frontier):
        prefetch(indptr, walkers[min(i + _AHEAD, frontier - 1)])
        v = walkers[i]
        start[i] = indptr[v]
        degree[i] = indptr[v + 1] - start[i]
        when[i] = -math.log(1.0 - uniform(random_u64(stream, counter))) / weigh(degree[i], pin_cap)
        counter += 1
    window_end = 0.0
    while count < budget and pops < max_pops:
        rate = 0
        for i in range(frontier):
            rate += weigh(degree[i], pin_cap)
        left = min(budget - count, max_pops - pops)
        window_end += max(0.8 * left, 0.25 * frontier, 16.0) / rate
        num_active, events = 0, 0
        for i in range(frontier):
            active[num_active] = i
            place[num_active] = _choose(start[i], degree[i], random_u64(stream, counter + num_active))
            prefetch(indices, place[num_active])
            num_active += when[i] < window_end
        while num_active > 0:
            if events + num_active > len(event_time):
                event_time = np.concatenate((event_time, np.empty(len(event_time))))
                event_node = np.concatenate((event_node, np.empty(len(event_node), np.int64)))
            for a in range(num_active):
                if place[a] >= 0:
                    v = np.int64(indices[place[a]])
                else:
                    v = below(random_u64(stream, counter + a), num_nodes)
                prefetch(indptr, v)
                event_time[events + a] = when[active[a]]
                event_node[events + a] = v
            counter += num_active
            still = 0
            for a in range(num_active):
                i = active[a]
                v = event_node[events + a]
                start[i] = indptr[v]
                degree[i] = indptr[v + 1] - start[i]
                unit = 1.0 - uniform(random_u64(stream, counter + a))
                when[i] -= math.log(unit) / weigh(degree[i], pin_cap)
                active[still] = i
                place[still] = _choose(start[i], degree[i], random_u64(stream, counter + num_active + still))
                prefetch(indices, place[still])
                still += when[i] < window_end
            counter += num_active
            events += num_active
            num_active = still
        if count + events <= budget and pops + events <= max_pops:
            for e in range(events):
                count += mark(bitmap, event_node[e])
            pops += events
        else:
            order = np.argsort(event_time[:events])
            for e in order:
                count += mark(bitmap, event_node[e])
                pops += 1
                if count == budget or pops == max_pops:
                    break
    return count, pops
