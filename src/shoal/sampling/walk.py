"""RandomWalkSampler: the subgraph induced by the nodes that short random walks visit."""

import numpy as np

from shoal.graph import Graph
from shoal.kernels.jit import kernel
from shoal.sampling.base import Sampler, check_positive
from shoal.sampling.rng import below, key, random_u64


class RandomWalkSampler(Sampler):
    """`roots` training nodes drawn uniformly with replacement, a walk of `depth` steps from each; the batch
    is the subgraph induced by all nodes visited (GraphSAINT's RW sampler).

    A step goes to a uniformly random node that the current one aggregates from. A walk that reaches a node
    without any (a sink of a directed graph, an isolated node) ends there.

    Cost: O(roots · depth · log) to draw, plus the total degree of the nodes to induce.
    """

    name = "random-walk"

    def __init__(
        self,
        graph: Graph,
        *,
        roots: int = 3000,
        depth: int = 2,
        setting: str = "transductive",
        seed: int = 0,
        coverage: int | None = None,
    ) -> None:
        check_positive(roots=roots, depth=depth)
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.require_edges()
        self.roots = roots
        self.depth = depth
        mask = self.graph.train_mask
        self._root_nodes = np.arange(self.graph.num_nodes) if mask is None else np.flatnonzero(mask)

    def draw_nodes(self, k: int) -> np.ndarray:
        nodes: np.ndarray = _walk(
            self.graph.indptr, self.graph.indices, self._root_nodes, self.roots, self.depth, self.seed, k
        )
        return nodes


@kernel
def _walk(indptr, indices, root_nodes, roots, depth, seed, k):
    stream = key(seed, k)
    visited = np.empty(roots * (depth + 1), np.int64)
    size = 0
    for i in range(roots):
        counter = i * (depth + 1)
        node = root_nodes[below(random_u64(stream, counter), len(root_nodes))]
        visited[size] = node
        size += 1
        for step in range(1, depth + 1):
            start = indptr[node]
            degree = indptr[node + 1] - start
            if degree == 0:
                break
            node = np.int64(indices[start + below(random_u64(stream, counter + step), degree)])
            visited[size] = node
            size += 1
    return np.unique(visited[:size])
