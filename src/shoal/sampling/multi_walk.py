"""MultiRandomWalkSampler: independent walkers that step in turn until enough nodes are visited."""

from typing import Annotated

import numpy as np

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.bits import mark, take_marked
from shoal.kernels.jit import kernel
from shoal.rng import below, key, random_u64
from shoal.sampling.base import SAMPLERS, Budget, Count, Coverage, Sampler, TrainingGraph
from shoal.sampling.frontier_methods.start import draw_frontier, step
from shoal.settings import Seed, check_settings

STEPS_PER_NODE = 20


@SAMPLERS.register
class MultiRandomWalkSampler(Sampler):
    """`walkers` distinct nodes drawn uniformly; the walkers step in turn, each to a uniformly random node that its
    current node aggregates from, until `budget` distinct nodes are visited.

    Unlike in frontier sampling all walkers move equally often, so hubs are visited more often.
    A walker at a node without neighbours restarts at a uniformly drawn node. A batch ends after 20·budget steps
    if small components cannot fill it. A budget above the number of nodes is reduced to it, with a notice.

    Cost: O(steps + n/64) to draw, plus the total degree of the nodes to induce.
    """

    name = "multi-random-walk"
    needs_edges = True

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        budget: Budget = 8000,
        walkers: Annotated[Count, "walkers that step in turn, at most budget"] = 1000,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        if walkers > budget:
            raise ShoalError(f"walkers is {walkers:,} but budget is {budget:,}: expected walkers ≤ budget")
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.budget = self.clip_to_graph("budget", budget)
        self.walkers = min(walkers, self.budget)

    def draw_nodes(self, k: int) -> np.ndarray:
        nodes: np.ndarray
        with self.borrow_bitmap() as bitmap:
            nodes = _walk_in_turn(
                self.graph.indptr, self.graph.indices, self.walkers, self.budget, self.seed, k, bitmap
            )
        return nodes


@kernel
def _walk_in_turn(indptr, indices, num_walkers, budget, seed, k, bitmap):
    stream = key(seed, k)
    walkers = draw_frontier(len(indptr) - 1, num_walkers, stream, bitmap)
    for i in range(num_walkers - 1, 0, -1):  # so far only the set is random, not its order
        j = below(random_u64(stream, num_walkers + i), i + 1)
        walkers[i], walkers[j] = walkers[j], walkers[i]
    count, steps = num_walkers, 0
    while count < budget and steps < STEPS_PER_NODE * budget:
        i = steps % num_walkers
        walkers[i] = step(indptr, indices, walkers[i], random_u64(stream, 2 * num_walkers + steps))
        count += mark(bitmap, walkers[i])
        steps += 1
    return take_marked(bitmap, count)
