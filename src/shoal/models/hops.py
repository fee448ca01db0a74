"""Propagated features `[x, S x, …, S^K x]` of every node, computed once before training, so that no step reads edges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from shoal.errors import ShoalError
from shoal.graph import Graph, require_graph
from shoal.memory import memory_left
from shoal.models.kept_hops import keep_hops
from shoal.models.layerwise import ROWS_AT_ONCE, LayerWork, RowSet
from shoal.sampling.full import FullSampler
from shoal.scratch import Scratch, split_columns
from shoal.settings import Choices, Range, check_settings

OPERATORS = ("gcn", "mean")
Hops = Annotated[int, Range(0, 20), "number of propagations: K of [x, S x, …, S^K x]"]
Operator = Annotated[str, Choices(OPERATORS), "S: gcn D̃^-½ÃD̃^-½ with self loops, or mean D⁻¹A"]


class StackedGraph(Graph):
    """A graph without edges. The features of a node are its row of `[x, S x, …, S^K x]`.

    The hops of the inductive training graph are computed separately, on training nodes and the edges between them.

    Attributes:
        source: the graph that features were propagated on.
    """

    def __init__(self, source: Graph, hops: int, operator: str, folder: Path | None = None) -> None:
        self.source, self.hops, self.operator = source, hops, operator
        self._folder = folder
        self._scratch, x = _find_hops(source, hops, operator, folder)
        super().__init__(
            np.zeros(source.num_nodes + 1, np.int64),
            np.empty(0, np.int32),
            x=x,
            y=source.y,
            train_mask=source.train_mask,
            val_mask=source.val_mask,
            test_mask=source.test_mask,
            num_classes=source.num_classes,
            name=source.name,
            node_ids=source.node_ids,
            class_names=source.class_names,
            checked=True,
        )
        self.parent, self.n_id = source.parent, source.n_id
        self._training: StackedGraph | None = None

    def train_graph(self, setting: str = "inductive") -> Graph:
        graph = self.source.train_graph(setting)
        if graph is self.source:
            return self
        if self._training is None:
            self._training = self.stack(graph)
            self._training.parent, self._training.n_id = self, graph.n_id
        return self._training

    def stack(self, graph: Graph) -> StackedGraph:
        """Propagate another graph's features with the same operator and number of hops."""
        return StackedGraph(graph, self.hops, self.operator, self._folder)


@check_settings
def stack_hops(
    graph: Graph, *, hops: Hops = 3, operator: Operator = "gcn", folder: Path | None = None
) -> StackedGraph:
    """The graph that a `"sign"` model trains on: the same nodes without edges, with the features `[x, S x, …, S^K x]`.

    Each hop is one sparse product, computed for a few columns at a time if memory is short. Hops that take longer than
    about a second are cached in Shoal's home, by graph and settings, and memory-mapped; batches then read their rows
    through the feature cache. Other hops stay in memory if they fit in half of the budget that is left. Otherwise they
    are written to an unnamed file in `folder`.

    Args:
        graph: the graph, with features.
        hops: number of propagations, K.
        operator: S; "gcn" for D̃^-½ÃD̃^-½, "mean" for D⁻¹A.
        folder: folder of a large result. None: the system's temporary folder.
    """
    require_graph(graph)
    if not graph.num_features:
        raise ShoalError(
            f"graph {graph.name!r} has no features, which hops are made of: name a graph with features, or choose another model"
        )
    return StackedGraph(graph, hops, operator, folder)


def check_hops(model: nn.Module, graph: object) -> None:
    """Raise if a graph lacks the hops that a model reads."""
    layers = getattr(model, "layers", None)
    first = layers[0] if isinstance(layers, nn.ModuleList) and len(layers) else None
    hops = getattr(getattr(first, "linear", None), "hops", None)
    if hops is not None and getattr(graph, "hops", None) != hops:
        raise ShoalError(
            f"the model reads {hops} hops of features: give model, sampler and trainer the graph shoal.stack_hops(graph, hops={hops})"
        )


def _find_hops(
    graph: Graph, hops: int, operator: str, folder: Path | None
) -> tuple[Scratch | None, np.ndarray]:
    """(the scratch that holds the hops, the hops side by side), cached or computed now."""

    def compute(out: np.ndarray) -> None:
        _propagate(graph, hops, operator, torch.from_numpy(out))

    kept = keep_hops(graph, hops, operator, compute)
    if kept is not None:
        return None, kept
    scratch = Scratch(memory_left() // 2, folder)
    made = scratch.make(graph.num_nodes, (hops + 1) * graph.num_features)
    _propagate(graph, hops, operator, made.tensor)
    return scratch, made.tensor.numpy()


def _propagate(graph: Graph, hops: int, operator: str, out: Tensor) -> None:
    """Fill `out` with the hops side by side."""
    n, width = graph.num_nodes, graph.num_features
    left = memory_left()
    block = FullSampler(graph).sample(0).blocks[0]
    adj = block.by_rows(operator, lambda size: size <= left // 8)
    work = LayerWork([RowSet(n, block.num_edges)], Scratch())
    for start, end in split_columns(width, left // 4 // max(8 * n, 1)):
        z = _read_columns(graph, start, end)
        out[:, start:end] = z
        for hop in range(1, hops + 1):
            product = torch.empty_like(z)
            for rows, values in work.multiply(adj, z):
                product[rows] = values
            z = product
            out[:, hop * width + start : hop * width + end] = z


def _read_columns(graph: Graph, start: int, end: int) -> Tensor:
    """Columns start…end-1 of the features of all nodes, dense, read by chunks of rows."""
    found = torch.empty(graph.num_nodes, end - start)
    for first in range(0, graph.num_nodes, ROWS_AT_ONCE):
        rows = np.arange(first, min(first + ROWS_AT_ONCE, graph.num_nodes))
        x: Any = graph.take_features(rows)[:, start:end]
        found[first : first + len(rows)] = torch.from_numpy(x.toarray() if sp.issparse(x) else np.asarray(x))
    return found
