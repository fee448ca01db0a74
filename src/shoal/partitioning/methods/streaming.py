"""The method `streaming`: linear deterministic greedy over the rows."""

from __future__ import annotations

import numpy as np

from shoal.kernels.jit import kernel
from shoal.partitioning.work import PARTITION_METHODS, Work, traits

_PASSES = 3


@PARTITION_METHODS.named("streaming")
@traits(preference=3)
def assign_by_streaming(work: Work) -> np.ndarray:
    """Linear deterministic greedy, streamed three times; holds one number per node, for graphs that nothing else can hold.

    Row v goes to the part p with the largest `neighbours of v in p · (1 − weight(p) / max_weight)` that has room, the
    lightest one if v has no neighbours placed yet. Later passes see every neighbour's place. Each pass reads
    the rows once in their order, as a memory-mapped graph wants it.
    """
    graph = work.graph
    assignment = np.full(graph.num_nodes, -1, np.int32)
    loads = np.zeros(work.num_parts, np.int64)
    for _ in range(_PASSES):
        _stream(graph.indptr, graph.indices, work.weights, float(work.max_weight), assignment, loads)
    return assignment


@kernel
def _stream(indptr, indices, weights, max_weight, assignment, loads):
    num_parts = len(loads)
    near = np.zeros(num_parts, np.int64)
    found = np.empty(num_parts, np.int64)
    for v in range(len(assignment)):
        old = assignment[v]
        if old >= 0:
            loads[old] -= weights[v]
        num_found = 0
        for k in range(indptr[v], indptr[v + 1]):
            p = assignment[indices[k]]
            if p >= 0 and indices[k] != v:
                if near[p] == 0:
                    found[num_found] = p
                    num_found += 1
                near[p] += 1
        chosen, best = -1, 0.0
        for f in range(num_found):
            p = found[f]
            score = near[p] * (1.0 - loads[p] / max_weight)
            if loads[p] + weights[v] <= max_weight and (
                score > best or (score == best and chosen >= 0 and loads[p] < loads[chosen])
            ):
                chosen, best = p, score
            near[p] = 0
        if chosen < 0:
            chosen = old if old >= 0 and loads[old] + weights[v] <= max_weight else int(np.argmin(loads))
        assignment[v] = chosen
        loads[chosen] += weights[v]
