"""LayeredSampler: batches with one block per layer, grown from output nodes back to the input.

FastGCNSampler and LadiesSampler live here too: both draw a fixed number of nodes for each layer and keep
the edges between one layer's nodes and the next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from shoal.batch import Batch, Block, as_tensor
from shoal.checks import check_positive
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.jit import kernel
from shoal.rng import key, permute
from shoal.sampling.alias import build_alias, draw_alias
from shoal.sampling.base import Sampler
from shoal.sampling.normalize import Norms

_FIRST_ORDER = 1 << 62  # streams of the epochs' orders, apart from those of the batches

Grown = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class LayeredSampler(Sampler):
    """Batches of `batch_size` output nodes, each training node once an epoch in a new random order.

    A subclass says how a layer grows: from the nodes it computes to the pattern it reads and the nodes it
    reads from. Blocks are wide, their first columns are their rows, and they carry the training graph's
    degrees, so that `edge_norm` makes both mean and GCN aggregation unbiased.

    Args:
        num_layers: aggregations of the model; a batch has as many blocks.
    """

    draws_subgraphs = False

    def __init__(self, graph: Graph, *, batch_size: int, num_layers: int, setting: str, seed: int) -> None:
        check_positive(batch_size=batch_size, num_layers=num_layers)
        super().__init__(graph, setting=setting, seed=seed)
        self.require_edges()
        mask = self.graph.train_mask
        self._targets = np.arange(self.graph.num_nodes) if mask is None else np.flatnonzero(mask)
        self.batch_size = batch_size
        self.num_layers = num_layers
        self._order: tuple[int, np.ndarray] = (-1, self._targets)

    @abstractmethod
    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        """(indptr, indices, columns, edge_norm) of the block whose rows are `nodes`.

        `columns` begins with `nodes`; `indices` point into it, increasing within a row. `layer` counts from
        the output, 0 first.
        """

    def sample(self, k: int) -> Batch:
        """Batch number k: its blocks from the input to the output, its output nodes first."""
        nodes = self.draw_outputs(k)
        blocks: list[Block] = []
        for layer in range(self.num_layers):
            indptr, indices, columns, edge_norm = self.grow(nodes, layer, k)
            degree = self.graph.indptr[columns + 1] - self.graph.indptr[columns]
            block = Block(as_tensor(indptr), as_tensor(indices), len(columns), degree=as_tensor(degree))
            block.edge_norm = as_tensor(edge_norm)
            block.has_loop = None if self._has_loop is None else as_tensor(self._has_loop[columns])
            blocks.insert(0, block)
            nodes = columns
        return Batch(self.graph, nodes, tuple(blocks), index=k)

    def draw_outputs(self, k: int) -> np.ndarray:
        """The output nodes of batch k: slice k mod num_batches of the epoch's order."""
        epoch, place = divmod(k, self.num_batches)
        known, order = self._order
        if known != epoch:
            order = permute(len(self._targets), self.seed, _FIRST_ORDER + epoch)
            self._order = (epoch, order)
        start = place * int(self.batch_size)
        nodes: np.ndarray = self._targets[order[start : start + int(self.batch_size)]]
        return nodes

    def draw_nodes(self, k: int) -> np.ndarray:
        return np.sort(self.sample(k).nodes)

    @property
    def num_batches(self) -> int:
        """Batches in an epoch: every training node is an output once."""
        return -(-len(self._targets) // int(self.batch_size))

    def normalize(
        self,
        coverage: int = 50,
        *,
        num_threads: int | None = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> Norms:
        raise ShoalError(
            f"sampler {self.name!r} weighs its own edges: normalisation is for subgraph samplers"
        )

    def borrow_numbers(self) -> AbstractContextManager[np.ndarray]:
        """One -1 for each node of the graph; whoever uses it leaves it so."""
        return self.borrow("numbers", lambda: np.full(self.graph.num_nodes, -1, np.int32))

    def borrow_factor(self) -> AbstractContextManager[np.ndarray]:
        """One 0 for each node of the graph; whoever uses it leaves it so."""
        return self.borrow("factor", lambda: np.zeros(self.graph.num_nodes))


class FastGCNSampler(LayeredSampler):
    """For each layer `layer_size` nodes drawn independently with `q_v ∝ ‖Â_:,v‖²`, whatever the layer above.

    An entry (u, v) is kept where v was drawn, with its weight multiplied by `c_v / (layer_size · q_v)`, c_v
    the times v was drawn: an unbiased estimate of the full aggregation. Rows may come out empty, this
    method's known weakness on sparse graphs. A row's own node is always among the columns, and its self loop
    is always kept.

    Cost: O(layer_size + total degree of the rows) a layer.
    """

    name = "fastgcn"

    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: int = 1000,
        layer_size: int = 4000,
        num_layers: int = 2,
        setting: str = "transductive",
        seed: int = 0,
    ) -> None:
        check_positive(layer_size=layer_size)
        super().__init__(graph, batch_size=batch_size, num_layers=num_layers, setting=setting, seed=seed)
        self.layer_size = layer_size
        self._weights = 1.0 / (self.graph.degree + 1.0) ** 2
        _add_column_norms(
            self.graph.indptr, self.graph.indices, np.arange(self.graph.num_nodes), self._weights
        )
        self._table = build_alias(self._weights)
        self._total = float(self._weights.sum())

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        with self.borrow_factor() as factor:
            return _grow_layer(
                self, nodes, layer, k, None, self._table, self._weights, self._total, factor, self.layer_size
            )


class LadiesSampler(LayeredSampler):
    """Like FastGCN, but a layer's nodes are drawn among the neighbours of the layer above, with
    `q_v ∝ Σ_{u in rows} Â_uv²`: every drawn node is used.

    Cost: O(num_nodes + layer_size + total degree of the rows) a layer.
    """

    name = "ladies"

    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: int = 1000,
        layer_size: int = 4000,
        num_layers: int = 2,
        setting: str = "transductive",
        seed: int = 0,
    ) -> None:
        check_positive(layer_size=layer_size)
        super().__init__(graph, batch_size=batch_size, num_layers=num_layers, setting=setting, seed=seed)
        self.layer_size = layer_size

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        with self.borrow_factor() as factor:
            _add_column_norms(self.graph.indptr, self.graph.indices, nodes, factor)
            candidates = np.flatnonzero(factor)
            weights = factor[candidates]
            factor[candidates] = 0
            empty = (np.empty(0, np.float32), np.empty(0, np.int32))
            table = build_alias(weights) if len(candidates) else empty
            total = float(weights.sum())
            return _grow_layer(
                self, nodes, layer, k, candidates, table, weights, total, factor, self.layer_size
            )


def _grow_layer(
    sampler: LayeredSampler,
    nodes: np.ndarray,
    layer: int,
    k: int,
    candidates: np.ndarray | None,
    table: tuple[np.ndarray, np.ndarray],
    weights: np.ndarray,
    total: float,
    factor: np.ndarray,
    layer_size: int,
) -> Grown:
    """Draw from the table, number the columns, keep the entries of drawn columns. Leaves `factor` zero."""
    stream = np.uint64(key(sampler.seed, k))
    graph = sampler.graph
    drawn = _draw_factors(
        *table, candidates, weights, total, layer_size, stream, 2 * layer * layer_size, factor
    )
    with sampler.borrow_numbers() as numbers:
        columns = _number_columns(nodes, drawn, numbers)
        indptr, indices, edge_norm = _keep_entries(graph.indptr, graph.indices, nodes, numbers, factor)
        numbers[columns] = -1
    factor[drawn] = 0
    return indptr, indices, columns, edge_norm


@kernel
def _add_column_norms(indptr, indices, rows, weights):
    """weights[v] += Σ 1 / ((d_u + 1)(d_v + 1)) over the rows u that list v, u itself left out."""
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
    """The rows' nodes and then those of `others` that are not among them; `numbers` maps them to places."""
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


@kernel
def sort_row(columns, values):
    """Sort a row's columns, values along with them (Shell's sort: in place, rows are short)."""
    gap = len(columns) // 2
    while gap > 0:
        for i in range(gap, len(columns)):
            column, value = columns[i], values[i]
            j = i
            while j >= gap and columns[j - gap] > column:
                columns[j], values[j] = columns[j - gap], values[j - gap]
                j -= gap
            columns[j], values[j] = column, value
        gap = 1 if gap == 2 else gap * 5 // 11
