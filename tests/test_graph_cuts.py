"""Graphs cut from graphs: splits, training graphs and subgraphs, and where their features come from."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import ShoalError
from shoal.graph import MASKS, Graph
from shoal.names import Names

many = settings(max_examples=60, deadline=None)
ARCS = np.array([[0, 1, 2], [1, 2, 0]])  # 0 → 1 → 2 → 0


def adjacency(graph):
    return sp.csr_array(
        (np.ones(graph.num_entries), graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2
    )


def make_labelled(num_nodes=60, sparse=False, seed=0):
    """A random directed graph with features that name their node, labels and a split."""
    rng = np.random.default_rng(seed)
    x = np.arange(num_nodes * 3, dtype=np.float32).reshape(-1, 3)
    graph = Graph.from_edge_index(
        rng.integers(0, num_nodes, (2, 6 * num_nodes)),
        num_nodes,
        directed=True,
        x=sp.csr_array(x) if sparse else x,
        y=np.arange(num_nodes) % 4,
    )
    return graph.with_split(seed=seed)


def dense(x):
    return x.toarray() if sp.issparse(x) else x


@pytest.mark.parametrize("sparse", [False, True])
@many
@given(seed=st.integers(0, 1000))
def test_inductive_training_graph_holds_no_validation_or_test_node_or_edge(sparse, seed):
    graph = make_labelled(sparse=sparse, seed=seed)
    seen = graph.train_graph("inductive")
    np.testing.assert_array_equal(seen.n_id, np.flatnonzero(graph.train_mask))
    assert seen.train_mask.all()
    assert not seen.val_mask.any()
    assert not seen.test_mask.any()
    expected = adjacency(graph).toarray()[np.ix_(seen.n_id, seen.n_id)]
    np.testing.assert_array_equal(adjacency(seen).toarray(), expected)
    np.testing.assert_array_equal(dense(seen.x), dense(graph.x)[graph.train_mask])
    np.testing.assert_array_equal(seen.y, graph.y[graph.train_mask])
    assert seen.num_classes == graph.num_classes
    seen.validate()


def test_transductive_training_graph_is_the_whole_graph():
    graph = make_labelled()
    assert graph.train_graph("transductive") is graph


def test_training_graph_refuses_an_unknown_setting_and_a_missing_split():
    with pytest.raises(ShoalError, match="unknown setting 'inductiv': did you mean 'inductive'"):
        make_labelled().train_graph("inductiv")
    with pytest.raises(ShoalError, match="has no split"):
        Graph.from_edge_index(ARCS).train_graph()


@pytest.mark.parametrize("sparse", [False, True])
def test_features_of_a_nested_subgraph_come_from_the_first_graph_without_a_copy_between(sparse):
    graph = make_labelled(sparse=sparse)
    middle = graph.subgraph(np.arange(10, 40))
    inner = middle.subgraph(np.array([2, 5, 7]))
    assert inner.num_features == 3
    np.testing.assert_array_equal(inner.global_ids(np.arange(3)), [12, 15, 17])
    np.testing.assert_array_equal(dense(inner.take_features(np.array([2, 0]))), dense(graph.x)[[17, 12]])
    np.testing.assert_array_equal(dense(inner.x), dense(graph.x)[[12, 15, 17]])
    assert middle._x is None


def test_subgraph_of_a_graph_without_features_has_none():
    part = Graph.from_edge_index(ARCS).subgraph(np.array([0, 1]))
    assert part.x is None
    assert part.num_features == 0
    with pytest.raises(ShoalError, match="has no features"):
        part.take_features(np.array([0]))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([2, 0], "node 0 follows node 2: expected increasing numbers"),
        ([1, 1], "node 1 follows node 1: expected increasing numbers"),
        ([0, 3], "nodes run from 0 to 3: the graph has 3 nodes"),
        ([True, False, True], "nodes are bool of shape .* expected node numbers"),
    ],
)
def test_subgraph_refuses_nodes_that_are_not_increasing_numbers(nodes, message):
    with pytest.raises(ShoalError, match=message):
        Graph.from_edge_index(ARCS).subgraph(np.array(nodes))


def test_split_covers_labelled_nodes_once_in_the_shares_asked_for():
    y = np.arange(1000) % 5
    y[:100] = -1
    plain = Graph.from_edge_index(ARCS, 1000, y=y)
    graph = plain.with_split(0.5, 0.3, seed=1)
    masks = [getattr(graph, name) for name in MASKS]
    assert [int(mask.sum()) for mask in masks] == [450, 270, 180]
    np.testing.assert_array_equal(sum(mask.astype(int) for mask in masks), y >= 0)
    assert graph.notices[-1] == "no split given: drew 50% / 30% / 20% with seed 1"
    assert not plain.has_split


def test_a_split_that_replaces_another_says_so_once():
    graph = Graph.from_edge_index(ARCS, 100, y=np.zeros(100, int), notices=("merged something",))
    twice = graph.with_split(seed=1).with_split(seed=2)
    said = "replaced the split: drew 60% / 20% / 20% with seed 2"
    assert twice.notices == ("merged something", said)
    assert twice.with_split(seed=2).notices == twice.notices
    given = Graph.from_edge_index(ARCS, 100, y=np.zeros(100, int), train_mask=np.ones(100, bool))
    assert given.with_split(seed=2).notices == (said,)


def test_a_subgraph_keeps_the_names_of_its_nodes_and_classes():
    names = Names.from_texts(["änn", "", "bob", "c"])
    graph = Graph.from_edge_index(ARCS, 4, y=[0, 1, 0, 1], node_ids=names, class_names=("red", "blue"))
    part = graph.subgraph(np.array([0, 1, 3]))
    assert list(part.node_ids) == ["änn", "", "c"]
    assert part.class_names == ("red", "blue")
    assert part.subgraph(np.array([2])).node_ids[0] == "c"
    numbered = Graph.from_edge_index(ARCS, 4, node_ids=np.array([7, 5, 9, 1]))
    assert numbered.subgraph(np.array([1, 2])).node_ids.tolist() == [5, 9]
    plain = Graph.from_edge_index(ARCS, 4)
    assert plain.subgraph(np.array([1, 2])).node_ids.tolist() == [1, 2]
    assert plain.subgraph(np.arange(4)).node_ids is None
    assert len(graph.subgraph(np.array([], int)).node_ids) == 0


def test_split_depends_on_the_seed_alone():
    graph = Graph.from_edge_index(ARCS, 100, y=np.zeros(100, int))
    one, same, other = (graph.with_split(seed=seed).train_mask for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


@pytest.mark.parametrize("shares", [(0, 0.5), (0.8, 0.3), (0.5, -0.1), (float("nan"), 0.1)])
def test_impossible_split_is_refused(shares):
    with pytest.raises(ShoalError, match=r"a split of .* is impossible"):
        Graph.from_edge_index(ARCS, y=[0, 1, 0]).with_split(*shares)


def test_split_without_labels_or_with_too_few_nodes_is_refused():
    with pytest.raises(ShoalError, match="has no labels"):
        Graph.from_edge_index(ARCS).with_split()
    with pytest.raises(ShoalError, match="the training set is empty"):
        Graph.from_edge_index(ARCS, y=[0, 1, 0]).with_split(train=0.1)
