"""Graph: how it is built, which way arcs point, what its values become."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings

from random_graphs import edges
from shoal.errors import ShoalError
from shoal.graph import Graph

many = settings(max_examples=60, deadline=None)
ARCS = np.array([[0, 1, 2], [1, 2, 0]])  # 0 → 1 → 2 → 0


def neighbours(graph, node):
    return graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist()


def adjacency(graph):
    return sp.csr_array(
        (np.ones(graph.num_entries), graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2
    )


def dense(x):
    return x.toarray() if sp.issparse(x) else x


def test_target_of_an_arc_aggregates_from_its_source():
    graph = Graph.from_edge_index(ARCS, directed=True)
    assert [neighbours(graph, node) for node in range(3)] == [[2], [0], [1]]


def test_scipy_row_aggregates_from_the_columns_it_stores():
    graph = Graph.from_scipy(sp.csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0]])))
    assert [neighbours(graph, node) for node in range(3)] == [[1, 2], [], [0]]
    assert graph.directed


def test_networkx_arc_makes_its_head_aggregate_from_its_tail():
    source = nx.DiGraph([("a", "b"), ("c", "b")])
    graph = Graph.from_networkx(source)
    assert [neighbours(graph, node) for node in range(3)] == [[], [0, 2], []]


def test_networkx_undirected_graph_takes_its_attributes_along():
    source = nx.path_graph(4)
    for node in source:
        source.nodes[node].update(x=[float(node), 1.0], y=node % 2, train_mask=node < 2)
    graph = Graph.from_networkx(source)
    assert not graph.directed
    assert graph.num_edges == 3
    np.testing.assert_array_equal(graph.x[:, 0], [0, 1, 2, 3])
    np.testing.assert_array_equal(graph.y, [0, 1, 0, 1])
    np.testing.assert_array_equal(graph.train_mask, [True, True, False, False])


def test_networkx_attribute_missing_on_one_node_is_refused_by_name():
    source = nx.path_graph(3)
    source.nodes[0]["y"] = source.nodes[2]["y"] = 1
    assert Graph.from_networkx(source).y.tolist() == [1, -1, 1]  # without a label, as in tables
    source.nodes[0]["x"] = source.nodes[2]["x"] = [1.0]
    with pytest.raises(ShoalError, match="node 1 has no attribute 'x' but other nodes have"):
        Graph.from_networkx(source)


@pytest.mark.parametrize("layout", ["dense", "coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_pyg_data_becomes_a_graph_with_the_same_features(layout):
    x = torch.tensor([[1.0, 0], [0, 2], [0, 0]])
    given_x = {"dense": x, "coo": x.to_sparse(), "csr": x.to_sparse_csr()}[layout]
    data = SimpleNamespace(
        edge_index=torch.tensor(ARCS), num_nodes=3, x=given_x, y=torch.tensor([0, 1, 0]), train_mask=None
    )
    graph = Graph.from_pyg(data)
    assert sp.issparse(graph.x) == (layout != "dense")
    np.testing.assert_array_equal(dense(graph.x), x.numpy())
    assert neighbours(graph, 1) == [0]
    assert (graph.num_classes, graph.has_split) == (2, False)


@many
@given(edges())
def test_undirected_graph_holds_every_edge_both_ways_and_counts_it_once(case):
    n, sources, targets = case
    graph = Graph.from_edge_index(np.stack([sources, targets]), n, directed=False)
    distinct = {frozenset(pair) for pair in zip(sources.tolist(), targets.tolist())}
    matrix = adjacency(graph).toarray()
    np.testing.assert_array_equal(matrix, matrix.T)
    assert {frozenset(pair) for pair in zip(*np.nonzero(matrix))} == distinct
    assert graph.num_edges == len(distinct)
    assert graph.num_self_loops == sum(len(pair) == 1 for pair in distinct)
    merged = len(sources) - len(distinct)
    said = f"merged {merged} duplicate edges (an edge and its reverse are one)"
    assert graph.notices == ((said,) if merged else ())


@many
@given(edges())
def test_direction_is_recognised_when_it_is_not_given(case):
    n, sources, targets = case
    graph = Graph.from_edge_index(np.stack([sources, targets]), n)
    arcs = set(zip(sources.tolist(), targets.tolist()))
    assert graph.directed == any((v, u) not in arcs for u, v in arcs)
    assert graph.num_entries == len(arcs)


def test_number_of_nodes_is_taken_from_features_or_else_from_edges():
    assert Graph.from_edge_index(ARCS).num_nodes == 3
    assert Graph.from_edge_index(ARCS, y=[0, 0, 1, 1, 0]).num_nodes == 5
    assert Graph.from_edge_index([[], []], x=np.ones((4, 2))).num_nodes == 4


def test_values_are_stored_as_float32_features_int64_labels_and_bool_masks():
    graph = Graph.from_edge_index(
        ARCS, x=np.ones((3, 2), np.float64), y=np.array([[0.0], [1.0], [2.0]]), train_mask=[1, 0, 1]
    )
    assert (graph.x.dtype, graph.y.dtype, graph.train_mask.dtype) == (np.float32, np.int64, np.bool_)
    assert graph.y.shape == (3,)
    several = Graph.from_edge_index(ARCS, y=np.array([[0.0, 1], [1, 1], [0, 0]]))
    assert several.multi_label
    assert (several.y.dtype, several.num_classes) == (np.uint8, 2)


def test_the_callers_sparse_features_stay_as_they_are():
    x = sp.csr_array(
        (np.array([1, 2, 4], np.float32), np.array([1, 0, 1]), np.array([0, 3, 3, 3])), shape=(3, 2)
    )
    graph = Graph.from_edge_index(ARCS, x=x)
    assert (x.data.tolist(), x.indices.tolist(), x.indptr.tolist()) == ([1, 2, 4], [1, 0, 1], [0, 3, 3, 3])
    np.testing.assert_array_equal(graph.x.toarray(), [[2, 5], [0, 0], [0, 0]])
    assert graph.x.nnz == 2


@pytest.mark.parametrize(
    ("ends", "num_nodes", "message"),
    [
        ([[0, 3], [1, 1]], 3, "edge end 3 is out of range: the graph has 3 nodes, 0 to 2"),
        ([[0, -1], [1, 1]], 3, "edge end -1 is out of range"),
        (
            [[0.5], [1.0]],
            3,
            r"edge_index is float64 of shape \(2, 1\): expected integers, .*edge_index\.long\(\)",
        ),
        ([0, 1], 3, r"edge_index has shape \(2,\): expected \(2, num_edges\)"),
        ([[0], [1], [2]], 3, r"edge_index has shape \(3, 1\)"),
        ([[], []], 0, "the graph has 0 nodes: expected at least one"),
        ([[], []], None, "the graph has 0 nodes: expected at least one"),
    ],
)
def test_impossible_edges_are_refused(ends, num_nodes, message):
    with pytest.raises(ShoalError, match=message):
        Graph.from_edge_index(ends, num_nodes)


def test_chunks_of_numbers_that_are_not_whole_are_refused():
    with pytest.raises(ShoalError, match=r"edge ends are float64 of shape .* expected integers"):
        Graph.from_edge_chunks([(np.array([0.5]), np.array([1.0]))], 3)


def test_chunks_with_unequal_ends_are_refused():
    with pytest.raises(ShoalError, match="2 sources were given for 1 targets"):
        Graph.from_edge_chunks([(np.array([0, 1]), np.array([1]))], 3)


def test_adjacency_that_is_not_square_is_refused():
    with pytest.raises(ShoalError, match="the adjacency is 2 × 3: expected a square matrix"):
        Graph.from_scipy(np.ones((2, 3)))


def test_checksum_follows_topology_and_split_but_not_features():
    def checksum(**changes):
        fields = {"edge_index": ARCS, "y": [0, 1, 0], "train_mask": [1, 0, 0], "x": np.ones((3, 1))}
        return Graph.from_edge_index(**{**fields, **changes}).checksum

    assert checksum() == checksum(x=np.zeros((3, 1)))
    assert checksum() != checksum(train_mask=[0, 1, 0])
    assert checksum() != checksum(edge_index=ARCS[::-1])


def test_content_checksum_follows_features_labels_and_the_sets_to_evaluate_on():
    def checksum(**changes):
        fields = {"edge_index": ARCS, "y": [0, 1, 0], "x": np.ones((3, 1)), "train_mask": [1, 0, 0]}
        fields |= {"val_mask": [0, 1, 0], "test_mask": [0, 0, 1]}
        return Graph.from_edge_index(**{**fields, **changes}).content_checksum

    changes = [
        {"x": np.zeros((3, 1))},
        {"x": sp.csr_array(np.ones((3, 1)))},
        {"y": [1, 1, 0]},
        {"val_mask": [0, 0, 0]},
        {"val_mask": [0, 0, 1], "test_mask": [0, 1, 0]},
    ]
    assert checksum() == checksum()
    assert len({checksum(), *(checksum(**change) for change in changes)}) == 1 + len(changes)


def test_a_graph_shows_its_weights_and_labels():
    plain = Graph.from_edge_index(ARCS, y=[0, 1, 0])
    assert repr(plain).endswith("directed, 0 features, 2 classes)")
    weighted = Graph.from_edge_index(ARCS, y=[[0, 1], [1, 1], [0, 0]], edge_weight=[2.0] * len(ARCS[0]))
    assert repr(weighted).endswith("directed, weighted, 0 features, 2 classes, multi-label)")
