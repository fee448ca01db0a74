"""Statistics of a graph: degrees, components, labels, homophily, features, split, memory.

Work is bounded on large graphs: homophily is measured on a sample of the edges, features on a sample of the rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from shoal.kernels.survey import label_components, sample_entries, share_mirrored
from shoal.labels import find_labelled
from shoal.validation import MASKS

if TYPE_CHECKING:
    from shoal.graph import Graph

ENTRIES_AT_ONCE = 1 << 24
SAMPLED_ROWS = 4096
SAMPLED_ENTRIES = 1 << 20
MOST_JOINED = 1 << 26  # entries up to which components are counted
QUANTILES = {"min": 0.0, "median": 0.5, "90 %": 0.9, "99 %": 0.99, "max": 1.0}
_TOP = 0.01  # the share of nodes of highest degree whose edges are counted


@dataclass(frozen=True)
class LabelFigures:
    """Labels: `sizes` counts the nodes of each class; `untrained` are classes without a training node."""

    several: bool
    sizes: dict[str, int]
    unlabelled: int
    untrained: list[str]


@dataclass(frozen=True)
class TargetFigures:
    """Targets of a regression: their number per node, their range and mean, and the number of unlabelled nodes."""

    count: int
    least: float
    most: float
    mean: float
    unlabelled: int


@dataclass(frozen=True)
class FeatureFigures:
    """Features, measured on a sample of `rows` rows if they are dense.

    `missing` is the share of missing values, for the table columns that have some.
    """

    count: int
    kind: str
    nonzero: float
    rows: int
    zero_rows: float
    constant: list[str]
    missing: dict[str, float]
    deviations: tuple[float, float]


@dataclass(frozen=True)
class Homophily:
    """`edges`: share of the edges between labelled nodes that join equal labels.

    `adjusted`: (edges − c) / (1 − c), c the expected share for random edges between nodes of the same degrees: 1 if all
    neighbours have equal labels, 0 if labels of neighbours are independent, whatever the class sizes.
    """

    edges: float
    adjusted: float | None
    sampled: int


@dataclass(frozen=True)
class WeightFigures:
    """Edge weights, measured on a sample of the entries if there are many."""

    least: float
    most: float
    mean: float


@dataclass(frozen=True)
class Description:
    """Figures that `shoal data info` prints. Nothing here needs all of x in memory."""

    name: str
    num_nodes: int
    num_edges: int
    directed: bool
    degrees: dict[str, float]
    top_share: float
    mirrored: float | None
    weights: WeightFigures | None
    num_isolated: int
    num_self_loops: int
    components: dict[str, int] | None
    labels: LabelFigures | None
    targets: TargetFigures | None
    homophily: Homophily | None
    features: FeatureFigures | None
    split: dict[str, int]
    bytes: dict[str, int]
    notices: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All figures, for JSON."""
        return asdict(self)


def describe_graph(graph: Graph) -> Description:
    """Measure `graph` in a few passes over its topology; features and homophily on samples if it is large."""
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
        name=graph.name,
        num_nodes=graph.num_nodes,
        num_edges=graph.num_entries if graph.directed else (graph.num_entries - loops) // 2 + loops,
        directed=graph.directed,
        degrees=degrees,
        top_share=_share_of_top(degree),
        mirrored=share_mirrored(graph.indptr, graph.indices, SAMPLED_ENTRIES) if graph.directed else None,
        weights=_describe_weights(graph),
        num_isolated=isolated,
        num_self_loops=loops,
        components=_count_components(graph),
        labels=_describe_labels(graph),
        targets=_describe_targets(graph),
        homophily=measure_homophily(graph),
        features=_describe_features(graph),
        split=split,
        bytes=_count_bytes(graph),
        notices=list(graph.notices),
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


def _share_of_top(degree: np.ndarray) -> float:
    """The share of all entries in the rows of the 1 % of nodes with the highest degree."""
    count = max(int(len(degree) * _TOP), 1)
    top = np.partition(degree, len(degree) - count)[-count:]
    return float(top.sum() / max(degree.sum(), 1))


def _count_components(graph: Graph) -> dict[str, int] | None:
    """How many (weakly) connected components there are, and the nodes of the largest; None for very large graphs."""
    if graph.num_entries > MOST_JOINED:
        return None
    sizes = np.bincount(label_components(graph.indptr, graph.indices))
    return {"count": int(np.count_nonzero(sizes)), "largest": int(sizes.max())}


def _describe_weights(graph: Graph) -> WeightFigures | None:
    weights = graph.edge_weight
    if weights is None or not len(weights):
        return None
    some = np.asarray(weights[:: max(len(weights) // SAMPLED_ENTRIES, 1)])
    return WeightFigures(float(some.min()), float(some.max()), float(some.mean(dtype=np.float64)))


def _describe_labels(graph: Graph) -> LabelFigures | None:
    y = graph.y
    if y is None or y.dtype.kind == "f":
        return None
    names = graph.class_names or [str(number) for number in range(graph.num_classes)]
    if y.ndim == 2:
        counts, unlabelled = y.sum(axis=0, dtype=np.int64), int(np.count_nonzero(~y.any(axis=1)))
        trained = None if graph.train_mask is None else y[graph.train_mask].any(axis=0)
    else:
        counts = np.bincount(y[y >= 0], minlength=graph.num_classes)
        unlabelled = int(np.count_nonzero(y < 0))
        in_training = None if graph.train_mask is None else y[graph.train_mask]
        trained = None if in_training is None else np.isin(np.arange(graph.num_classes), in_training)
    sizes = {str(name): int(count) for name, count in zip(names, counts)}
    lacking = [] if trained is None else [str(name) for name, one in zip(names, trained) if not one]
    return LabelFigures(y.ndim == 2, sizes, unlabelled, lacking)


def _describe_targets(graph: Graph) -> TargetFigures | None:
    y = graph.y
    if y is None or not graph.regression or np.isnan(y).all():
        return None
    unlabelled = int(np.count_nonzero(~find_labelled(y)))
    mean = float(np.nanmean(y, dtype=np.float64))
    return TargetFigures(graph.num_classes, float(np.nanmin(y)), float(np.nanmax(y)), mean, unlabelled)


def measure_homophily(graph: Graph, most: int = SAMPLED_ENTRIES) -> Homophily | None:
    """Edge homophily and its value adjusted for class sizes, in a sample of at most `most` entries; None unless single-label."""
    y = graph.y
    if y is None or y.ndim == 2 or y.dtype.kind == "f":
        return None
    rows, positions = sample_entries(graph.indptr, most)
    ends = np.asarray(y[rows]), np.asarray(y[graph.indices[positions]])
    known = (ends[0] >= 0) & (ends[1] >= 0) & (rows != graph.indices[positions])
    one, other = ends[0][known], ends[1][known]
    if not len(one):
        return None
    edges = float(np.mean(one == other))
    shares = [np.bincount(end, minlength=graph.num_classes) / len(one) for end in (one, other)]
    chance = float((shares[0] * shares[1]).sum())
    adjusted = (edges - chance) / (1 - chance) if chance < 1 else None
    return Homophily(edges, adjusted, len(one) if len(positions) < graph.num_entries else 0)


def name_features(graph: Graph) -> list[str] | None:
    """The names of the features of a graph that came from a table."""
    if graph.encoding is None:
        return None
    from shoal.datasets.importers.feature_columns import load_columns

    names = [name for one in load_columns(graph.encoding, graph.name) for name in one.all_names]
    return names if len(names) == graph.num_features else None


def _describe_features(graph: Graph) -> FeatureFigures | None:
    x = graph.x
    if x is None:
        return None
    named = name_features(graph)
    names = named or [str(i) for i in range(x.shape[1])]
    if isinstance(x, sp.csr_array):
        share = x.nnz / max(x.shape[0] * x.shape[1], 1)
        used = np.bincount(x.indices, minlength=x.shape[1])
        constant = [names[i] for i in np.flatnonzero(used == 0)]
        empty = float(np.mean(np.diff(x.indptr) == 0))
        return FeatureFigures(
            x.shape[1], f"sparse {x.dtype}", share, x.shape[0], empty, constant, {}, (0.0, 0.0)
        )
    rows = np.asarray(x[:: max(len(x) // SAMPLED_ROWS, 1)])
    deviations = rows.std(axis=0, dtype=np.float64)
    constant = [names[i] for i in np.flatnonzero(rows.max(axis=0) == rows.min(axis=0))]
    missing = {
        name.removesuffix(" missing"): float(rows[:, i].mean())
        for i, name in enumerate(named or ())
        if name.endswith(" missing")
    }
    varied = deviations[deviations > 0]
    return FeatureFigures(
        count=x.shape[1],
        kind=f"dense {getattr(x, 'type', x.dtype)}",
        nonzero=np.count_nonzero(rows) / max(rows.size, 1),
        rows=len(rows),
        zero_rows=float(np.mean(~rows.any(axis=1))),
        constant=constant,
        missing=missing,
        deviations=(float(varied.min()), float(varied.max())) if len(varied) else (0.0, 0.0),
    )


def _count_bytes(graph: Graph) -> dict[str, int]:
    x = graph.x
    if x is None:
        features = 0
    elif not isinstance(x, sp.csr_array):
        features = x.nbytes
    else:
        features = x.data.nbytes + x.indices.nbytes + x.indptr.nbytes
    others = sum(part.nbytes for key in ("y", *MASKS) if (part := getattr(graph, key)) is not None)
    weights = 0 if graph.edge_weight is None else graph.edge_weight.nbytes
    return {
        "topology": graph.indptr.nbytes + graph.indices.nbytes + weights,
        "features": features,
        "labels and split": others,
    }
