"""What a graph looks like at a glance: degrees, isolated nodes, labels, split, features, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from shoal.validation import MASKS

if TYPE_CHECKING:
    from shoal.graph import Graph

ENTRIES_AT_ONCE = 1 << 24
SAMPLED_ROWS = 4096
QUANTILES = {"min": 0.0, "median": 0.5, "90 %": 0.9, "99 %": 0.99, "max": 1.0}


@dataclass(frozen=True)
class Description:
    """Figures that `shoal data info` prints. Nothing here needs all of x in memory."""

    degrees: dict[str, float]
    num_isolated: int
    num_self_loops: int
    labels: str
    split: dict[str, int]
    features: str
    bytes: dict[str, int]


def describe_graph(graph: Graph) -> Description:
    """Measure `graph` in one pass over its topology; dense features are looked at in a sample of rows."""
    loops, isolated = _scan_topology(graph)
    degree = graph.degree
    degrees = {name: float(np.quantile(degree, q, method="inverted_cdf")) for name, q in QUANTILES.items()}
    degrees = {"mean": float(graph.num_entries / graph.num_nodes), **degrees}
    split = {
        name.removesuffix("_mask"): int(np.count_nonzero(mask))
        for name in MASKS
        if (mask := getattr(graph, name)) is not None
    }
    return Description(
        degrees,
        isolated,
        loops,
        _describe_labels(graph),
        split,
        _describe_features(graph),
        _count_bytes(graph),
    )


def _scan_topology(graph: Graph) -> tuple[int, int]:
    """Self loops, and nodes without any edge in either direction, a block of rows at a time."""
    indptr, n = graph.indptr, graph.num_nodes
    touched = np.diff(indptr) > 0
    loops = start = 0
    while start < n:
        stop = int(np.searchsorted(indptr, indptr[start] + ENTRIES_AT_ONCE, "right")) - 1
        stop = min(max(stop, start + 1), n)
        columns = graph.indices[indptr[start] : indptr[stop]]
        rows = np.repeat(np.arange(start, stop), np.diff(indptr[start : stop + 1]))
        loops += int(np.count_nonzero(rows == columns))
        touched[columns] = True
        start = stop
    return loops, n - int(np.count_nonzero(touched))


def _describe_labels(graph: Graph) -> str:
    y = graph.y
    if y is None:
        return "none"
    if y.ndim == 2:
        rows = y[:: max(len(y) // SAMPLED_ROWS, 1)]
        about = "" if len(rows) == len(y) else "about "
        return f"many a node, {graph.num_classes} classes, {about}{rows.sum() / len(rows):.1f} labels a node"
    counts = np.bincount(y[y >= 0], minlength=graph.num_classes)
    labelled = int(counts.sum())
    if labelled == 0:
        return "one a node, but no node is labelled"
    text = f"one a node, {graph.num_classes} classes, the largest holds {counts.max() / labelled:.0%}"
    return text if labelled == len(y) else f"{text}; {len(y) - labelled:,} nodes unlabelled"


def _describe_features(graph: Graph) -> str:
    x = graph.x
    if x is None:
        return "none"
    if not isinstance(x, sp.csr_array):
        rows = x[:: max(len(x) // SAMPLED_ROWS, 1)]
        about = "" if len(rows) == len(x) else f" (from {len(rows):,} rows)"
        share = np.count_nonzero(rows) / max(rows.size, 1)
        return f"{x.shape[1]:,} dense {getattr(x, 'type', x.dtype)}, {share:.1%} nonzero{about}"
    share = x.nnz / max(x.shape[0] * x.shape[1], 1)
    return f"{x.shape[1]:,} sparse {x.dtype}, {share:.2%} nonzero"


def _count_bytes(graph: Graph) -> dict[str, int]:
    x = graph.x
    if x is None:
        features = 0
    elif not isinstance(x, sp.csr_array):
        features = x.nbytes
    else:
        features = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
    others = sum(part.nbytes for key in ("y", *MASKS) if (part := getattr(graph, key)) is not None)
    return {
        "topology": graph.indptr.nbytes + graph.indices.nbytes,
        "features": features,
        "labels and split": others,
    }
