"""RandomWalkSampler: the subgraph induced by the nodes that short random walks visit."""

from typing import Annotated

import numpy as np

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.bits import mark, prefetch, take_marked
from shoal.kernels.jit import kernel
from shoal.rng import below, key, random_u64
from shoal.sampling.base import SAMPLERS, Count, Coverage, Sampler, TrainingGraph
from shoal.settings import Seed, check_settings


@SAMPLERS.register
class RandomWalkSampler(Sampler):
    """`roots` training nodes drawn uniformly with replacement, a walk of `depth` steps from each; the batch
    is the subgraph induced by all nodes visited (GraphSAINT's RW sampler).

    A step goes to a uniformly random node that the current one aggregates from. A walk that reaches a node
    without any (a sink of a directed graph, an isolated node) ends there.

    Cost: O(roots · depth + n/64) to draw, plus the total degree of the nodes to induce.
    """

    name = "random-walk"
    needs_edges = True

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        roots: Annotated[Count, "walks started in a batch"] = 3000,
        depth: Annotated[Count, "steps of a walk"] = 2,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.roots = roots
        self.depth = depth
        mask = self.graph.train_mask
        self._root_nodes = np.arange(self.graph.num_nodes) if mask is None else np.flatnonzero(mask)
        if len(self._root_nodes) == 0:
            raise ShoalError(f"the training graph of {graph.name!r} has no training nodes to walk from")

    def draw_nodes(self, k: int) -> np.ndarray:
        graph = self.graph
        nodes: np.ndarray
        with self.borrow_bitmap() as bitmap:
            nodes = _walk(
                graph.indptr, graph.indices, self._root_nodes, self.roots, self.depth, self.seed, k, bitmap
            )
        return nodes


@kernel
def _walk(indptr, indices, root_nodes, roots, depth, seed, k, bitmap):
    """All walks take a step before any takes the next, and what a step reads is prefetched: cache misses overlap."""
    stream = key(seed, k)
    at = np.empty(roots, np.int64)
    place = np.empty(roots, np.int64)
    count = 0
    for i in range(roots):
        at[i] = root_nodes[below(random_u64(stream, i * (depth + 1)), len(root_nodes))]
        prefetch(indptr, at[i])
        count += mark(bitmap, at[i])
    walking = roots
    walk = np.arange(roots)
    for step in range(1, depth + 1):
        still = 0
        for w in range(walking):
            i = walk[w]
            start = indptr[np.uint64(at[i])]
            degree = indptr[np.uint64(at[i]) + np.uint64(1)] - start
            if degree > 0:
                place[still] = start + below(random_u64(stream, i * (depth + 1) + step), degree)
                prefetch(indices, place[still])
                walk[still] = i
                still += 1
        walking = still
        for w in range(walking):
            node = np.int64(indices[np.uint64(place[w])])
            at[walk[w]] = node
            prefetch(indptr, node)
            count += mark(bitmap, node)
    return take_marked(bitmap, count)
