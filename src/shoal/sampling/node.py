"""NodeSampler: the subgraph induced by independently drawn nodes, important ones more often."""

from typing import Annotated

import numpy as np

from shoal.graph import Graph
from shoal.kernels.bits import mark, take_marked
from shoal.kernels.jit import kernel
from shoal.rng import key
from shoal.sampling.alias import build_alias, draw_alias
from shoal.sampling.base import SAMPLERS, Count, Coverage, Sampler, TrainingGraph
from shoal.settings import Seed, check_settings


@SAMPLERS.register
class NodeSampler(Sampler):
    """`budget` nodes drawn independently with `p_v ∝ ‖Â_:,v‖²`, repeats merged (GraphSAINT's node sampler).

    `Â = D̃^-½ (A + I) D̃^-½`, so the weight is `Σ_u 1 / ((d_u + 1)(d_v + 1))` over v and the nodes u that
    aggregate from v; no node has weight 0. Inclusion probabilities are known exactly: with the draw's
    probability q, `p_v = 1 - (1 - q_v)^B` and `p_uv = p_u + p_v - 1 + (1 - q_u - q_v)^B`.

    Cost: O(n + entries) once, O(budget + n/64) to draw, plus the total degree of the nodes to induce.
    """

    name = "node"

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        budget: Annotated[
            Count, "nodes drawn for a batch, repeats merged; at most as many as the training graph has"
        ] = 8000,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.budget = self.clip_to_graph("budget", budget)
        weights = np.zeros(self.graph.num_nodes)
        _sum_squares(self.graph.indptr, self.graph.indices, weights)
        self._probability = weights / weights.sum()
        self._table = build_alias(weights)

    def draw_nodes(self, k: int) -> np.ndarray:
        nodes: np.ndarray
        with self.borrow_bitmap() as bitmap:
            nodes = _draw_nodes(*self._table, self.budget, self.seed, k, bitmap)
        return nodes

    def inclusion_probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        q = self._probability
        with np.errstate(divide="ignore"):  # log(1 - 1): a node that is always drawn
            drawn = -np.expm1(self.budget * np.log1p(-q))
            rows = np.repeat(np.arange(self.graph.num_nodes), self.graph.degree)
            columns = self.graph.indices
            either = -np.expm1(self.budget * np.log1p(-np.minimum(q[rows] + q[columns], 1)))
        both = drawn[rows] + drawn[columns] - either
        return drawn, np.where(rows == columns, drawn[rows], both)


@kernel
def _sum_squares(indptr, indices, weights):
    n = len(indptr) - 1
    for v in range(n):
        weights[v] = 1.0 / (indptr[v + 1] - indptr[v] + 1) ** 2
    for u in range(n):
        for k in range(indptr[u], indptr[u + 1]):
            v = indices[k]
            if v != u:
                weights[v] += 1.0 / ((indptr[u + 1] - indptr[u] + 1) * (indptr[v + 1] - indptr[v] + 1))


@kernel
def _draw_nodes(threshold, other, budget, seed, k, bitmap):
    stream = key(seed, k)
    count = 0
    for i in range(budget):
        count += mark(bitmap, draw_alias(threshold, other, stream, 2 * i))
    return take_marked(bitmap, count)
