"""The order `parts`: the parts of a partition one after the other."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from shoal.datasets.orders import ORDERS
from shoal.datasets.orders.rcm import order_by_rcm
from shoal.graph import Graph
from shoal.settings import AtLeast, Null, Seed, check_settings

_NODES_A_PART = 4096


@ORDERS.named("parts")
@check_settings
def order_by_parts(
    graph: Graph,
    *,
    parts: Annotated[int | None, AtLeast(2), Null("one for every 4096 nodes"), "number of parts"] = None,
    method: Annotated[str, "partition method"] = "metis",
    seed: Seed = 0,
) -> np.ndarray:
    """The parts of a METIS partition one after the other, each in the order of `rcm`."""
    from shoal.partitioning.partition import partition_graph

    count = min(parts or max(graph.num_nodes // _NODES_A_PART, 2), graph.num_nodes)
    found = partition_graph(graph, count, method, balance="nodes", imbalance=0.05, seed=seed)
    order = order_by_rcm(graph)
    return order[np.argsort(found.assignment[order], kind="stable")]
