"""FrontierSampler: m walkers, of which the one at a node of high degree moves first (multidimensional walk)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from shoal.checks import check_positive
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.kernels.bits import take_marked
from shoal.rng import key
from shoal.sampling.base import Sampler
from shoal.sampling.frontier_methods.buckets import draw_by_buckets
from shoal.sampling.frontier_methods.clocks import draw_by_clocks
from shoal.sampling.frontier_methods.dashboard import draw_by_dashboard
from shoal.sampling.frontier_methods.fenwick import draw_by_fenwick

POPS_PER_NODE = 20
_DRAWS: dict[str, Callable[..., Any]] = {
    "clocks": draw_by_clocks,
    "dashboard": draw_by_dashboard,
    "buckets": draw_by_buckets,
    "fenwick": draw_by_fenwick,
}


class FrontierSampler(Sampler):
    """The subgraph induced by `budget` nodes that a frontier of walkers visits (IPDPS'19, JPDC'21 §4).

    A frontier of `frontier` distinct nodes is drawn uniformly; all of them are in the batch. Then, until the
    batch has `budget` distinct nodes: pop u from the frontier with probability w(u) / Σ w, replace it by a
    uniformly random node u' that u aggregates from, and put u' into the batch.
    `w(v) = min(max(deg(v), 1), pin_cap)`. A node that aggregates from nobody is popped with weight 1 and
    replaced by a uniformly drawn node.

    Args:
        budget: nodes in a batch. More than the graph has is taken for all of them, with a notice.
        frontier: walkers, at most `budget`.
        visits: end a batch after so many visits, the walkers' first nodes counted, however few nodes these reach, and
            not by `budget`; GraphSAINT's budget is meant so.
        method: how pops are drawn, one of `METHODS`; the law is the same, the batches are not.
        eta: the Dashboard's length over the frontier's expected weight; a larger board is compacted less often.
        pin_cap: largest weight of a node, None for no limit. 30 is usual on skewed graphs.

    Components smaller than the budget cannot fill it: a batch ends after 20·budget pops, with fewer nodes.
    With `visits` it ends when the graph has no more nodes, at the latest.

    Cost: O(pops) with clocks, plus the total degree of the batch's nodes to induce.
    """

    name = "frontier"
    METHODS: ClassVar[tuple[str, ...]] = tuple(_DRAWS)

    def __init__(
        self,
        graph: Graph,
        budget: int = 8000,
        frontier: int = 1000,
        *,
        visits: int | None = None,
        method: str = "clocks",
        eta: float = 2.0,
        pin_cap: int | None = None,
        setting: str = "transductive",
        seed: int = 0,
        coverage: int | None = None,
    ) -> None:
        unit, most = ("budget", budget) if visits is None else ("visits", visits)
        check_positive(**{unit: most}, frontier=frontier)
        if pin_cap is not None:
            check_positive(pin_cap=pin_cap)
        if method not in _DRAWS:
            raise unknown_name("method", method, _DRAWS)
        if not 1 <= eta <= 100:
            raise ShoalError(f"eta is {eta!r}: expected an enlargement from 1 to 100")
        if frontier > most:
            raise ShoalError(f"frontier is {frontier:,} but {unit} is {most:,}: expected frontier ≤ {unit}")
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.require_edges()
        self.visits = visits
        self.budget = self.clip_to_graph("budget", budget) if visits is None else budget
        self.frontier = min(frontier, self._most_nodes)
        self.method = method
        self.eta = eta
        self.pin_cap = pin_cap
        self._cap = np.iinfo(np.int64).max if pin_cap is None else pin_cap
        self._board: tuple[int, ...] = ()
        if method == "dashboard":
            mean_weight = float(np.clip(self.graph.degree, 1, self._cap).mean())
            self._board = (max(int(eta * self.frontier * mean_weight), 2 * self.frontier),)

    @property
    def _most_nodes(self) -> int:
        return self.budget if self.visits is None else min(self.visits, self.graph.num_nodes)

    @property
    def _most_pops(self) -> int:
        return POPS_PER_NODE * self.budget if self.visits is None else self.visits - self.frontier

    def draw_nodes(self, k: int) -> np.ndarray:
        return self.draw(k)[0]

    def draw(self, k: int) -> tuple[np.ndarray, int]:
        """Batch k's increasing nodes, and how many pops it took to find them."""
        with self.borrow_bitmap() as bitmap:
            count, pops = _DRAWS[self.method](
                self.graph.indptr,
                self.graph.indices,
                self._cap,
                self.frontier,
                self._most_nodes,
                self._most_pops,
                np.uint64(key(self.seed, k)),
                bitmap,
                *self._board,
            )
            nodes = take_marked(bitmap, count)
        return nodes, pops
