"""Which parts share a host: those that exchange most, since memory is faster than the network."""

from __future__ import annotations

import numpy as np

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.jit import kernel
from shoal.partitioning.cut import list_members

MAX_PARTS = 8192  # the exchange between all pairs of parts is a table


def group_parts(graph: Graph, assignment: np.ndarray, num_parts: int, parts_per_host: int) -> np.ndarray:
    """A new number for every part: host h gets the numbers from h · parts_per_host, as launchers place ranks.

    Groups are made greedily: the part with most traffic left, then always the one that exchanges most with the group. Two
    parts on different hosts are swapped as long as fewer rows cross hosts. If the given numbering is no worse, swaps start
    from it instead.
    """
    if num_parts > MAX_PARTS:
        raise ShoalError(f"{num_parts:,} parts are too many to map to hosts: at most {MAX_PARTS:,}")
    nodes, offsets = list_members(assignment, num_parts)
    rows = np.zeros((num_parts, num_parts), np.int64)
    _count_exchange(graph.indptr, graph.indices, assignment, nodes, offsets, rows)
    rows += rows.T
    given = np.arange(num_parts) // parts_per_host
    host = np.full(num_parts, -1, np.int64)
    _group_greedily(rows, parts_per_host, host)
    _swap(rows, host)
    if _crossing(rows, host) >= _crossing(rows, given):
        host = given
        _swap(rows, host)
    number = np.empty(num_parts, np.int32)
    number[np.argsort(host, kind="stable")] = np.arange(num_parts)
    return number


def _crossing(rows: np.ndarray, host: np.ndarray) -> int:
    return int(rows[host[:, None] != host[None, :]].sum())


@kernel
def _count_exchange(indptr, indices, assignment, nodes, offsets, rows):
    reader = np.full(len(assignment), -1, np.int32)
    for p in range(len(rows)):
        for i in range(offsets[p], offsets[p + 1]):
            for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
                j = indices[k]
                if assignment[j] != p and reader[j] != p:
                    reader[j] = p
                    rows[assignment[j], p] += 1


@kernel
def _group_greedily(rows, size, host):
    num_parts = len(rows)
    near = np.empty(num_parts, np.int64)
    for h in range((num_parts + size - 1) // size):
        first, most = -1, -1
        for p in range(num_parts):
            if host[p] < 0:
                traffic = 0
                for q in range(num_parts):
                    if host[q] < 0:
                        traffic += rows[p, q]
                if traffic > most:
                    first, most = p, traffic
        host[first] = h
        near[:] = rows[first]
        for _ in range(min(size, num_parts - h * size) - 1):
            best = -1
            for p in range(num_parts):
                if host[p] < 0 and (best < 0 or near[p] > near[best]):
                    best = p
            host[best] = h
            near += rows[best]


@kernel
def _swap(rows, host):
    """Swap parts of two hosts while that keeps more rows inside hosts, for a bounded number of passes."""
    num_parts = len(rows)
    num_hosts = host.max() + 1
    near = np.zeros((num_parts, num_hosts), np.int64)
    for p in range(num_parts):
        for q in range(num_parts):
            near[p, host[q]] += rows[p, q]
    for _ in range(20):
        swapped = False
        for p in range(num_parts):
            best, gained = -1, 0
            for q in range(num_parts):
                a, b = host[p], host[q]
                if a != b:
                    gain = near[p, b] - near[p, a] + near[q, a] - near[q, b] - 2 * rows[p, q]
                    if gain > gained:
                        best, gained = q, gain
            if best >= 0:
                a, b = host[p], host[best]
                for q in range(num_parts):
                    moved = rows[q, p] - rows[q, best]
                    near[q, a] -= moved
                    near[q, b] += moved
                host[p], host[best] = b, a
                swapped = True
        if not swapped:
            break
