"""Facts of a graph that its default settings follow from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from shoal.graph import Graph
from shoal.kernels.gather import gather_csr_rows
from shoal.labels import is_regression
from shoal.partitioning.part import Part
from shoal.runs.homophily import bound_homophily

_WORDS = 256  # columns of features that may be words
_VALUES = 1 << 20  # values that are looked at
_RUN = 1 << 10  # values of neighbouring rows that are looked at together


@dataclass(frozen=True)
class Facts:
    """The inputs of the rule. Labels are those of training nodes only.

    Attributes:
        num_features: mean number of stored values per row; for sparse features fewer than columns.
        words: whether the features are like counts of words: sparse, whole numbers, not negative, of many columns.
        largest_class: share of the training nodes in the class that has most of them; 0 if labels are not single.
        homophily: upper bound of the adjusted homophily of edges between training nodes; 1 if not measured.
        two_way: whether layers can aggregate over edges and reversed edges, which is for directed graphs.
    """

    num_nodes: int
    num_entries: int
    num_features: float
    num_classes: int
    num_labels: int
    multi_label: bool = False
    regression: bool = False
    words: bool = False
    largest_class: float = 0.0
    homophily: float = 1.0
    two_way: bool = False

    @property
    def labels_per_class(self) -> float:
        """Labelled training nodes per class, the mean over the classes."""
        return self.num_labels / max(self.num_classes, 1)


def draw_values(x: sp.csr_array, ids: np.ndarray, rows: float, values: float) -> np.ndarray:
    """About 2^19 to 2^20 stored values of a matrix, or all if there are fewer: those of rows spread evenly over it.

    A row is drawn by its number, so that ranks draw the values that one process would.

    Args:
        x: some rows of the matrix.
        ids: their numbers.
        rows, values: number of rows and of stored values of the whole matrix.
    """
    run = max(int(_RUN * rows / max(values, 1)), 1)  # neighbouring rows lie together in a file
    drawn = np.flatnonzero(ids // run % max(-(-int(values) // _VALUES), 1) == 0)
    return gather_csr_rows(x.indptr, x.indices, x.data, drawn)[2]


def is_counted(graph: Graph) -> bool:
    """Whether features are sparse and not negative, by some of their values, so that a row's sum means something."""
    x = graph.x
    if not isinstance(x, sp.csr_array):
        return False
    return bool(np.all(draw_values(x, np.arange(graph.num_nodes), graph.num_nodes, x.nnz) >= 0))


def _is_words(x: Any, ids: Sequence[int] | np.ndarray, rows: float, values: float) -> bool:
    """Whether features are like counts of words, by some of their values."""
    if not isinstance(x, sp.csr_array) or x.shape[1] < _WORDS:
        return False
    numbers = ids if isinstance(ids, np.ndarray) else np.arange(len(ids))
    some = draw_values(x, numbers, rows, values)
    return bool(np.all((some >= 0) & (some == np.round(some))))


def measure_facts(
    graph: Graph | Part | Sequence[Part],
    total: Callable[[np.ndarray], np.ndarray] = lambda counts: counts,
    heeds: Callable[[Facts], bool] = lambda facts: True,
) -> Facts:
    """The facts of a graph, of all its parts, or over all ranks of the graph that a part belongs to.

    Args:
        total: sums counts over ranks.
        heeds: whether homophily, which costs most, matters for a graph with these other facts.
    """
    pieces = [graph] if isinstance(graph, Graph | Part) else list(graph)
    graph = pieces[0]
    counts = np.sum([_count(piece) for piece in pieces], 0)
    rows, entries, labels, values = total(counts).tolist()
    others = sum(not _is_words(piece.x, _number(piece), rows, values) for piece in pieces)
    others = total(np.array([others], np.float64)).item()
    classes = total(np.sum([count_classes(piece) for piece in pieces], 0))
    facts = Facts(
        num_nodes=int(rows),
        num_entries=int(entries),
        num_features=values / max(rows, 1),
        num_classes=graph.num_classes,
        num_labels=int(labels),
        multi_label=graph.multi_label,
        regression=is_regression(graph.y),
        words=others == 0,
        largest_class=float(classes.max(initial=0)) / max(labels, 1),
        two_way=graph.directed,
    )
    return replace(facts, homophily=bound_homophily(pieces, total, classes)) if heeds(facts) else facts


def _number(piece: Graph | Part) -> Sequence[int] | np.ndarray:
    """The numbers of a graph's or a part's nodes."""
    return piece.n_id if isinstance(piece, Part) else range(piece.num_nodes)


def _count(piece: Graph | Part) -> np.ndarray:
    """Nodes, entries, labelled training nodes and stored values of the features, as floats."""
    if isinstance(piece, Part):
        entries = len(piece.local_indices) + len(piece.halo_indices)
    else:
        entries = piece.num_entries
    labels = 0 if piece.train_mask is None else int(np.count_nonzero(piece.train_mask))
    nodes, x = len(_number(piece)), piece.x
    values = x.nnz if isinstance(x, sp.csr_array) else nodes * piece.num_features
    return np.array([nodes, entries, labels, values], np.float64)


def share_largest(graph: Graph) -> float:
    """The share of the training nodes in the class that has most of them; 0 if labels are not single."""
    classes = count_classes(graph)
    return float(classes.max(initial=0)) / max(float(classes.sum()), 1.0)


def count_classes(graph: Graph | Part) -> np.ndarray:
    """Training nodes of every class, as floats; no classes if labels are not single."""
    if graph.y is None or graph.train_mask is None or graph.multi_label or is_regression(graph.y):
        return np.zeros(0)
    labels = graph.y[graph.train_mask]
    return np.bincount(labels[labels >= 0], minlength=graph.num_classes).astype(np.float64)
