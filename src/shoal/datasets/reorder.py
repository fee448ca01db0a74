"""Renumbering the nodes of a graph; large arrays are written to files if a workspace is open."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.datasets.orders import ORDERS
from shoal.graph import MASKS, Graph
from shoal.kernels.csr import index_dtype
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.entry_weights import take_weights
from shoal.kernels.order import renumber_rows, sum_gaps
from shoal.names import Names
from shoal.progress import follow_work
from shoal.settings import check_options, list_settings
from shoal.workspace import FeatureRows, Rows

_ROWS_AT_ONCE = 1 << 16


def reorder_graph(graph: Graph, by: str, **settings: Any) -> Graph:
    """`graph` with its nodes renumbered by an order of `ORDERS`, so that neighbours lie together.

    Node ids are kept; a graph without ids gets the previous node numbers as `node_ids`.
    """
    find = ORDERS[by]
    order = np.ascontiguousarray(find(graph, **check_options(list_settings(find), settings, what=by)))
    renumbered = take_order(graph, order)
    gap, before = mean_gap(renumbered), mean_gap(graph)
    said = (
        f"ordered the nodes by {by}: neighbours are {gap:,.0f} numbers apart on average, {before:,.0f} before"
    )
    renumbered.notices = (*graph.notices, said)
    return renumbered


def take_order(graph: Graph, order: np.ndarray) -> Graph:
    """The graph whose node i is node `order[i]` of `graph`, with its features, labels, masks and id."""
    n = graph.num_nodes
    number = np.empty(n, index_dtype(n))
    number[order] = np.arange(n, dtype=number.dtype)
    indptr = np.zeros(n + 1, np.int64)
    np.cumsum(graph.degree[order], out=indptr[1:])
    indices = Rows("indices", graph.indices.dtype, (), graph.num_entries)
    weights = None if graph.edge_weight is None else Rows("edge_weight", np.float32, (), graph.num_entries)
    x: Any = graph.x
    rows: Rows | None = None
    if isinstance(x, EncodedRows):  # stay as they are: rounding twice would lose more
        rows = Rows("x", x.codes.dtype, x.codes.shape[1:], n)
    elif x is not None and not sp.issparse(x):
        rows = FeatureRows(x.shape[1], n)
    for start in range(0, n, _ROWS_AT_ONCE):
        nodes = order[start : start + _ROWS_AT_ONCE]
        columns = np.empty(indptr[start + len(nodes)] - indptr[start], graph.indices.dtype)
        renumber_rows(graph.indptr, graph.indices, nodes, number, columns)
        indices.append(columns)
        if weights is not None and graph.edge_weight is not None:
            span = indptr[start : start + len(nodes) + 1] - indptr[start]
            weights.append(
                take_weights(graph.indptr, graph.indices, graph.edge_weight, nodes, order, span, columns)
            )
        if rows is not None:
            rows.append(x.codes[nodes] if isinstance(x, EncodedRows) else x[nodes])
        follow_work("renumbering nodes", start + len(nodes), n)
    fields: dict[str, Any] = {
        key: None if (value := getattr(graph, key)) is None else value[order] for key in ("y", *MASKS)
    }
    if rows is not None:
        taken = rows.finish()
        fields["x"] = EncodedRows(taken, x.type, x.lost) if isinstance(x, EncodedRows) else taken
    elif x is not None:
        fields["x"] = x[order]
    ids = graph.node_ids
    if ids is None:
        fields["node_ids"] = order.astype(np.int64)
    else:
        fields["node_ids"] = ids.take(order) if isinstance(ids, Names) else np.asarray(ids)[order]
    renumbered = Graph(
        indptr,
        indices.finish(),
        edge_weight=None if weights is None else weights.finish(),
        checked=True,
        directed=graph.directed,
        num_classes=graph.num_classes,
        name=graph.name,
        class_names=graph.class_names,
        notices=graph.notices,
        **fields,
    )
    renumbered.encoding = graph.encoding
    return renumbered


def mean_gap(graph: Graph) -> float:
    """Mean difference between the numbers of neighbours."""
    total = 0.0
    for start in range(0, graph.num_nodes, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, graph.num_nodes)
        total += sum_gaps(graph.indptr, graph.indices, start, stop)
    return total / max(graph.num_entries, 1)
