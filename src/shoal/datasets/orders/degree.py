"""The order `degree`: hubs first."""

from __future__ import annotations

import numpy as np

from shoal.datasets.orders import ORDERS
from shoal.graph import Graph
from shoal.kernels.csr import count_rows


@ORDERS.named("degree")
def order_by_degree(graph: Graph) -> np.ndarray:
    """Descending number of nodes that aggregate from a node, so that the most used feature rows lie together."""
    readers = np.zeros(graph.num_nodes + 1, np.int64)
    count_rows(graph.indices, readers)
    return np.argsort(-readers[1:], kind="stable")
