"""What labels are: classes, 0/1 matrices or targets of a regression."""

import numpy as np
import pandas
import pytest

import shoal
from shoal.datasets.describe import describe_graph
from shoal.errors import ShoalError
from shoal.names import Names


def make_graph(y, **fields):
    n = len(y)
    return shoal.Graph.from_edge_index(
        [list(range(n - 1)), list(range(1, n))], n, directed=False, y=y, **fields
    )


@pytest.mark.parametrize(
    ("y", "task", "expected"),
    [
        ([0, 2, 1], None, [0, 2, 1]),
        ([0.0, 2.0, np.nan], None, [0, 2, -1]),
        ([0.0, 2.5, np.nan], None, np.array([0, 2.5, np.nan], np.float32)),
        ([[0.5], [1.0], [2.0]], None, np.array([0.5, 1, 2], np.float32)),
        ([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]], None, np.array([[1, 0], [0, 0], [1, 1]], np.uint8)),
        ([[1.0, 0.3], [0.0, 0.0], [1.0, 1.0]], None, np.array([[1, 0.3], [0, 0], [1, 1]], np.float32)),
        ([0, -7, 1], "regression", np.array([0, -7, 1], np.float32)),
        ([0.0, 2.0, 1.0], "classification", [0, 2, 1]),
    ],
)
def test_labels_with_fractions_are_targets_unless_the_task_says_otherwise(y, task, expected):
    graph = make_graph(np.array(y), **({} if task is None else {"task": task}))
    assert graph.y.dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(graph.y, expected)
    assert graph.regression == (graph.y.dtype == np.float32)
    assert not (graph.regression and graph.multi_label)


def test_names_and_other_objects_are_classes_and_missing_ones_are_unlabelled():
    given = [
        np.array(["b", "a", "b"]),
        np.array([["b"], ["a"], ["b"]]),
        pandas.Series(["b", "a", "b"], dtype="category"),
    ]
    for y in given:
        graph = make_graph(y)
        assert (graph.y.tolist(), graph.class_names) == ([1, 0, 1], ("a", "b"))
    for missing in (None, np.nan, pandas.NA, ""):
        graph = make_graph(np.array(["b", missing, "a", "b"], object)).with_split(0.5, 0.25)
        assert (graph.y.tolist(), graph.class_names) == ([1, -1, 0, 1], ("a", "b"))
        numbers = make_graph(np.array([2, missing, 0], object))
        assert (numbers.y.tolist(), numbers.class_names) == ([2, -1, 0], None)
    assert make_graph(np.array(["b", np.nan])).y.tolist() == [0, -1]  # NumPy makes text of NaN
    assert make_graph(np.array([None, 0.5], object)).regression
    ordered = make_graph(np.array(["b", "a"]), class_names=["c", "b", "a"])
    assert (ordered.y.tolist(), ordered.num_classes) == ([1, 2], 3)


def test_names_that_are_no_classes_are_refused():
    with pytest.raises(ShoalError, match="node 1 has label 'd': expected one of class_names, a, b"):
        make_graph(np.array(["a", "d", "b"]), class_names=["a", "b"])
    with pytest.raises(ShoalError, match=r"y is <U1 of shape .*or float32 targets"):
        make_graph(np.array(["a", "b"]), task="regression")
    with pytest.raises(ShoalError, match="y is object of shape"):
        make_graph(np.array([["a"], ["b", "c"]], dtype=object))


def test_classes_with_fractions_and_unknown_tasks_are_refused():
    with pytest.raises(ShoalError, match=r"node 1 has label 0\.5: classes are whole numbers"):
        make_graph(np.array([0, 0.5]), task="classification")
    with pytest.raises(ShoalError, match="did you mean 'regression'"):
        make_graph(np.array([0, 0.5]), task="regresion")


def test_targets_are_counted_described_and_split_where_they_are_known():
    y = np.arange(40, dtype=np.float32)[:, None] * [0.5, 2]
    y[:4], y[5, 0] = np.nan, np.nan
    graph = make_graph(y, class_names=["price", "area"]).with_split()
    assert (graph.num_classes, graph.class_names) == (2, ("price", "area"))
    assert "2 targets" in repr(graph)
    assert "multi-label" not in repr(graph)
    assert int(graph.train_mask.sum() + graph.val_mask.sum() + graph.test_mask.sum()) == 36
    assert not graph.train_mask[:4].any()
    targets = describe_graph(graph).targets
    assert (targets.count, targets.least, targets.most, targets.unlabelled) == (2, 2, 78, 4)
    assert targets.mean == pytest.approx(np.nanmean(y))
    assert describe_graph(graph).labels is None


def test_targets_survive_storing_and_cutting(tmp_path):
    graph = make_graph(np.array([0.25, np.nan, -3, 8.5], np.float32))
    shoal.save_graph(graph, tmp_path / "g")
    stored = shoal.open_graph(tmp_path / "g").validate()
    np.testing.assert_array_equal(stored.y, graph.y)
    assert stored.regression
    assert stored.subgraph(np.array([0, 3])).y.tolist() == [0.25, 8.5]


def test_names_are_a_sequence_that_pandas_takes():
    names = Names.from_texts(["ash", "élan", "oak", "yew"])
    assert (names[-1], names[1:3], list(names)) == ("yew", ["élan", "oak"], ["ash", "élan", "oak", "yew"])
    assert pandas.DataFrame({"id": names})["id"].tolist() == list(names)
    assert repr(names) == "Names('ash', 'élan', 'oak', …, 4 in all)"
    with pytest.raises(IndexError):
        names[4]
