"""Validation of graphs. Every error names what was found and what is expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from shoal.edge_weights import validate_weights
from shoal.errors import ShoalError
from shoal.kernels.csr import first_bad_row, is_symmetric
from shoal.kernels.encoding import EncodedRows
from shoal.labels import find_labelled, is_regression
from shoal.names import Names

if TYPE_CHECKING:
    from shoal.graph import Features, Graph

MASKS = ("train_mask", "val_mask", "test_mask")
_ROWS_AT_ONCE = 1 << 16
_VALUES_AT_ONCE = 1 << 20
_MANY_CLASSES = 1 << 16
_CONVERT = "; the Graph.from_* constructors, such as Graph.from_edge_index, convert it"


def validate_graph(graph: Graph) -> None:
    """Check topology, features, labels and split; raises ShoalError at the first thing wrong."""
    validate_topology(graph)
    validate_attributes(graph)


def validate_attributes(graph: Graph) -> None:
    """Check all but the topology."""
    if graph.x is not None:
        validate_features(graph, graph.x)
    if graph.y is not None:
        validate_labels(graph, graph.y)
    if graph.edge_weight is not None:
        validate_weights(graph, graph.edge_weight)
    validate_split(graph)
    if graph.node_ids is not None and not hasattr(graph.node_ids, "__len__"):
        raise ShoalError(f"node_ids is {graph.node_ids!r:.60}: expected one id per node")
    if graph.node_ids is not None and len(graph.node_ids) != graph.num_nodes:
        raise ShoalError(
            f"{len(graph.node_ids):,} node ids were given for {graph.num_nodes:,} nodes: expected one per node"
        )
    if isinstance(graph.node_ids, Names):
        validate_names(graph.node_ids)
    if graph.class_names is not None and len(graph.class_names) != graph.num_classes:
        raise ShoalError(
            f"{len(graph.class_names)} class names were given for {graph.num_classes} classes: expected one per class"
        )


def validate_topology(graph: Graph) -> None:
    """Raise unless indptr and indices are a CSR pattern with sorted rows and valid columns."""
    for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
        if not isinstance(array, np.ndarray):
            raise ShoalError(f"{name} is a {type(array).__name__}: expected an array of signed integers")
    n = graph.num_nodes if graph.indptr.ndim else 0
    if n < 1:
        raise ShoalError(f"the graph has {max(n, 0)} nodes: expected at least one")
    for name, array in (("indptr", graph.indptr), ("indices", graph.indices)):
        if array.ndim != 1 or array.dtype.kind != "i" or not array.dtype.isnative:
            raise ShoalError(
                f"{name} is {array.dtype} of shape {array.shape}: expected signed integers of one dimension"
            )
    if graph.indptr[0] != 0 or int(graph.indptr[-1]) != len(graph.indices):
        raise ShoalError(
            f"indptr runs from {graph.indptr[0]} to {graph.indptr[-1]}: expected 0 to {len(graph.indices)}, the length of indices"
        )
    row = first_fall(graph.indptr)
    if row >= 0:
        raise ShoalError(f"indptr decreases after row {row}: expected a non-decreasing array")
    if len(graph.indices):
        low, high = int(graph.indices.min()), int(graph.indices.max())
        if low < 0 or high >= n:
            at = int(np.argmax((graph.indices < 0) | (graph.indices >= n)))
            row = int(np.searchsorted(graph.indptr, at, "right")) - 1
            raise ShoalError(
                f"row {row} lists node {graph.indices[at]}: the graph has {n:,} nodes, 0 to {n - 1:,}"
            )
    row = first_bad_row(graph.indptr, graph.indices)
    if row >= 0:
        raise ShoalError(
            f"the columns of row {row} are unsorted or repeated: build the graph with Graph.from_edge_index"
        )
    if not graph.directed and not is_symmetric(graph.indptr, graph.indices):
        raise ShoalError(
            "the graph is declared undirected but some edges lack their reverse: give directed=True, or build it with directed=False"
        )


def first_fall(values: np.ndarray) -> int:
    """The first position whose successor is smaller, or -1. Reads by chunks: the array may be memory-mapped."""
    for start in range(0, len(values) - 1, _VALUES_AT_ONCE):
        chunk = values[start : start + _VALUES_AT_ONCE + 1]
        falls = chunk[1:] < chunk[:-1]
        if falls.any():
            return start + int(np.argmax(falls))
    return -1


def check_csr(name: str, indptr: np.ndarray, indices: np.ndarray, rows: int, columns: int) -> None:
    """Raise unless the arrays are a CSR pattern of `rows` × `columns`; rows may be unsorted."""
    for part, array in (("row pointers", indptr), ("columns", indices)):
        if array.ndim != 1 or array.dtype.kind not in "iu" or not array.dtype.isnative:
            raise ShoalError(
                f"the {part} of {name} are {array.dtype} of shape {array.shape}: expected integers of one dimension"
            )
    if (
        len(indptr) != rows + 1
        or indptr[0] != 0
        or int(indptr[-1]) != len(indices)
        or first_fall(indptr) >= 0
    ):
        raise ShoalError(
            f"the row pointers of {name} do not rise from 0 to {len(indices):,}, the number of its entries: expected a CSR matrix"
        )
    if len(indices) and (int(indices.min()) < 0 or int(indices.max()) >= columns):
        at = int(np.argmax((indices < 0) | (indices >= columns)))
        raise ShoalError(
            f"row {int(np.searchsorted(indptr, at, 'right')) - 1} of {name} has an entry in column {indices[at]}: {name} has {columns:,} columns"
        )


def check_truth(name: str, mask: np.ndarray) -> None:
    """Raise if a boolean array has bytes other than 0 and 1: compiled code may take them for true or false."""
    if mask.size and int(np.ascontiguousarray(mask).view(np.uint8).max()) > 1:
        raise ShoalError(f"{name} holds bytes other than 0 and 1: expected true or false")


def validate_names(names: Names) -> None:
    """Raise unless the offsets of node ids fit their text."""
    if not names.fits() or first_fall(names.offsets) >= 0:
        raise ShoalError("the offsets of the node ids do not fit their text: expected one id per node")


def validate_features(graph: Graph, x: Features) -> None:
    """Raise unless x has one finite float32 row per node."""
    if x.ndim != 2:
        raise ShoalError(f"x has shape {x.shape}: expected (num_nodes, num_features)")
    if x.shape[0] != graph.num_nodes:
        raise ShoalError(
            f"x has {x.shape[0]:,} rows but the graph has {graph.num_nodes:,} nodes: give one feature row per node"
        )
    if x.dtype != np.float32:
        raise ShoalError(f"x holds {x.dtype}: expected float32{_CONVERT if x.dtype.kind in 'fiub' else ''}")
    if isinstance(x, EncodedRows) and x.lost is not None:
        return  # encoded just now: the encoder rejects values that are not finite
    if not isinstance(x, sp.csr_array):
        for start in range(0, len(x), _ROWS_AT_ONCE):
            finite = np.isfinite(x[start : start + _ROWS_AT_ONCE]).all(axis=1)
            if not finite.all():
                raise _not_finite(start + int(np.argmin(finite)))
        return
    check_csr("x", x.indptr, x.indices, *x.shape)
    if x.data.shape != x.indices.shape:
        raise ShoalError(
            f"x has {len(x.data):,} values for {len(x.indices):,} entries: expected one value per entry"
        )
    if not np.isfinite(x.data).all():
        at = int(np.argmin(np.isfinite(x.data)))
        raise _not_finite(int(np.searchsorted(x.indptr, at, "right")) - 1)


def validate_labels(graph: Graph, y: np.ndarray) -> None:
    """Raise unless y has one valid label per node."""
    if y.ndim not in (1, 2) or (y.ndim == 1 and y.dtype.kind not in "iuf"):
        raise ShoalError(
            f"y is {y.dtype} of shape {y.shape}: expected integers (num_nodes,), a 0/1 matrix (num_nodes, num_classes), or float32 targets{_CONVERT if y.ndim == 1 else ''}"
        )
    if len(y) != graph.num_nodes:
        raise ShoalError(
            f"y has {len(y):,} rows but the graph has {graph.num_nodes:,} nodes: give one label per node"
        )
    if is_regression(y):
        _validate_targets(graph, y)
        return
    if y.ndim == 2:
        if y.shape[1] != graph.num_classes:
            raise ShoalError(
                f"the label matrix has {y.shape[1]:,} columns but num_classes is {graph.num_classes:,}: give one column per class"
            )
        wrong = ((y != 0) & (y != 1)).any(axis=1)
        if wrong.any():
            raise ShoalError(
                f"row {int(np.argmax(wrong))} of the label matrix holds a value other than 0 and 1"
            )
        if y.dtype != np.uint8:
            raise ShoalError(f"the label matrix holds {y.dtype}: expected uint8{_CONVERT}")
        return
    if y.dtype != np.int64:  # before the comparisons below, which are wrong for unsigned dtypes
        raise ShoalError(f"y holds {y.dtype}: expected int64{_CONVERT}")
    if graph.num_classes > max(graph.num_nodes, _MANY_CLASSES):
        raise ShoalError(
            f"the labels have {graph.num_classes:,} classes for {graph.num_nodes:,} nodes: number the classes 0, 1, 2, …"
        )
    outside = (y < -1) | (y >= graph.num_classes)
    if outside.any():
        node = int(np.argmax(outside))
        classes = f"0 to {graph.num_classes - 1}" if graph.num_classes else "a class number from 0"
        raise ShoalError(f"node {node} has label {y[node]}: expected {classes}, or -1 for unlabelled")


def _validate_targets(graph: Graph, y: np.ndarray) -> None:
    if y.dtype != np.float32:
        if y.ndim == 2 and ((y == 0) | (y == 1)).all():
            raise ShoalError(f"the label matrix holds {y.dtype}: expected uint8{_CONVERT}")
        raise ShoalError(f"y holds {y.dtype}: expected float32 targets{_CONVERT}")
    targets = 1 if y.ndim == 1 else y.shape[1]
    if graph.num_classes != targets:
        raise ShoalError(
            f"num_classes is {graph.num_classes:,} but y holds floats, {targets} per node: leave num_classes out for a regression"
        )
    infinite = np.isinf(y) if y.ndim == 1 else np.isinf(y).any(axis=1)
    if infinite.any():
        raise ShoalError(
            f"node {int(np.argmax(infinite))} has an infinite target: expected numbers, or NaN for unlabelled"
        )


def validate_split(graph: Graph) -> None:
    """Raise unless the masks are boolean, one value per node, disjoint, and have labelled nodes only."""
    masks = [(name, mask) for name in MASKS if (mask := getattr(graph, name)) is not None]
    for name, mask in masks:
        if mask.shape != (graph.num_nodes,) or mask.dtype != np.bool_:
            raise ShoalError(
                f"{name} is {mask.dtype} of shape {mask.shape}: expected bool of shape ({graph.num_nodes},)"
            )
        check_truth(name, mask)
    for i, (name, mask) in enumerate(masks):
        for other, other_mask in masks[:i]:
            both = mask & other_mask
            if both.any():
                raise ShoalError(
                    f"node {int(np.argmax(both))} is in {other} and in {name}: the split must not overlap"
                )
        if graph.y is not None:
            unlabelled = mask & ~find_labelled(graph.y)
            if unlabelled.any():
                raise ShoalError(
                    f"node {int(np.argmax(unlabelled))} is in {name} but has no label: leave unlabelled nodes out of the split"
                )
    if masks and (graph.train_mask is None or not graph.train_mask.any()):
        raise ShoalError("the training set is empty: train_mask must name at least one node")


def _not_finite(row: int) -> ShoalError:
    return ShoalError(f"row {row} of x holds NaN or infinity: every feature must be finite")
