"""FrontierSampler: m walkers, the next to move drawn by degree (multidimensional random walk)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.bits import take_marked
from shoal.rng import key
from shoal.sampling.base import COUNT, SAMPLERS, Budget, Count, Coverage, Sampler, TrainingGraph
from shoal.sampling.frontier_methods.start import FRONTIER_METHODS
from shoal.settings import Choices, Null, Range, Seed, check_settings

POPS_PER_NODE = 20


@SAMPLERS.register
class FrontierSampler(Sampler):
    """The subgraph induced by `budget` nodes that a frontier of walkers visits (IPDPS'19, JPDC'21 §4).

    A frontier of `frontier` distinct nodes is drawn uniformly; all of them are in the batch. Then, until the
    batch has `budget` distinct nodes: pop u from the frontier with probability w(u) / Σ w, replace it by a
    uniformly random node u' that u aggregates from, and put u' into the batch.
    `w(v) = min(max(deg(v), 1), pin_cap)`. A node without neighbours is popped with weight 1 and
    replaced by a uniformly drawn node.

    Components smaller than the budget cannot fill it: a batch ends after 20·budget pops, with fewer nodes.
    With `visits` it ends at the latest when all nodes of the graph are in it.

    Cost: O(pops) with clocks, plus the total degree of the batch's nodes to induce.
    """

    name = "frontier"
    needs_edges = True
    METHODS: ClassVar[Mapping[str, Callable[..., Any]]] = FRONTIER_METHODS

    @check_settings
    def __init__(
        self,
        graph: Graph,
        budget: Budget = 8000,
        frontier: Annotated[Count, "walkers, at most budget"] = 1000,
        *,
        visits: Annotated[
            int | None,
            COUNT,
            Null("ending by budget"),
            "end a batch after this many visits instead, the first frontier included (GraphSAINT's budget)",
        ] = None,
        method: Annotated[
            str, Choices(FRONTIER_METHODS), "how pops are drawn; batches differ, their distribution does not"
        ] = "clocks",
        eta: Annotated[
            float,
            Range(1, 100),
            "length of the Dashboard over the frontier's expected weight; a longer one is compacted less often",
        ] = 2.0,
        pin_cap: Annotated[
            int | None, COUNT, Null("no limit"), "largest weight of a node; 30 is usual on skewed graphs"
        ] = None,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        unit, most = ("budget", budget) if visits is None else ("visits", visits)
        if frontier > most:
            raise ShoalError(f"frontier is {frontier:,} but {unit} is {most:,}: expected frontier ≤ {unit}")
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.visits = visits
        self.budget = self.clip_to_graph("budget", budget) if visits is None else budget
        self.frontier = min(frontier, self._most_nodes)
        self.method = method
        self.eta = eta
        self.pin_cap = pin_cap
        self._pop = FRONTIER_METHODS[method]
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
        """Batch k's increasing nodes, and the number of pops.

        Args:
            k: number of the batch.
        """
        with self.borrow_bitmap() as bitmap:
            count, pops = self._pop(
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
