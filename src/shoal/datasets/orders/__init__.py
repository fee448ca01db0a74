"""Node orders, one file each; `shoal.datasets.reorder` renumbers a graph by one of them.

@ORDERS.named("mine")
def order_mine(graph: Graph, *, step: Annotated[int, AtLeast(1), "…"] = 1) -> np.ndarray:
    return np.argsort(...)  # the nodes, first to last
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from shoal.registry import Registry

if TYPE_CHECKING:
    import numpy as np

Order: TypeAlias = "Callable[..., np.ndarray]"

ORDERS: Registry[Order] = Registry("order", "shoal.datasets.orders")
