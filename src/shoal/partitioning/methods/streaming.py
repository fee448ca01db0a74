"""The method `streaming`: linear deterministic greedy over the rows."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from shoal.kernels.jit import kernel
from shoal.partitioning.work import PARTITION_METHODS, Work, traits
from shoal.progress import follow_work
from shoal.settings import AtLeast, check_settings

_NODES_AT_ONCE = 1 << 16
_STILL = 0.005  # passes end when at most this share of the nodes moves


@PARTITION_METHODS.named("streaming")
@traits(preference=4)
@check_settings
def assign_by_streaming(
    work: Work,
    *,
    passes: Annotated[int, AtLeast(1), "most passes over the rows; fewer once hardly any node moves"] = 10,
) -> np.ndarray:
    """Linear deterministic greedy, restreamed; holds one number per node, for graphs too large for other methods.

    Row v goes to the part p with the largest `neighbours of v in p · (1 − weight(p) / max_weight)` that has room, the
    lightest one if v has no neighbours placed yet. Later passes know every neighbour's part and refine the first. Each
    pass reads the rows once in their order, which suits a memory-mapped graph.
    """
    graph, n = work.graph, work.graph.num_nodes
    assignment = np.full(n, -1, np.int32)
    loads = np.zeros(work.num_parts, np.int64)
    near, max_weight = np.zeros(work.num_parts, np.int64), float(work.max_weight)
    for number in range(passes):
        moved = 0
        for start in range(0, n, _NODES_AT_ONCE):
            stop = min(start + _NODES_AT_ONCE, n)
            moved += _stream(
                graph.indptr, graph.indices, start, stop, work.weights, max_weight, assignment, loads, near
            )
            follow_work("streaming", number * n + stop, passes * n)
        if moved <= _STILL * n:
            break
    follow_work("streaming", passes * n, passes * n)
    return assignment


@kernel
def _stream(indptr, indices, first, last, weights, max_weight, assignment, loads, near):
    """Place some rows; returns how many changed their part. `near` has a 0 for every part and is reset before returning."""
    found = np.empty(len(loads), np.int64)
    moved = 0
    for v in range(first, last):
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
        moved += chosen != old
        assignment[v] = chosen
        loads[chosen] += weights[v]
    return moved
