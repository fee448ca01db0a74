"""The order `communities`: groups found by label propagation."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from shoal.datasets.orders import ORDERS
from shoal.datasets.orders.rcm import both_ways, order_by_rcm
from shoal.graph import Graph
from shoal.kernels.order import propagate_labels
from shoal.progress import follow_work
from shoal.settings import AtLeast, check_settings

_NODES_AT_ONCE = 1 << 16


@ORDERS.named("communities")
@check_settings
def order_by_communities(
    graph: Graph,
    *,
    most: Annotated[int, AtLeast(2), "nodes of a community, at most"] = 4096,
    sweeps: Annotated[int, AtLeast(1), "sweeps of label propagation"] = 8,
) -> np.ndarray:
    """Communities by label propagation, in the order in which `rcm` first reaches them; nodes inside each by `rcm`."""
    indptr, indices = both_ways(graph)
    n = graph.num_nodes
    labels, sizes, near = np.arange(n, dtype=np.int32), np.ones(n, np.int32), np.zeros(n, np.int32)
    for sweep in range(sweeps):
        changed = 0
        for start in range(0, n, _NODES_AT_ONCE):
            stop = min(start + _NODES_AT_ONCE, n)
            changed += propagate_labels(indptr, indices, start, stop, most, labels, sizes, near)
            follow_work("finding communities", sweep * n + stop, sweeps * n)
        if changed <= n // 100:
            break
    return gather_groups(order_by_rcm(graph), labels, n)


def gather_groups(order: np.ndarray, groups: np.ndarray, num_groups: int) -> np.ndarray:
    """`order` with the nodes of each group together; groups are ordered by their first node."""
    place = np.full(num_groups, len(order), np.int64)
    np.minimum.at(place, groups[order], np.arange(len(order)))
    return order[np.argsort(place[groups[order]], kind="stable")]
