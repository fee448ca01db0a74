"""The order `rcm`: reverse Cuthill-McKee."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from shoal.conversion import build_pattern
from shoal.datasets.orders import ORDERS
from shoal.graph import Graph
from shoal.kernels.order import visit_breadth_first
from shoal.progress import follow_work

_NODES_AT_ONCE = 1 << 16


@ORDERS.named("rcm")
def order_by_rcm(graph: Graph) -> np.ndarray:
    """Reverse Cuthill-McKee: breadth first from nodes of low degree, neighbours by increasing degree, reversed."""
    indptr, indices = both_ways(graph)
    n, degree = graph.num_nodes, np.diff(indptr)
    order, seen, state = np.empty(n, np.int32), np.zeros(n, np.bool_), np.zeros(3, np.int64)
    starts = np.argsort(degree, kind="stable").astype(np.int32)
    for stop in range(0, n + _NODES_AT_ONCE, _NODES_AT_ONCE):
        visit_breadth_first(indptr, indices, degree, starts, order, seen, state, min(stop, n))
        follow_work("ordering nodes", int(state[0]), n)
    return order[::-1]


def both_ways(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """The pattern with the reverse of every arc added."""
    if not graph.directed:
        return graph.indptr, graph.indices
    return build_pattern(list_arcs(graph), graph.num_nodes, False, graph.num_entries)[:2]


def list_arcs(graph: Graph) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(sources, targets) of the arcs, some rows at a time."""
    for start in range(0, graph.num_nodes, _NODES_AT_ONCE):
        ends = graph.indptr[start : start + _NODES_AT_ONCE + 1]
        rows = np.repeat(np.arange(start, start + len(ends) - 1, dtype=np.int32), np.diff(ends))
        yield graph.indices[ends[0] : ends[-1]], rows
