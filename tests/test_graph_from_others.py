"""Graph.from_pyg, from_networkx, from_scipy: what is taken along, and clear refusals."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch

from shoal.errors import ShoalError
from shoal.graph import Graph


def make_data(**fields):
    return SimpleNamespace(edge_index=torch.tensor([[0, 0, 2], [1, 2, 1]]), num_nodes=3, **fields)


def test_pyg_data_keeps_direction_features_labels_and_masks():
    data = make_data(
        x=torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64),
        y=torch.tensor([[1], [0], [1]]),
        train_mask=torch.tensor([True, False, False]),
    )
    graph = Graph.from_pyg(data)
    assert graph.directed
    assert graph.indptr.tolist() == [0, 0, 2, 3]
    assert graph.indices.tolist() == [0, 2, 0]
    assert graph.x.dtype == np.float32
    assert graph.y.tolist() == [1, 0, 1]
    assert graph.train_mask.tolist() == [True, False, False]
    assert not Graph.from_pyg(data, directed=False).directed


def test_pyg_object_is_read():
    geometric = pytest.importorskip("torch_geometric.data")
    data = geometric.Data(
        x=torch.eye(2), edge_index=torch.tensor([[0, 1], [1, 0]]), y=torch.tensor([0.0, 1.0])
    )
    graph = Graph.from_pyg(data)
    assert (graph.directed, graph.num_edges, graph.y.tolist()) == (False, 1, [0, 1])
    with pytest.raises(ShoalError, match="no edge_index"):
        Graph.from_pyg(geometric.Data(x=torch.eye(2)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"train_mask": torch.ones(3, 10, dtype=torch.bool)},
            r"train_mask has 10 columns, one per split.*mask\[:, 0\]",
        ),
        ({"y": torch.tensor([0.5, 1.0, float("inf")])}, "node 2 has an infinite target"),
        ({"x": torch.ones(2, 4)}, "x has 2 rows but the graph has 3 nodes"),
        ({"x": torch.tensor([[1.0], [float("nan")], [1.0]])}, "row 1 of x holds NaN"),
        ({"train_mask": torch.tensor([0, 2])}, "train_mask is int64 of shape"),
    ],
)
def test_pyg_oddities_are_refused(fields, message):
    with pytest.raises(ShoalError, match=message):
        Graph.from_pyg(make_data(**fields))


def test_heterogeneous_and_transposed_graphs_of_pyg_are_refused_with_what_to_do():
    geometric = pytest.importorskip("torch_geometric.data")
    hetero = geometric.HeteroData()
    hetero["paper"].x = torch.ones(3, 2)
    with pytest.raises(
        ShoalError, match=r"heterogeneous graphs are not supported, give data\.to_homogeneous"
    ):
        Graph.from_pyg(hetero)
    with pytest.raises(ShoalError, match="no edge_index but adj_t: convert it before ToSparseTensor"):
        Graph.from_pyg(geometric.Data(x=torch.eye(2), adj_t=torch.eye(2).to_sparse()))


def test_pyg_features_that_are_too_few_are_blamed_and_not_the_edges():
    geometric = pytest.importorskip("torch_geometric.data")
    data = geometric.Data(x=torch.ones(2, 4), edge_index=torch.tensor([[0, 2], [1, 0]]))
    with pytest.raises(
        ShoalError, match=r"x has 2 rows but edge_index names node 2: .* or correct edge_index"
    ):
        Graph.from_pyg(data)


def test_pyg_edge_attributes_beside_weights_are_left_out_with_a_notice():
    graph = Graph.from_pyg(make_data(edge_weight=torch.ones(3), edge_attr=torch.ones(3, 2)))
    assert graph.notices == ("left out edge_attr: an edge has at most one weight",)


def test_pyg_attributes_without_a_place_are_named_in_one_notice():
    geometric = pytest.importorskip("torch_geometric.data")
    edges = torch.tensor([[0, 1, 2], [1, 0, 0]])
    data = geometric.Data(x=torch.ones(3, 2), edge_index=edges, pos=torch.ones(3, 2), year=torch.ones(3))
    assert Graph.from_pyg(data).notices == ("left out pos, year: a Graph has x, y, masks and edge_weight",)
    data.edge_attr = torch.ones(3, 2)
    said = "left out edge_attr, pos, year: a Graph has x, y, masks and edge_weight"
    assert Graph.from_pyg(data).notices == (said,)


def test_pyg_sparse_features_stay_sparse():
    graph = Graph.from_pyg(make_data(x=torch.eye(3).to_sparse()))
    assert sp.issparse(graph.x)
    assert graph.x.toarray().tolist() == np.eye(3).tolist()


def test_networkx_nodes_are_numbered_in_graph_order():
    graph = nx.DiGraph()
    graph.add_node("b", x=[1.0, 2.0], y=1)
    graph.add_node("a", x=[3.0, 4.0], y=0)
    graph.add_edge("b", "a")
    found = Graph.from_networkx(graph)
    assert (found.directed, found.indptr.tolist(), found.indices.tolist()) == (True, [0, 0, 1], [0])
    assert found.x.tolist() == [[1, 2], [3, 4]]
    assert found.y.tolist() == [1, 0]
    assert [found.node_ids[i] for i in range(2)] == ["b", "a"]
    assert Graph.from_networkx(graph.to_undirected()).num_entries == 2
    graph.add_node("c")
    with pytest.raises(ShoalError, match="node 'c' has no attribute 'x'"):
        Graph.from_networkx(graph)


def test_networkx_labels_are_names_and_a_node_without_one_is_unlabelled():
    g = nx.karate_club_graph()
    for node in list(g)[:-1]:
        g.nodes[node]["y"] = g.nodes[node]["club"]
    graph = Graph.from_networkx(g)
    assert graph.class_names == ("Mr. Hi", "Officer")
    assert graph.y.tolist() == [*(int(g.nodes[node]["club"] == "Officer") for node in list(g)[:-1]), -1]


def test_networkx_numbers_are_kept_unless_they_are_the_order():
    assert Graph.from_networkx(nx.path_graph(3)).node_ids is None
    graph = nx.Graph([(30, 7)])
    assert Graph.from_networkx(graph).node_ids.tolist() == [30, 7]


def test_networkx_uneven_features_are_refused():
    graph = nx.Graph()
    graph.add_node(0, x=[1.0])
    graph.add_node(1, x=[1.0, 2.0])
    with pytest.raises(ShoalError, match="attribute 'x' of the nodes differs in length"):
        Graph.from_networkx(graph)


def test_scipy_rows_aggregate_from_their_columns():
    matrix = sp.csr_matrix(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    graph = Graph.from_scipy(matrix)
    assert (graph.directed, graph.indptr.tolist(), graph.indices.tolist()) == (True, [0, 1, 2, 2], [1, 2])
    with pytest.raises(ShoalError, match="2 × 3: expected a square matrix"):
        Graph.from_scipy(sp.csr_matrix((2, 3)))


def test_list_of_chunks_is_emptied_and_a_tuple_is_not():
    chunks = [(np.array([0]), np.array([1])), (np.array([1]), np.array([2]))]
    kept = tuple(chunks)
    graph = Graph.from_edge_chunks(chunks, 3)
    assert chunks == []
    assert graph.indices.tolist() == [0, 1]
    assert Graph.from_edge_chunks(kept, 3).indices.tolist() == [0, 1]
    assert len(kept) == 2


def test_features_with_fewer_rows_than_nodes_are_blamed_not_the_edges():
    edges = np.array([[0, 499], [1, 2]])
    with pytest.raises(ShoalError, match="x has 100 rows and edge_index names node 499: expected a row for"):
        Graph.from_edge_index(edges, x=np.zeros((100, 3)), y=np.zeros(500, np.int64))
