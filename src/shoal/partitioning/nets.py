"""Nets, and their pins in each part, from which the volume of a partition is counted.

Net j is a row that may have to be sent. Its pins are the vertices that need it, with its owner. Column-net model: net j
is column j of A + I. `count(j, p)` is the number of net j's pins in part p, and its spread λ_j the number of parts with
a pin, so λ_j − 1 ranks receive it and Σ_j (λ_j − 1) rows are sent.

A net with many pins holds one count per part, a small one a short list of (part, count). There are never more than
`ROOM` times as many counts as pins, and there is no table of parts × nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.graph import Graph
from shoal.kernels.csr import add_diagonal, index_dtype
from shoal.kernels.jit import kernel
from shoal.partitioning.cut import list_members

ROOM = 4  # most counts per pin, for a net that holds one count per part


class Nets(NamedTuple):
    """A hypergraph seen from its vertices: vertex v is a pin of the nets `nets[indptr[v]:indptr[v + 1]]`."""

    indptr: np.ndarray
    nets: np.ndarray
    owner: np.ndarray  # the vertex whose row each net is
    weight: np.ndarray  # number of equal nets that were merged into each

    @property
    def num_nets(self) -> int:
        """Number of nets."""
        return len(self.owner)


class Counts(NamedTuple):
    """count(j, p) of all nets: `counts[start[j] + p]`, or a list of `size[j]` pairs (parts, counts)."""

    start: np.ndarray
    is_table: np.ndarray
    size: np.ndarray
    parts: np.ndarray
    counts: np.ndarray
    spread: np.ndarray


class Loads(NamedTuple):
    """Rows that each part sends and receives, and its weight; `rows[q, p]` are the rows that q sends to p (or empty)."""

    send: np.ndarray
    receive: np.ndarray
    weight: np.ndarray
    rows: np.ndarray


def make_nets(graph: Graph) -> Nets:
    """The column nets of a graph: row v reads the nets of its columns, and its own."""
    indptr, nets, _ = add_diagonal(graph.indptr, graph.indices)
    n = graph.num_nodes
    return Nets(indptr, nets, np.arange(n, dtype=index_dtype(n)), np.ones(n, np.int32))


def count_rows(nets: Nets, assignment: np.ndarray, num_parts: int) -> int:
    """Rows sent: `Σ_j weight_j · (λ_j − 1)`."""
    return int((nets.weight * (count_spread(nets, assignment, num_parts) - 1)).sum())


def count_spread(nets: Nets, assignment: np.ndarray, num_parts: int) -> np.ndarray:
    """λ_j of every net, int64, in one pass over the pins and with two integers per net."""
    vertices, _ = list_members(assignment, num_parts)
    spread = np.zeros(nets.num_nets, np.int64)
    _count_spread(nets, assignment, vertices, spread)
    return spread


def count_pins(
    nets: Nets, assignment: np.ndarray, weights: np.ndarray, num_parts: int, with_messages: bool
) -> tuple[Counts, Loads]:
    """Counts and loads of a partition. With messages a table of parts × parts is kept too."""
    counts = make_counts(np.bincount(nets.nets, minlength=nets.num_nets), num_parts)
    loads = Loads(
        np.zeros(num_parts, np.int64),
        np.zeros(num_parts, np.int64),
        np.bincount(assignment, weights, minlength=num_parts).astype(np.int64),
        np.zeros((num_parts, num_parts) if with_messages else (0, 0), np.int32),
    )
    _count_all(nets, assignment, num_parts, counts, loads)
    return counts, loads


def make_counts(pins: np.ndarray, num_parts: int) -> Counts:
    """Zero counts for nets with at most `pins` pins each."""
    is_table = pins * ROOM >= num_parts
    start = np.zeros(len(pins) + 1, np.int64)
    np.cumsum(np.where(is_table, num_parts, np.minimum(pins, num_parts) + 1), out=start[1:])
    return Counts(
        start,
        is_table,
        np.zeros(len(pins), np.int32),
        np.zeros(start[-1], np.int32),
        np.zeros(start[-1], np.int32),
        np.zeros(len(pins), np.int32),
    )


@kernel
def _count_spread(nets, assignment, vertices, spread):
    """Vertices come part by part, so it is enough to know which part was last seen in a net."""
    last = np.full(len(spread), -1, np.int32)
    for v in vertices:
        p = assignment[v]
        for k in range(nets.indptr[v], nets.indptr[v + 1]):
            j = nets.nets[k]
            spread[j] += last[j] != p
            last[j] = p


@kernel
def _count_all(nets, assignment, num_parts, counts, loads):
    for v in range(len(nets.indptr) - 1):
        for k in range(nets.indptr[v], nets.indptr[v + 1]):
            add_pin(counts, nets.nets[k], assignment[v])
    for j in range(len(nets.owner)):
        owner = assignment[nets.owner[j]]
        loads.send[owner] += nets.weight[j] * (counts.spread[j] - 1)
        add_receivers(counts, loads, num_parts, j, owner, nets.weight[j])


@kernel
def get_count(counts, j, p):
    """Pins of net `j` in part `p`."""
    first = counts.start[j]
    if counts.is_table[j]:
        return counts.counts[first + p]
    for t in range(first, first + counts.size[j]):
        if counts.parts[t] == p:
            return counts.counts[t]
    return 0


@kernel
def add_pin(counts, j, p):
    """Add a pin of net j in part p; returns whether it is the first there."""
    first = counts.start[j]
    if counts.is_table[j]:
        counts.counts[first + p] += 1
        if counts.counts[first + p] == 1:
            counts.spread[j] += 1
            return True
        return False
    end = first + counts.size[j]
    for t in range(first, end):
        if counts.parts[t] == p:
            counts.counts[t] += 1
            return False
    counts.parts[end] = p
    counts.counts[end] = 1
    counts.size[j] += 1
    counts.spread[j] += 1
    return True


@kernel
def drop_pin(counts, j, p):
    """Remove a pin of net j in part p; returns whether it was the last there."""
    first = counts.start[j]
    if counts.is_table[j]:
        counts.counts[first + p] -= 1
        if counts.counts[first + p] == 0:
            counts.spread[j] -= 1
            return True
        return False
    end = first + counts.size[j]
    for t in range(first, end):
        if counts.parts[t] == p:
            counts.counts[t] -= 1
            if counts.counts[t] == 0:
                counts.parts[t] = counts.parts[end - 1]
                counts.counts[t] = counts.counts[end - 1]
                counts.size[j] -= 1
                counts.spread[j] -= 1
                return True
            return False
    return False


@kernel
def add_receivers(counts, loads, num_parts, j, owner, weight):
    """Add `weight`, which may be negative, to the rows that every part of net j except its owner's receives."""
    first = counts.start[j]
    for t in range(first, first + (num_parts if counts.is_table[j] else counts.size[j])):
        p = t - first if counts.is_table[j] else counts.parts[t]
        if p != owner and counts.counts[t] > 0:
            loads.receive[p] += weight
            if len(loads.rows):
                loads.rows[owner, p] += weight


@kernel
def move_vertex(nets, counts, loads, num_parts, assignment, weights, v, b):
    """Move vertex v to part b and update all counts. Cost: its nets, and the spread of its own."""
    a = assignment[v]
    for k in range(nets.indptr[v], nets.indptr[v + 1]):
        j = nets.nets[k]
        w = nets.weight[j]
        if nets.owner[j] == v:  # its rows now have another sender
            loads.send[a] -= w * (counts.spread[j] - 1)
            add_receivers(counts, loads, num_parts, j, a, -w)
            drop_pin(counts, j, a)
            add_pin(counts, j, b)
            loads.send[b] += w * (counts.spread[j] - 1)
            add_receivers(counts, loads, num_parts, j, b, w)
            continue
        o = assignment[nets.owner[j]]
        if drop_pin(counts, j, a):
            loads.send[o] -= w
            loads.receive[a] -= w
            if len(loads.rows):
                loads.rows[o, a] -= w
        if add_pin(counts, j, b):
            loads.send[o] += w
            loads.receive[b] += w
            if len(loads.rows):
                loads.rows[o, b] += w
    assignment[v] = b
    loads.weight[a] -= weights[v]
    loads.weight[b] += weights[v]
