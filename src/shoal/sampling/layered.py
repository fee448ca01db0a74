"""LayeredSampler: batches with one block per layer, grown from output nodes back to the input."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Annotated, Any

import numpy as np

from shoal.batch import Batch, as_tensor
from shoal.block import Block
from shoal.conversion import check_rows
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.jit import kernel
from shoal.rng import permute
from shoal.sampling.base import Count, Sampler, TrainingGraph
from shoal.sampling.normalize import Norms
from shoal.settings import Seed, check_settings

_FIRST_ORDER = 1 << 62  # streams of the epochs' orders, apart from those of the batches

BatchSize = Annotated[Count, "output nodes in a batch"]
NumLayers = Annotated[Count, "aggregations of the model; a batch has a block for each"]
Grown = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class LayeredSampler(Sampler):
    """Batches of `batch_size` output nodes, each training node once an epoch in a new random order.

    Other `outputs` than the training nodes may be given, and with `shuffle=False` they keep their order.

    A subclass says how a layer grows: from the nodes it computes to the pattern it reads and the nodes it
    reads from. Blocks are wide, their first columns are their rows, and they carry the training graph's
    degrees, so that `edge_norm` makes both mean and GCN aggregation unbiased.
    """

    draws_subgraphs = False
    needs_edges = True

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        batch_size: BatchSize,
        num_layers: NumLayers,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        outputs: Any = None,
        shuffle: bool = True,
    ) -> None:
        super().__init__(graph, setting=setting, seed=seed)
        mask = self.graph.train_mask
        self._targets = np.arange(self.graph.num_nodes) if mask is None else np.flatnonzero(mask)
        if outputs is not None:
            self._targets = _check_outputs(outputs, graph, self.graph)
        self.outputs, self.shuffle = outputs, shuffle
        self.batch_size = batch_size
        self.num_layers = num_layers
        self._orders: dict[
            int, np.ndarray
        ] = {}  # of the last two epochs: threads that sample ahead are in both

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
            block = Block(
                as_tensor(indptr), as_tensor(indices), len(columns), degree=as_tensor(degree), checked=True
            )
            block.edge_norm = as_tensor(edge_norm)
            block.has_loop = None if self._has_loop is None else as_tensor(self._has_loop[columns])
            blocks.insert(0, block)
            nodes = columns
        return Batch(self.graph, nodes, tuple(blocks), index=k)

    def draw_outputs(self, k: int) -> np.ndarray:
        """The output nodes of batch k: slice k mod num_batches of the epoch's order."""
        nodes: np.ndarray = self._targets[self.draw_places(k)]
        return nodes

    def draw_places(self, k: int) -> np.ndarray:
        """Where the output nodes of batch k are among all of them."""
        epoch, place = divmod(k, self.num_batches)
        known = self._orders
        order = known.get(epoch)
        if order is None:
            count = len(self._targets)
            order = permute(count, self.seed, _FIRST_ORDER + epoch) if self.shuffle else np.arange(count)
            self._orders = dict([*list(known.items())[-1:], (epoch, order)])
        start = place * int(self.batch_size)
        places: np.ndarray = order[start : start + int(self.batch_size)]
        return places

    def list_inputs(self, k: int) -> np.ndarray:
        return self.sample(k).nodes

    def draw_nodes(self, k: int) -> np.ndarray:
        return np.sort(self.list_inputs(k))

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


def _check_outputs(outputs: Any, graph: Graph, trained: Graph) -> np.ndarray:
    """Output nodes as numbers, from numbers or a mask; refused where training does not see all of them."""
    given = np.asarray(outputs)
    if given.dtype == np.bool_ and given.shape == (graph.num_nodes,):
        given = np.flatnonzero(given)
    nodes = check_rows(given, graph.num_nodes).astype(np.int64)
    if not len(nodes):
        raise ShoalError("there are no output nodes: expected at least one")
    if trained is not graph:
        raise ShoalError("output nodes are those of the whole graph: leave out setting=inductive, or them")
    return nodes


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
