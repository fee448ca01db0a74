"""Partitions that look at no edge or at each row once: random, block, and streaming (linear deterministic greedy)."""

from __future__ import annotations

import numpy as np

from shoal.graph import Graph
from shoal.kernels.jit import kernel
from shoal.rng import permute

_ORDER = 1 << 60  # the stream of the random order
_PASSES = 3


def partition_at_random(num_nodes: int, num_parts: int, seed: int) -> np.ndarray:
    """Equally many nodes in every part, drawn at random: what others are measured against, as in VLDB'22."""
    assignment = np.empty(num_nodes, np.int32)
    assignment[permute(num_nodes, seed, _ORDER)] = np.arange(num_nodes) % num_parts
    return assignment


def partition_in_blocks(weights: np.ndarray, num_parts: int) -> np.ndarray:
    """Runs of consecutive vertices of about equal weight: what the order of the nodes is worth."""
    middle = np.cumsum(weights) - weights / 2
    total = max(float(weights.sum()), 1.0)
    return np.minimum(middle * num_parts / total, num_parts - 1).astype(np.int32)


def partition_stream(graph: Graph, weights: np.ndarray, num_parts: int, max_weight: float) -> np.ndarray:
    """Linear deterministic greedy, streamed three times: only part weights and the assignment are in memory.

    Row v goes to the part p with the largest `neighbours of v in p · (1 − weight(p) / max_weight)` that has room, the
    lightest one if v has no neighbours placed yet. Later passes see every neighbour's place. Each pass reads
    the rows once in their order, as a memory-mapped graph wants it.
    """
    assignment = np.full(graph.num_nodes, -1, np.int32)
    loads = np.zeros(num_parts, np.int64)
    for _ in range(_PASSES):
        _stream(graph.indptr, graph.indices, weights, float(max_weight), assignment, loads)
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
