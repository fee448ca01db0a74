"""ImportanceSampler: layer-wise importance sampling, a fixed number of nodes drawn for each layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, NamedTuple

import numpy as np

from shoal.graph import Graph
from shoal.kernels.entry_weights import take_weights
from shoal.kernels.jit import kernel
from shoal.rng import key
from shoal.sampling.alias import build_alias, draw_alias
from shoal.sampling.base import Count, TrainingGraph
from shoal.sampling.layered import Grown, LayeredSampler, NumLayers, sort_row
from shoal.sampling.targets import BatchSize
from shoal.settings import Seed, check_settings

LayerSize = Annotated[Count, "nodes drawn for each layer"]
_NO_TABLE = (np.empty(0, np.float32), np.empty(0, np.int32))


class Distribution(NamedTuple):
    """q ∝ `weights` over the nodes in `candidates`, over all nodes if None; `table` draws from it."""

    weights: np.ndarray
    total: float
    table: tuple[np.ndarray, np.ndarray]
    candidates: np.ndarray | None


def make_distribution(weights: np.ndarray, candidates: np.ndarray | None = None) -> Distribution:
    """A distribution proportional to `weights`, with an alias table to draw from."""
    table = build_alias(weights) if len(weights) else _NO_TABLE
    return Distribution(weights, float(weights.sum()), table, candidates)


class ImportanceSampler(LayeredSampler):
    """For each layer `layer_size` nodes drawn independently from a distribution q that a subclass chooses.

    An entry (u, v) is kept if v was drawn, with its weight multiplied by `c_v / (layer_size · q_v)`, c_v
    the number of times v was drawn: an unbiased estimate of the full aggregation. A row's own node is always among the
    columns, and its self loop is always kept.

    A subclass that sets `row_normalize` scales the drawn entries of a row to its degree: the weights of mean aggregation
    then sum to 1 in every row with a drawn neighbour, as in the whole graph. It is a ratio of two unbiased estimates:
    biased, but with less variance.
    """

    row_normalize = False

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: BatchSize = 1000,
        layer_size: LayerSize = 4000,
        num_layers: NumLayers = 2,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
    ) -> None:
        super().__init__(graph, batch_size=batch_size, num_layers=num_layers, setting=setting, seed=seed)
        self.layer_size = layer_size

    def find_candidates(self, add: Callable[[np.ndarray], None]) -> tuple[np.ndarray, np.ndarray]:
        """(weights, nodes) of the nodes to which `add` gives a weight, in increasing order.

        Args:
            add: adds to an array of zeros, one for each node.
        """
        with self.borrow_factor() as sums:
            add(sums)
            candidates = np.flatnonzero(sums)
            found: np.ndarray = sums[candidates]
            sums[candidates] = 0
        return found, candidates

    def draw_columns(self, nodes: np.ndarray, layer: int, k: int, law: Distribution) -> Grown:
        """The block whose rows are `nodes`, its columns drawn from `law`.

        Args:
            nodes: rows of the block.
            layer: number of the layer, counted from the output.
            k: number of the batch.
            law: the distribution that columns are drawn from.
        """
        stream = np.uint64(key(self.seed, k))
        size, graph = self.layer_size, self.graph
        with self.borrow_factor() as factor:
            drawn = _draw_factors(
                *law.table, law.candidates, law.weights, law.total, size, stream, 2 * layer * size, factor
            )
            with self.borrow_numbers() as numbers:
                columns = _number_columns(nodes, drawn, numbers)
                indptr, indices, edge_norm = _keep_entries(
                    graph.indptr, graph.indices, nodes, numbers, factor
                )
                numbers[columns] = -1
            factor[drawn] = 0
        if self.row_normalize and graph.edge_weight is None:
            _normalize_rows(graph.indptr, nodes, indptr, indices, edge_norm)
        elif self.row_normalize:
            pattern = graph.indptr, graph.indices, graph.edge_weight
            weights = take_weights(*pattern, nodes, columns, indptr, indices)
            _normalize_weighted(graph.weighted_degree, nodes, indptr, indices, weights, edge_norm)
        return indptr, indices, columns, edge_norm


def find_column_norms(graph: Graph, rows: np.ndarray, weights: np.ndarray) -> None:
    """weights[v] += Σ Â_uv² over the rows u ≠ v that list v, Â = D̃^-½ (W + I) D̃^-½; without edge weights
    Â_uv² is 1 / ((d_u + 1)(d_v + 1))."""
    if graph.edge_weight is None:
        add_column_norms(graph.indptr, graph.indices, rows, weights)
    else:
        degree = graph.weighted_degree
        _add_weighted_norms(graph.indptr, graph.indices, graph.edge_weight, degree, rows, weights)


@kernel
def _add_weighted_norms(indptr, indices, edge_weight, degree, rows, weights):
    for i in range(len(rows)):
        u = rows[i]
        for k in range(indptr[u], indptr[u + 1]):
            v = indices[k]
            if v != u:
                weights[v] += edge_weight[k] ** 2 / ((degree[u] + 1.0) * (degree[v] + 1.0))


@kernel
def add_column_norms(indptr, indices, rows, weights):
    """weights[v] += Σ 1 / ((d_u + 1)(d_v + 1)) over the rows u ≠ v that list v."""
    for i in range(len(rows)):
        u = rows[i]
        for k in range(indptr[u], indptr[u + 1]):
            v = indices[k]
            if v != u:
                weights[v] += 1.0 / ((indptr[u + 1] - indptr[u] + 1.0) * (indptr[v + 1] - indptr[v] + 1.0))


@kernel
def _draw_factors(threshold, other, candidates, weights, total, layer_size, stream, counter, factor):
    """factor[v] = c_v / (layer_size · q_v) for drawn nodes; returns the distinct ones in drawing order."""
    drawn = np.empty(layer_size, np.int64)
    size = 0
    if len(threshold) == 0:
        return drawn[:0]
    for i in range(layer_size):
        slot = draw_alias(threshold, other, stream, counter + 2 * i)
        v = slot if candidates is None else candidates[slot]
        if factor[v] == 0:
            drawn[size] = v
            size += 1
        factor[v] += total / (layer_size * weights[slot])
    return drawn[:size]


@kernel
def _number_columns(nodes, others, numbers):
    """The rows' nodes, then those of `others` that are not among them; `numbers` maps nodes to positions."""
    columns = np.empty(len(nodes) + len(others), np.int64)
    for i in range(len(nodes)):
        columns[i] = nodes[i]
        numbers[nodes[i]] = i
    size = len(nodes)
    for i in range(len(others)):
        if numbers[others[i]] < 0:
            numbers[others[i]] = size
            columns[size] = others[i]
            size += 1
    return columns[:size]


@kernel
def _normalize_rows(indptr, nodes, sub_indptr, sub_indices, edge_norm):
    """Scale the factors of every row, without its self loop, to sum to the number of its neighbours."""
    for i in range(len(nodes)):
        neighbours = indptr[nodes[i] + 1] - indptr[nodes[i]]
        total = 0.0
        for k in range(sub_indptr[i], sub_indptr[i + 1]):
            if sub_indices[k] == i:
                neighbours -= 1
            else:
                total += edge_norm[k]
        for k in range(sub_indptr[i], sub_indptr[i + 1]):
            if sub_indices[k] != i:
                edge_norm[k] *= neighbours / total


@kernel
def _normalize_weighted(degree, nodes, sub_indptr, sub_indices, weights, edge_norm):
    """Scale the factors of every row, without its self loop: factors times weights sum to its neighbours' weights."""
    for i in range(len(nodes)):
        neighbours = degree[nodes[i]]
        total = 0.0
        for k in range(sub_indptr[i], sub_indptr[i + 1]):
            if sub_indices[k] == i:
                neighbours -= weights[k]
            else:
                total += edge_norm[k] * weights[k]
        for k in range(sub_indptr[i], sub_indptr[i + 1]):
            if sub_indices[k] != i:
                edge_norm[k] *= neighbours / total


@kernel
def _keep_entries(indptr, indices, nodes, numbers, factor):
    room = 0
    for i in range(len(nodes)):
        room += indptr[nodes[i] + 1] - indptr[nodes[i]]
    sub_indptr = np.zeros(len(nodes) + 1, np.int64)
    sub_indices = np.empty(room, np.int32)
    edge_norm = np.empty(room, np.float32)
    size = 0
    for i in range(len(nodes)):
        first = size
        for k in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            v = indices[k]
            if v == nodes[i] or factor[v] > 0:
                sub_indices[size] = numbers[v]
                edge_norm[size] = 1.0 if v == nodes[i] else factor[v]
                size += 1
        sort_row(sub_indices[first:size], edge_norm[first:size])
        sub_indptr[i + 1] = size
    return sub_indptr, sub_indices[:size].copy(), edge_norm[:size].copy()
