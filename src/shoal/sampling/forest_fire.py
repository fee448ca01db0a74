"""ForestFireSampler: fires that spread to a random number of neighbours until enough nodes have burnt."""

import math
from typing import Annotated

import numpy as np

from shoal.graph import Graph
from shoal.kernels.bits import is_marked, mark, take_marked
from shoal.kernels.jit import kernel
from shoal.rng import below, key, random_u64, uniform
from shoal.sampling.base import SAMPLERS, Budget, Coverage, Sampler, TrainingGraph
from shoal.settings import Range, Seed, check_settings

_TRIES = 8
_PROBABILITY = Range(0, 1, open_low=True, open_high=True, said="a probability between 0 and 1")


@SAMPLERS.register
class ForestFireSampler(Sampler):
    """The subgraph induced by `budget` burnt nodes.

    A fire starts at a uniformly drawn node. Nodes burn in the order in which they caught fire; a burning
    node draws x with `P(x = j) = (1 - p) p^j`, p the `burning` probability (mean p / (1 - p)), and sets alight x of
    the unburnt nodes it aggregates from, drawn uniformly without replacement (all, if fewer are
    left). A fire that has gone out is lit again at a uniformly drawn unburnt node. A budget above the number of nodes
    is reduced to it, with a notice.

    Cost: O(budget) draws, and a scan of a row in which most nodes have burnt; then the total degree of the
    nodes to induce.
    """

    name = "forest-fire"
    needs_edges = True

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        budget: Budget = 8000,
        burning: Annotated[
            float,
            _PROBABILITY,
            "p of the geometric number of neighbours a node sets alight, p / (1 - p) on average",
        ] = 0.7,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.budget = self.clip_to_graph("budget", budget)
        self.burning = burning

    def draw_nodes(self, k: int) -> np.ndarray:
        graph, log_burning = self.graph, math.log(self.burning)
        nodes: np.ndarray
        with self.borrow_bitmap() as bitmap:
            nodes = _burn(graph.indptr, graph.indices, self.budget, log_burning, self.seed, k, bitmap)
        return nodes


@kernel
def _burn(indptr, indices, budget, log_burning, seed, k, bitmap):
    stream = key(seed, k)
    n = len(indptr) - 1
    queue = np.empty(budget, np.int64)
    count, burning, counter = 0, 0, 0
    while count < budget:
        if burning == count:
            v = _draw_unburnt(n, stream, counter, count, bitmap)
            counter += _TRIES + 1
            mark(bitmap, v)
            queue[count] = v
            count += 1
            continue
        u = queue[burning]
        burning += 1
        unit = 1.0 - uniform(random_u64(stream, counter))
        counter += 1
        spread = min(np.int64(math.log(unit) / log_burning), budget - count)
        row = indices[indptr[u] : indptr[u + 1]]
        if len(row) == 0:
            continue
        tries = 0
        while spread > 0 and tries < _TRIES:
            v = np.int64(row[below(random_u64(stream, counter), len(row))])
            counter += 1
            tries += 1
            if mark(bitmap, v):
                queue[count] = v
                count += 1
                spread -= 1
                tries = 0
        if spread > 0:  # most of the row has burnt: list the rest and draw from it
            left = np.empty(len(row), np.int64)
            num_left = 0
            for j in range(len(row)):
                left[num_left] = row[j]
                num_left += not is_marked(bitmap, row[j])
            for j in range(min(spread, num_left)):
                pick = j + below(random_u64(stream, counter), num_left - j)
                counter += 1
                left[j], left[pick] = left[pick], left[j]
                mark(bitmap, left[j])
                queue[count] = left[j]
                count += 1
    return take_marked(bitmap, count)


@kernel
def _draw_unburnt(n, stream, counter, num_burnt, bitmap):
    """A uniformly random unburnt node: by a few tries, then by counting unburnt nodes."""
    for j in range(_TRIES):
        v = below(random_u64(stream, counter + j), n)
        if not is_marked(bitmap, v):
            return v
    rank = below(random_u64(stream, counter + _TRIES), n - num_burnt)
    for v in range(n):
        if not is_marked(bitmap, v):
            if rank == 0:
                return v
            rank -= 1
    return -1
