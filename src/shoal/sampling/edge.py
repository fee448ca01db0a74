"""EdgeSampler: the subgraph induced by the ends of independently drawn edges."""

from typing import Annotated

import numpy as np

from shoal.graph import Graph
from shoal.kernels.bits import mark, take_marked
from shoal.kernels.jit import kernel
from shoal.rng import below, key, random_u64
from shoal.sampling.alias import build_alias, draw_alias
from shoal.sampling.base import SAMPLERS, Count, Coverage, Sampler, TrainingGraph
from shoal.settings import Seed, check_settings


@SAMPLERS.register
class EdgeSampler(Sampler):
    """`num_edges` edges drawn independently with `p_uv ∝ 1/deg(u) + 1/deg(v)`; the batch is induced by their
    ends (GraphSAINT's edge sampler: an edge between two nodes of low degree matters most).

    On an undirected graph no table is needed: a node drawn uniformly among those with neighbours, then one
    of its neighbours uniformly, is edge {u, v} with probability `(1/deg(u) + 1/deg(v)) / n`. A self loop,
    which a row lists once, has weight 1/deg(u). On a directed graph arcs are drawn from an alias table, deg
    counting arcs in both directions.

    Inclusion is known exactly: with q_e the probability of an edge in one draw, `P_v = Σ_{e ∋ v} q_e` and B
    draws, `p_v = 1 - (1 - P_v)^B` and `p_uv = p_u + p_v - 1 + (1 - P_u - P_v + q_uv)^B`.

    Cost: O(num_edges + n/64) to draw, plus the total degree of the nodes to induce; a directed graph takes
    O(entries) time and memory once.
    """

    name = "edge"
    needs_edges = True

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        num_edges: Annotated[Count, "edges drawn for a batch; it holds their ends"] = 4000,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        coverage: Coverage = None,
    ) -> None:
        super().__init__(graph, setting=setting, seed=seed, coverage=coverage)
        self.num_edges = num_edges
        if self.graph.directed:
            self._table = build_alias(self._entry_weights())
            self._rows = self._entry_rows().astype(self.graph.indices.dtype)
        else:
            self._connected = np.flatnonzero(self.graph.degree)

    def draw_nodes(self, k: int) -> np.ndarray:
        graph = self.graph
        nodes: np.ndarray
        with self.borrow_bitmap() as bitmap:
            last = (self.num_edges, self.seed, k, bitmap)
            if graph.directed:
                nodes = _draw_arcs(*self._table, self._rows, graph.indices, *last)
            else:
                nodes = _draw_edges(graph.indptr, graph.indices, self._connected, *last)
        return nodes

    def edge_probabilities(self) -> np.ndarray:
        """The probability of every entry in one draw, (num_entries,); an undirected edge is two entries."""
        weights = self._entry_weights()
        probabilities: np.ndarray = weights / weights.sum()
        return probabilities

    def inclusion_probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        n, rows, columns = self.graph.num_nodes, self._entry_rows(), self.graph.indices.astype(np.int64)
        q = self.edge_probabilities()
        loop = rows == columns
        hit = np.bincount(rows, q, n) + np.bincount(columns[~loop], q[~loop], n)
        left_out = np.maximum(1 - hit, 0) ** self.num_edges
        pair = rows * n + columns  # increasing, since rows and their columns are
        mirror = columns * n + rows
        place = np.minimum(np.searchsorted(pair, mirror), len(pair) - 1)
        q_uv = q + np.where((pair[place] == mirror) & ~loop, q[place], 0)
        neither = np.maximum(1 - hit[rows] - hit[columns] + q_uv, 0) ** self.num_edges
        both = 1 - left_out[rows] - left_out[columns] + neither
        return 1 - left_out, np.where(loop, 1 - left_out[rows], both)

    def _entry_rows(self) -> np.ndarray:
        return np.repeat(np.arange(self.graph.num_nodes), self.graph.degree)

    def _entry_weights(self) -> np.ndarray:
        graph = self.graph
        if not graph.directed:
            return np.repeat(1.0 / np.maximum(graph.degree, 1), graph.degree)
        inverse = 1.0 / np.maximum(graph.degree + np.bincount(graph.indices, minlength=graph.num_nodes), 1)
        weights: np.ndarray = inverse[self._entry_rows()] + inverse[graph.indices]
        return weights


@kernel
def _draw_edges(indptr, indices, connected, num_edges, seed, k, bitmap):
    stream = key(seed, k)
    count = 0
    for i in range(num_edges):
        u = connected[below(random_u64(stream, 2 * i), len(connected))]
        start = indptr[u]
        v = indices[start + below(random_u64(stream, 2 * i + 1), indptr[u + 1] - start)]
        count += mark(bitmap, u) + mark(bitmap, v)
    return take_marked(bitmap, count)


@kernel
def _draw_arcs(threshold, other, rows, indices, num_edges, seed, k, bitmap):
    stream = key(seed, k)
    count = 0
    for i in range(num_edges):
        e = draw_alias(threshold, other, stream, 2 * i)
        count += mark(bitmap, rows[e]) + mark(bitmap, indices[e])
    return take_marked(bitmap, count)
