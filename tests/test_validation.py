"""Each refusal of validate(), by its message."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

from shoal.errors import ShoalError
from shoal.graph import Graph

RING = {"indptr": np.array([0, 2, 4, 6]), "indices": np.array([1, 2, 0, 2, 0, 1], np.int32)}


def ring(**changes):
    """A triangle, sound but for the changes."""
    return Graph(**{**RING, **changes})


def masks(train, val):
    return {"train_mask": np.array(train, bool), "val_mask": np.array(val, bool)}


def features(bad_value):
    x = np.ones((3, 2), np.float32)
    x[1, 1] = bad_value
    return x


REFUSALS = {
    "no nodes": ({"indptr": np.array([0]), "indices": np.array([], np.int32)}, "the graph has 0 nodes"),
    "float indices": (
        {"indices": RING["indices"] * 1.0},
        "indices is float64 of shape (6,): expected signed",
    ),
    "matrix indptr": ({"indptr": np.zeros((4, 1), int)}, "indptr is int64 of shape (4, 1): expected signed"),
    "short indptr": ({"indptr": np.array([0, 2, 4, 5])}, "indptr runs from 0 to 5: expected 0 to 6"),
    "late indptr": ({"indptr": np.array([1, 2, 4, 6])}, "indptr runs from 1 to 6: expected 0 to 6"),
    "falling indptr": ({"indptr": np.array([0, 5, 4, 6])}, "indptr decreases after row 1"),
    "far column": (
        {"indices": np.array([1, 2, 0, 7, 0, 1])},
        "row 1 lists node 7: the graph has 3 nodes, 0 to 2",
    ),
    "negative column": ({"indices": np.array([1, 2, 0, 2, -1, 1])}, "row 2 lists node -1: the graph has 3"),
    "unsorted row": ({"indices": np.array([1, 2, 2, 0, 0, 1])}, "columns of row 1 are unsorted or repeated"),
    "repeated column": (
        {"indices": np.array([1, 2, 0, 2, 1, 1])},
        "columns of row 2 are unsorted or repeated",
    ),
    "one-way edge": (
        {"indices": np.array([0, 2, 0, 2, 0, 1])},
        "declared undirected but some edges lack their reverse",
    ),
    "flat x": ({"x": np.ones(3, np.float32)}, "x has shape (3,): expected (num_nodes, num_features)"),
    "short x": ({"x": np.ones((2, 2), np.float32)}, "x has 2 rows but the graph has 3 nodes"),
    "integer x": (
        {"x": np.ones((3, 2), int)},
        "x holds int64: expected float32; the Graph.from_* constructors, such as Graph.from_edge_index, convert it",
    ),
    "double x": ({"x": np.ones((3, 2))}, "x holds float64: expected float32; the Graph.from_* constructors"),
    "foreign byte order in x": ({"x": np.ones((3, 2), ">f4")}, "x holds >f4: expected float32"),
    "double sparse x": ({"x": sp.csr_array(np.ones((3, 2)))}, "x holds float64: expected float32"),
    "unsigned y": (
        {"y": np.array([0, 1, 2], np.uint8)},
        "y holds uint8: expected int64; the Graph.from_* constructors",
    ),
    "short integers in y": ({"y": np.array([0, 1, -1], np.int32)}, "y holds int32: expected int64"),
    "double label matrix": (
        {"y": np.eye(3)},
        "the label matrix holds float64: expected uint8; the Graph.from_* constructors",
    ),
    "NaN in x": ({"x": features(np.nan)}, "row 1 of x holds NaN or infinity"),
    "infinity in x": ({"x": features(-np.inf)}, "row 1 of x holds NaN or infinity"),
    "NaN in sparse x": ({"x": sp.csr_array(features(np.nan))}, "row 1 of x holds NaN or infinity"),
    "far column in sparse x": (
        {"x": sp.csr_array((np.ones(1, np.float32), np.array([5]), np.array([0, 0, 1, 1])), shape=(3, 2))},
        "row 1 of x has an entry in column 5: x has 2 columns",
    ),
    "short y": ({"y": np.array([0, 1])}, "y has 2 rows but the graph has 3 nodes"),
    "double targets": (
        {"y": np.array([0.5, 1, 2])},
        "y holds float64: expected float32 targets; the Graph.from_*",
    ),
    "infinite target": (
        {"y": np.array([0.5, np.inf, 2], np.float32)},
        "node 1 has an infinite target: expected numbers, or NaN for unlabelled",
    ),
    "classes of targets": (
        {"y": np.array([0.5, 1, 2], np.float32), "num_classes": 3},
        "num_classes is 3 but y holds floats, 1 per node: leave num_classes out for a regression",
    ),
    "unlabelled target in the split": (
        {"y": np.array([0.5, np.nan, 2], np.float32), "train_mask": np.array([True, True, False])},
        "node 1 is in train_mask but has no label",
    ),
    "scalar y": ({"y": np.array(1)}, "y is int64 of shape (): expected integers"),
    "cube y": ({"y": np.zeros((3, 2, 2), int)}, "y is int64 of shape (3, 2, 2): expected integers"),
    "label -2": ({"y": np.array([0, -2, 1])}, "node 1 has label -2: expected 0 to 1, or -1 for unlabelled"),
    "labels all negative": (
        {"y": np.array([-5, -5, -5])},
        "node 0 has label -5: expected a class number from 0, or -1 for unlabelled",
    ),
    "label too large": ({"y": np.array([0, 1, 4]), "num_classes": 3}, "node 2 has label 4: expected 0 to 2"),
    "label matrix of counts": (
        {"y": np.array([[0, 1], [1, 2], [0, 0]])},
        "row 1 of the label matrix holds a value",
    ),
    "label matrix too narrow": (
        {"y": np.zeros((3, 2), np.uint8), "num_classes": 4},
        "the label matrix has 2 columns but num_classes is 4",
    ),
    "integer mask": ({"train_mask": np.array([1, 0, 0])}, "train_mask is int64 of shape (3,): expected bool"),
    "short mask": (masks([1, 0], [0, 0, 1]), "train_mask is bool of shape (2,): expected bool of shape (3,)"),
    "overlap": (masks([1, 1, 0], [0, 1, 1]), "node 1 is in train_mask and in val_mask"),
    "unlabelled in split": (
        {"y": np.array([0, 1, -1]), **masks([1, 0, 0], [0, 0, 1])},
        "node 2 is in val_mask but has no label",
    ),
    "empty training set": (masks([0, 0, 0], [0, 0, 1]), "the training set is empty"),
    "no training set": ({"val_mask": np.ones(3, bool)}, "the training set is empty"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_graph_is_refused_naming_what_is_wrong(case):
    changes, message = REFUSALS[case]
    with pytest.raises(ShoalError, match=re.escape(message)):
        ring(**changes)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"x": features(0), "y": np.array([0, 1, -1]), **masks([1, 0, 0], [0, 1, 0])},
        {"x": sp.csr_array(features(0)), "y": np.eye(3, dtype=np.uint8)},
        {"indptr": np.array([0, 0, 0]), "indices": np.array([], np.int32)},
        {"indices": np.array([0, 2, 0, 1, 1, 2]), "directed": True},
    ],
)
def test_sound_graph_is_returned_as_it_is(fields):
    graph = ring(**fields)
    assert graph.validate() is graph


def test_row_of_a_bad_feature_is_named_beyond_the_first_block_of_rows():
    n = (1 << 16) + 10
    x = np.zeros((n, 1), np.float32)
    x[n - 2] = np.nan
    with pytest.raises(ShoalError, match=f"row {n - 2} of x"):
        Graph(np.zeros(n + 1, np.int64), np.array([], np.int32), x=x)
