"""Edge weights from arrays, PyG, networkx and files: taken, added up, or refused in a sentence."""

from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
import torch

import shoal
from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError
from weighted_graphs import make_dense, make_random


def test_weights_given_by_edge_are_placed_and_duplicates_add_up():
    edges = np.array([[0, 1, 0, 2], [1, 2, 1, 0]])
    graph = shoal.Graph.from_edge_index(edges, 3, directed=True, edge_weight=[1, 2, 0.5, 4])
    assert make_dense(graph).tolist() == [[0, 0, 4], [1.5, 0, 0], [0, 2, 0]]
    graph = shoal.Graph.from_edge_index(edges, 3, directed=False, edge_weight=[1, 2, 0.5, 4])
    assert make_dense(graph).tolist() == [[0, 1.5, 4], [1.5, 0, 2], [4, 2, 0]]
    both = np.array([[0, 1], [1, 0]])
    assert not shoal.Graph.from_edge_index(both, 2, edge_weight=[2, 2]).directed
    uneven = shoal.Graph.from_edge_index(both, 2, edge_weight=[2, 3])
    assert uneven.directed
    assert "weighs" in uneven.notices[-1]
    with pytest.raises(ShoalError, match="an undirected edge has one weight"):
        shoal.Graph.from_edge_index(both, 2, directed=False, edge_weight=[2, 3])


def test_pyg_weights_are_taken_and_other_attributes_are_left_out():
    data = SimpleNamespace(
        edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3, edge_weight=torch.tensor([0.5, 2])
    )
    assert shoal.Graph.from_pyg(data).edge_weight.tolist() == [0.5, 2]
    data = SimpleNamespace(edge_index=data.edge_index, num_nodes=3, edge_attr=torch.ones(2, 4))
    graph = shoal.Graph.from_pyg(data)
    assert graph.edge_weight is None
    assert "left out edge_attr" in graph.notices[0]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 0], "edge 1 has weight 0: expected numbers above 0"),
        ([-1, 1], "edge 0 has weight -1: expected numbers above 0"),
        ([1, np.nan], "edge 1 has weight nan"),
        ([1], r"of shape \(1,\): expected a number for each of 2 edges"),
    ],
)
def test_odd_weights_are_refused(weights, message):
    with pytest.raises(ShoalError, match=message):
        shoal.Graph.from_edge_index([[0, 1], [1, 2]], 3, edge_weight=weights)


def test_uneven_weights_of_an_undirected_graph_are_refused():
    graph = shoal.Graph.from_edge_index([[0], [1]], 2, directed=False)
    with pytest.raises(ShoalError, match="some edges have another weight than their reverse"):
        graph._copy(edge_weight=np.array([1, 2], np.float32)).validate()


class Blind(torch.nn.Module):
    def forward(self, x, edge_index):
        return x[:, :3]


def test_what_takes_no_weights_refuses_them():
    graph = make_random()
    with pytest.raises(
        ShoalError, match="has edge weights, which Blind, whose forward has no edge_weight, does not take"
    ):
        shoal.Trainer(Blind(), graph)
    trainer = shoal.Trainer(shoal.GNN("gcn", 5, 8, 3), graph)
    with pytest.raises(ShoalError, match="has no edge weights and the model was trained with edge weights"):
        trainer.predict(graph=graph.without_weights())


def test_a_pyg_model_that_would_ignore_weights_refuses_them():
    pyg = pytest.importorskip("torch_geometric.nn")
    graph = make_random()
    with pytest.raises(ShoalError, match="GraphSAGE, whose supports_edge_weight is False, does not take"):
        shoal.Trainer(pyg.GraphSAGE(5, 8, 2, 3), graph)
    assert shoal.Trainer(pyg.GraphSAGE(5, 8, 2, 3), graph.without_weights()).fit(1)
    assert shoal.Trainer(pyg.GCN(5, 8, 2, 3), graph).fit(1)


def test_importers_keep_weights_add_up_duplicates_and_leave_zeros_out(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target,weight\na,b,2\na,b,0.5\nb,c,0\nc,a,1\n")
    graph = import_graph(tmp_path / "edges.csv")
    assert graph.edge_weight.tolist() == [1.0, 2.5]
    assert any("left out 1 edges of weight 0" in said for said in graph.notices)
    assert any("sum of their weights: 1 were added to another" in said for said in graph.notices)
    assert import_graph(tmp_path / "edges.csv", weight="none").edge_weight is None
    (tmp_path / "edges.csv").write_text("source,target,weight\na,b,2\na,c,-1\n")
    with pytest.raises(ShoalError, match="edge 2 has weight -1: expected 0 or more; leave them out with"):
        import_graph(tmp_path / "edges.csv")
    (tmp_path / "edges.csv").write_text("source,target,weight\na,b,1\na,c,1\n")
    assert import_graph(tmp_path / "edges.csv").edge_weight is None
    np.savez(tmp_path / "g.npz", indptr=[0, 1, 2], indices=[1, 0], edge_weight=[3.0, 3.0])
    graph = import_graph(tmp_path / "g.npz")
    assert (graph.directed, graph.edge_weight.tolist()) == (False, [3, 3])
    np.savez(tmp_path / "g.npz", indptr=[0, 1, 2], indices=[1, 0], edge_weight=[3.0, 4.0])
    assert import_graph(tmp_path / "g.npz").directed


@pytest.mark.parametrize("weight", ["1e39", "1e-50"])
def test_importers_refuse_weights_that_float32_does_not_hold(tmp_path, weight):
    (tmp_path / "edges.csv").write_text(f"source,target,weight\na,b,2\na,c,{weight}\n")
    with pytest.raises(
        ShoalError, match=r"edge 2 has weight 1e[+-]\d\d, outside the range of float32: expected 0"
    ):
        import_graph(tmp_path / "edges.csv")
    values = f"%%MatrixMarket matrix coordinate real general\n2 2 2\n1 2 2\n2 1 {weight}\n"
    (tmp_path / "g.mtx").write_text(values)
    graph = import_graph(tmp_path / "g.mtx")
    assert graph.edge_weight is None
    assert any("outside the range of float32, expected numbers above 0" in said for said in graph.notices)


@pytest.mark.parametrize("directed", [True, False])
def test_duplicate_edges_that_add_up_to_more_than_float32_holds_are_refused(directed):
    edges, weights = np.array([[0, 0, 1], [1, 1, 2]]), [3e38, 3e38, 1.0]
    with pytest.raises(ShoalError, match=r"weigh 6e\+38 together: expected up to 3\.4e38"):
        shoal.Graph.from_edge_index(edges, edge_weight=weights, directed=directed)


def test_networkx_weights_are_taken():
    graph = nx.Graph()
    graph.add_edge("a", "b", weight=2.5)
    graph.add_edge("b", "c")
    assert shoal.Graph.from_networkx(graph).edge_weight.tolist() == [2.5, 2.5, 1, 1]
