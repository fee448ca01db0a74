"""Graph: topology in CSR, features, labels and a split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from shoal.checksums import Checksums
from shoal.conversion import check_nodes, check_rows
from shoal.errors import ShoalError, unknown_name
from shoal.interchange import Interchange
from shoal.kernels.csr import count_diagonal, induce_csr
from shoal.kernels.encoding import EncodedRows
from shoal.kernels.entry_weights import sum_rows
from shoal.labels import count_classes, describe_outputs, find_labelled, is_multi_label, is_regression
from shoal.names import Names, take_ids
from shoal.notebook import show_facts
from shoal.split import draw_split, note_split
from shoal.validation import MASKS as MASKS
from shoal.validation import validate_graph, validate_split

Features: TypeAlias = np.ndarray | EncodedRows | sp.csr_array
SETTINGS = ("inductive", "transductive")


class Graph(Interchange, Checksums):
    """A graph with optional features, labels and split. Row i lists the nodes that i *aggregates from*.

    Args:
        indptr: int64 (num_nodes + 1,): where the entries of each row begin.
        indices: the column of each entry, strictly increasing in each row. An arc u → v is the entry u of row v. Undirected
            graphs hold both directions.
        x: features, float32 `(num_nodes, num_features)` (in memory or memory-mapped), EncodedRows or SciPy CSR.
        y: labels, int64 `(num_nodes,)` with -1 for unlabelled, or a 0/1 uint8 matrix `(num_nodes, num_classes)`; or
            float32 targets of a regression, `(num_nodes,)` or `(num_nodes, targets)`, NaN where unlabelled.
        train_mask: bool `(num_nodes,)`, which nodes are trained on.
        val_mask: bool `(num_nodes,)`, which nodes choose the best weights.
        test_mask: bool `(num_nodes,)`, which nodes are scored at the end.
        edge_weight: float32 above 0, one for each entry of `indices`; aggregations weight neighbours by it. None: unweighted.
        directed: whether the pattern may be asymmetric.
        name: what messages and listings call the graph.
        node_ids: ids of the nodes in the source data, integers or Names. None: 0, 1, 2, ….
        class_names: names of the classes in the source data.
        notices: what was changed while the graph was built, one sentence each.
        checked: whether the arrays are known to be valid; others are validated here, since kernels rely on them.
        num_classes: number of classes, or of a regression's targets. None: counted from y.

    The `from_*` constructors take other forms of input; they sort and merge duplicates.
    """

    def __init__(
        self,
        indptr: np.ndarray,
        indices: np.ndarray,
        *,
        x: Features | None = None,
        y: np.ndarray | None = None,
        train_mask: np.ndarray | None = None,
        val_mask: np.ndarray | None = None,
        test_mask: np.ndarray | None = None,
        edge_weight: np.ndarray | None = None,
        directed: bool = False,
        num_classes: int | None = None,
        name: str = "graph",
        node_ids: np.ndarray | Names | None = None,
        class_names: Sequence[str] | None = None,
        notices: Iterable[str] = (),
        checked: bool = False,
    ) -> None:
        self.indptr = indptr
        self.indices = indices
        self.y = y
        self.train_mask, self.val_mask, self.test_mask = train_mask, val_mask, test_mask
        self.edge_weight = edge_weight
        self.directed = directed
        self.name = name
        self.node_ids = node_ids
        self.class_names = None if class_names is None else tuple(class_names)
        self.notices = tuple(notices)
        self.encoding: dict[str, Any] | None = None  # how columns of a table became features (importers)
        self.parent: Graph | None = None
        self.n_id: np.ndarray | None = None  # this graph's nodes in `parent`'s numbering
        self._x = x
        self._num_classes = num_classes
        self._checksum: str | None = None
        self._digests: dict[str, tuple[np.ndarray, str]] = {}  # of arrays whose digest is known already
        if not checked:
            self.validate()

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def num_entries(self) -> int:
        """Stored entries: arcs of a directed graph, two per edge of an undirected one."""
        return len(self.indices)

    @property
    def num_edges(self) -> int:
        """Arcs of a directed graph, edges of an undirected one (a self loop is one edge)."""
        if self.directed:
            return self.num_entries
        loops = self.num_self_loops
        return (self.num_entries - loops) // 2 + loops

    @property
    def num_self_loops(self) -> int:
        """Number of entries on the diagonal."""
        return count_diagonal(self.indptr, self.indices)

    @property
    def num_features(self) -> int:
        """Columns of x, 0 without features."""
        if self._x is None:
            return 0 if self.parent is None else self.parent.num_features
        return int(self._x.shape[1])

    @property
    def multi_label(self) -> bool:
        """Whether y is a 0/1 matrix: any number of classes per node."""
        return is_multi_label(self.y)

    @property
    def regression(self) -> bool:
        """Whether y holds numbers to predict rather than classes."""
        return is_regression(self.y)

    @property
    def num_classes(self) -> int:
        """Columns that a model predicts: classes, or the targets of a regression."""
        if self._num_classes is None:
            self._num_classes = count_classes(self.y)
        return self._num_classes

    def describe_outputs(self) -> str:
        """What a model predicts for a node: `7 classes`, `1 target`."""
        return describe_outputs(self.num_classes, regression=self.regression)

    @property
    def degree(self) -> np.ndarray:
        """Number of nodes that each node aggregates from."""
        return np.diff(self.indptr)

    @property
    def has_split(self) -> bool:
        """Whether there is a training mask."""
        return self.train_mask is not None

    @property
    def x(self) -> Features | None:
        """All features. A subgraph gathers its rows from its parent on first use."""
        if self._x is None and self.n_id is not None and self._has_features:
            self._x = self.take_features(np.arange(self.num_nodes))
        return self._x

    @property
    def _has_features(self) -> bool:
        return self._x is not None or (self.parent is not None and self.parent._has_features)

    def take_features(self, nodes: np.ndarray) -> np.ndarray | sp.csr_array:
        """The feature rows of `nodes`, decoded; copies nothing else.

        Args:
            nodes: node numbers in this graph.
        """
        x, rows = self.find_features(check_rows(nodes, self.num_nodes))
        return x[rows]

    def find_features(self, nodes: np.ndarray) -> tuple[Features, np.ndarray]:
        """(matrix, rows) that hold the features of `nodes`: the matrix of this graph, or of the graph it was cut from.

        Args:
            nodes: node numbers in this graph.
        """
        if self._x is None and self.parent is not None:
            assert self.n_id is not None
            return self.parent.find_features(self.n_id[nodes])
        if self._x is None:
            raise ShoalError(f"graph {self.name!r} has no features: give x, or train on another graph")
        return self._x, nodes

    def global_ids(self, nodes: np.ndarray) -> np.ndarray:
        """`nodes` in the numbering of the graph this one was cut from.

        Args:
            nodes: node numbers in this graph.
        """
        if self.parent is None or self.n_id is None:
            return nodes
        return self.parent.global_ids(self.n_id[nodes])

    def validate(self) -> Graph:
        """Refuse a graph that cannot be trained on, naming the first thing wrong. Returns the graph."""
        validate_graph(self)
        return self

    def with_split(self, train: float = 0.6, val: float = 0.2, seed: int = 0) -> Graph:
        """This graph with a random split of its labelled nodes; the rest after train and val is the test set.

        Args:
            train: share of the labelled nodes to train on.
            val: share to validate on.
            seed: decides the split.
        """
        if self.y is None:
            raise ShoalError(f"graph {self.name!r} has no labels: a split needs labelled nodes")
        masks = draw_split(np.flatnonzero(find_labelled(self.y)), self.num_nodes, train, val, seed)
        said = f"drew {train:.0%} / {val:.0%} / {max(1 - train - val, 0):.0%} with seed {seed}"
        graph = self._copy(notices=note_split(self.notices, said, replaces=self.has_split), **masks)
        validate_split(graph)
        return graph

    def train_graph(self, setting: str = "inductive") -> Graph:
        """The graph that training may see.

        Args:
            setting: `inductive`: training nodes and the edges between them. `transductive`: every node and edge; losses are masked, so that labels outside the training set stay unused.
        """
        if setting not in SETTINGS:
            raise unknown_name("setting", setting, SETTINGS)
        if self.train_mask is None:
            raise ShoalError(f"graph {self.name!r} has no split: call with_split() or give train_mask")
        if setting == "transductive" or self.train_mask.all():
            return self
        return self.subgraph(np.flatnonzero(self.train_mask))

    def subgraph(self, nodes: np.ndarray) -> Graph:
        """The subgraph induced by increasing `nodes`, relabelled; its features are read from this graph.

        Its `node_ids` are taken from this graph, or are node numbers of this graph if it has none.

        Args:
            nodes: increasing node numbers in this graph.
        """
        nodes = check_nodes(np.asarray(nodes), self.num_nodes)
        scratch = np.full(self.num_nodes, -1, np.int32)
        indptr, indices, entries = induce_csr(self.indptr, self.indices, nodes, scratch)
        fields: dict[str, Any] = {
            key: None if (value := getattr(self, key)) is None else value[nodes] for key in ("y", *MASKS)
        }
        graph = Graph(
            indptr,
            indices,
            edge_weight=None if self.edge_weight is None else self.edge_weight[entries],
            directed=self.directed,
            num_classes=self.num_classes,
            name=self.name,
            node_ids=take_ids(self.node_ids, nodes, self.num_nodes),
            class_names=self.class_names,
            checked=True,
            **fields,
        )
        graph.parent, graph.n_id = self, nodes
        return graph

    def with_classes_of(self, other: Graph, *, labels: bool = True) -> Graph:
        """This graph with the classes of `other`, labels renumbered by name; a class that `other` lacks is refused.

        Args:
            other: the graph whose classes are taken.
            labels: keep this graph's labels, renumbered. False: without any.
        """
        y = self.y if labels else None
        if is_regression(y):
            return self._copy()
        if y is not None and self.class_names is not None and other.class_names is not None:
            lacks = [name for name in self.class_names if name not in other.class_names]
            if lacks:
                raise ShoalError(
                    f"graph {self.name!r} has the class {lacks[0]!r}, which graph {other.name!r} lacks: leave its labels out"
                )
            numbers = np.array([other.class_names.index(name) for name in self.class_names], np.int64)
            if y.ndim == 1:
                y = np.where(y >= 0, numbers[y], y)
            else:
                y = np.zeros((self.num_nodes, other.num_classes), y.dtype)
                y[:, numbers] = self.y
        elif y is not None and self.num_classes > other.num_classes:
            raise ShoalError(
                f"graph {self.name!r} has {self.num_classes:,} classes and graph {other.name!r} {other.num_classes:,}: leave its labels out"
            )
        return self._copy(y=y, num_classes=other.num_classes, class_names=other.class_names)

    def without_weights(self) -> Graph:
        """This graph without edge weights."""
        return self._copy(edge_weight=None)

    @cached_property
    def weighted_degree(self) -> np.ndarray:
        """Sum of the weights in each node's row, float64; the degree if the graph is unweighted."""
        if self.edge_weight is None:
            return self.degree
        sums: np.ndarray = sum_rows(self.indptr, self.edge_weight)
        return sums

    def _copy(self, **changes: Any) -> Graph:
        fields = {
            "x": self._x,
            "y": self.y,
            **{name: getattr(self, name) for name in MASKS},
            "edge_weight": self.edge_weight,
            "directed": self.directed,
            "num_classes": self._num_classes,
            "name": self.name,
            "node_ids": self.node_ids,
            "class_names": self.class_names,
            "notices": self.notices,
        }
        graph = Graph(self.indptr, self.indices, checked=True, **{**fields, **changes})
        graph.parent, graph.n_id, graph.encoding = self.parent, self.n_id, self.encoding
        graph._digests = self._digests
        return graph

    def __repr__(self) -> str:
        kind = f"{'un' * (not self.directed)}directed{', weighted' * (self.edge_weight is not None)}"
        return (
            f"Graph({self.name!r}, {self.num_nodes:,} nodes, {self.num_entries:,} entries, {kind}, "
            f"{self.num_features:,} features, {self.describe_outputs()}{', multi-label' * self.multi_label})"
        )

    def _repr_html_(self) -> str:
        masks = [(name.removesuffix("_mask"), getattr(self, name)) for name in MASKS]
        split = [f"{name} {int(mask.sum()):,}" for name, mask in masks if mask is not None]
        facts = {
            "nodes": self.num_nodes,
            "entries": f"{self.num_entries:,}, {'directed' if self.directed else 'undirected'}",
            "features": self.num_features or None,
            "labels": self.describe_outputs() if self.num_classes else None,
            "split": split or None,
            "edge weights": "yes" if self.edge_weight is not None else None,
        }
        return show_facts(f"Graph {self.name}", facts)


def require_graph(graph: object) -> None:
    """Raise unless `graph` is a Graph."""
    if not isinstance(graph, Graph):
        raise ShoalError(f"a {type(graph).__name__} was given: expected a Graph, such as shoal.load returns")
