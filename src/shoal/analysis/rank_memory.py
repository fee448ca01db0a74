"""Predicted memory of ranks: what a process holds in training, and BNS-GCN's model of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from shoal.analysis.prediction import LayerExchange, Load
from shoal.distributed.costs import model_memory
from shoal.distributed.exchange import ExchangeMethod
from shoal.graph import Graph
from shoal.models.gnn import GNN
from shoal.models.hops import StackedGraph
from shoal.partitioning.part import Part
from shoal.training.step_memory import VALUE, count_prepared, count_row, count_weights, count_whole

_NODE_BYTES = (
    12  # of every node, where ranks share batches: its owner, its row there, its position in the batch
)


def count_received(
    parts: Sequence[Part], load: Load, exchanges: Sequence[LayerExchange], method: ExchangeMethod
) -> np.ndarray:
    """(P,): rows, or rows and sums, that every rank receives in one exchange."""
    if method.is_collective or not exchanges:
        return np.array([part.num_halo for part in parts])
    linear = exchanges[-1].overlaps
    return np.asarray(np.rint(load.rows[linear][0].sum(0)), np.int64)


def model_ranks(parts: Sequence[Part], model: GNN, received: np.ndarray) -> tuple[int, ...]:
    """Bytes of every rank by BNS-GCN's `(3·n_local + n_halo)·d`, n_halo being the rows it receives; `ranks.json` has the same."""
    widths = model.input_widths, next(iter(model.widths), 0)
    return tuple(model_memory(part, int(rows), *widths) for part, rows in zip(parts, received))


def estimate_parts(
    parts: Sequence[Part],
    model: GNN,
    received: np.ndarray,
    exchanges: Sequence[LayerExchange],
    method: ExchangeMethod,
    num_features: int,
    *,
    sparse: bool,
    process: int = 0,
) -> tuple[int, ...]:
    """Bytes of every rank's process in full-batch training on parts, without evaluation.

    They include the part, its features, operators, activations, all copies of weights, message buffers, and the
    `process` itself. Halo rows have activations only in attention; sums read them from the message buffers.
    """
    weights, found = count_weights(model), []
    attends = any(layer.kind is not None and layer.linear.needs_whole_rows for layer in model.list_layers())
    reads_input = model.needs_halo_input(sparse=sparse)
    for part, rows in zip(parts, received):
        step, kept = count_whole(
            model,
            part.num_local,
            len(part.local_indices),
            num_features,
            sparse=sparse,
            weighted=part.local_weight is not None,
            halo=part.num_halo if attends else 0,
            more=len(part.halo_indices),
        )
        features = count_features(part, num_features)
        inputs = features * part.num_halo // max(part.num_local, 1) if reads_input else 0
        buffers = count_buffers(int(rows), part.num_sent, exchanges, method)
        found.append(process + count_part(part, num_features) + inputs + step + kept + weights + buffers)
    return tuple(found)


def estimate_shared(
    parts: Sequence[Part],
    model: GNN,
    graph: Graph,
    largest: np.ndarray,
    num_features: int,
    *,
    process: int = 0,
) -> tuple[int, ...]:
    """Bytes of every rank's process where ranks share batches; `largest` (P, 3) are the most local rows, halo rows and entries.

    Every rank also holds the adjacency of the whole graph, from which batches are drawn.
    """
    whole = count_pattern(graph) + _NODE_BYTES * graph.num_nodes + count_weights(model)
    return tuple(
        process
        + whole
        + count_part(part, num_features)
        + _count_batch(model, tuple(sizes), num_features, sparse=sp.issparse(part.x))
        for part, sizes in zip(parts, largest.tolist())
    )


def estimate_replicas(
    graph: Graph, model: GNN, largest: tuple[int, int, int], num_features: int, num_ranks: int, process: int
) -> tuple[int, ...]:
    """Bytes of every rank's process where each holds the whole graph; `largest` is (output rows, other rows, entries) of a batch."""
    whole = graph if graph.parent is None else graph.parent
    held = _count_graph(whole, num_features) + count_weights(model)
    if whole is not graph:  # the training graph: of its own it has edges, and hops
        held += _count_graph(graph, num_features) if isinstance(graph, StackedGraph) else count_pattern(graph)
    held += _count_batch(model, largest, num_features, sparse=sp.issparse(whole.x))
    return (process + held,) * num_ranks


def _count_graph(graph: Graph, num_features: int) -> int:
    """Bytes of a graph's adjacency, edge weights and features, `num_features` dense ones unless it has sparse ones; of hops also their source."""
    dense = VALUE * graph.num_nodes * num_features
    held = count_pattern(graph) + (count_csr(graph.x) if sp.issparse(graph.x) else dense)
    return held + (
        _count_graph(graph.source, graph.source.num_features) if isinstance(graph, StackedGraph) else 0
    )


def _count_batch(model: GNN, size: tuple[int, ...], num_features: int, *, sparse: bool) -> int:
    """Bytes of a step on a batch: activations, gathered and prepared features, an operator and its transpose."""
    rows, read, entries = size
    row = count_row(model) + num_features + count_prepared(model, sparse=sparse)
    return VALUE * ((rows + read) * row + 4 * entries)


def count_buffers(
    received: int, sent: int, exchanges: Sequence[LayerExchange], method: ExchangeMethod
) -> int:
    """Bytes of message buffers: those of the widest exchange, since all share two buffers; stale exchanges have their own."""
    rows = [VALUE * one.width + (method.row_bytes(one.width) if method.is_coded else 0) for one in exchanges]
    if method.is_stale:
        return (2 * received + sent) * sum(rows)
    return (received + sent) * max(rows, default=0)


def count_part(part: Part, num_features: int) -> int:
    """Bytes of a part's arrays and features."""
    arrays = [value for name, value in vars(part).items() if isinstance(value, np.ndarray) and name != "x"]
    return sum(array.nbytes for array in arrays) + count_features(part, num_features)


def count_features(part: Part, num_features: int) -> int:
    """Bytes of a part's features: `num_features` dense ones unless it has sparse ones."""
    return count_csr(part.x) if sp.issparse(part.x) else VALUE * part.num_local * num_features


def count_pattern(graph: Graph) -> int:
    """Bytes of a graph's adjacency and edge weights."""
    weights = 0 if graph.edge_weight is None else graph.edge_weight.nbytes
    return int(graph.indptr.nbytes + graph.indices.nbytes + weights)


def count_csr(x: sp.csr_array) -> int:
    """Bytes of a sparse matrix."""
    return int(x.data.nbytes + x.indices.nbytes + x.indptr.nbytes)
