"""Shoal's convs and models called with (x, edge_index), inside a PyG model too."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import shoal
from small_graphs import make_labelled


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(300, directed=True)


@pytest.fixture(scope="module")
def edges(graph) -> tuple[torch.Tensor, torch.Tensor]:
    data = pytest.importorskip("torch_geometric") and graph.to_pyg()
    return data.x, data.edge_index[:, torch.randperm(data.edge_index.shape[1])]


@pytest.mark.parametrize("model", ["sage", "gcn", "gat", "mixhop", "mlp"])
def test_a_gnn_of_edges_equals_that_of_a_batch(graph, edges, model):
    gnn = shoal.GNN(
        model, graph.num_features, 16, graph.num_classes, orders="1-0-1" if model != "mlp" else None
    )
    gnn.eval()
    batch = shoal.FullSampler(graph).sample(0)
    found, expected = gnn(*edges), gnn(batch)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    found.sum().backward()
    grads = [p.grad.clone() for p in gnn.parameters()]
    gnn.zero_grad()
    gnn(batch).sum().backward()
    for ours, theirs in zip(grads, gnn.parameters()):
        torch.testing.assert_close(ours, theirs.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("conv", [shoal.SAGEConv, shoal.GCNConv, shoal.GATConv, shoal.MixHopConv])
def test_a_conv_of_edges_equals_that_of_the_operator(graph, edges, conv):
    layer = conv(graph.num_features, 12)
    adj = shoal.FullSampler(graph).sample(0).block(0).adjacency(layer.kind)
    torch.testing.assert_close(layer(*edges), layer(adj, edges[0]))


@pytest.fixture(scope="module", params=[True, False], ids=["directed", "undirected"])
def weighted(request) -> shoal.Graph:
    graph = make_labelled(300, directed=request.param)
    source, target = pytest.importorskip("torch_geometric") and graph.to_pyg().edge_index
    weight = 0.5 + ((source + target) % 7).float()
    fields = {name: getattr(graph, name) for name in ("x", "y", "train_mask", "val_mask", "test_mask")}
    edges = torch.stack([source, target])
    return shoal.Graph.from_edge_index(
        edges, 300, edge_weight=weight, directed=True if request.param else None, **fields
    )


@pytest.mark.parametrize("conv", [shoal.SAGEConv, shoal.GCNConv, shoal.GATConv, shoal.MixHopConv])
def test_a_conv_of_weighted_edges_equals_that_of_the_weighted_graph(weighted, conv):
    layer, data = conv(weighted.num_features, 12), weighted.to_pyg()
    order = torch.randperm(data.edge_index.shape[1])
    edge_index, edge_weight = data.edge_index[:, order], data.edge_weight[order]
    adj = shoal.FullSampler(weighted).sample(0).block(0).adjacency(layer.kind)
    found = layer(data.x, edge_index, edge_weight=edge_weight)
    torch.testing.assert_close(found, layer(adj, data.x), rtol=1e-4, atol=1e-5)
    assert torch.equal(layer(data.x, edge_index, edge_weight), found)
    assert not torch.allclose(layer(data.x, edge_index), found)
    edge_weight[0] = 100
    assert not torch.equal(layer(data.x, edge_index, edge_weight), found)


def test_gcn_of_weighted_edges_equals_pygs(weighted):
    pyg = pytest.importorskip("torch_geometric.nn")
    data = weighted.to_pyg()
    ours, theirs = shoal.GCNConv(data.num_features, 12), pyg.GCNConv(data.num_features, 12, bias=False)
    theirs.lin.weight.data = ours.weight.data.T.clone()
    given = data.x, data.edge_index, data.edge_weight
    torch.testing.assert_close(ours(*given), theirs(*given), rtol=1e-4, atol=1e-5)


def test_a_gnn_of_weighted_edges_equals_that_of_a_batch(weighted):
    gnn, data = shoal.GNN("gcn", weighted.num_features, 16, weighted.num_classes).eval(), weighted.to_pyg()
    found = gnn(data.x, data.edge_index, data.edge_weight)
    expected = gnn(shoal.FullSampler(weighted).sample(0))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_weights_that_cannot_be_used_are_refused(graph, edges):
    layer, ones = shoal.GCNConv(graph.num_features, 4), torch.ones(edges[1].shape[1])
    with pytest.raises(shoal.ShoalError, match="requires a gradient"):
        layer(*edges, edge_weight=ones.clone().requires_grad_())
    with pytest.raises(shoal.ShoalError, match="expected a number for each of"):
        layer(*edges, edge_weight=ones[:3])
    with pytest.raises(shoal.ShoalError, match="expected numbers above 0"):
        layer(*edges, edge_weight=0 * ones)
    with pytest.raises(shoal.ShoalError, match="edge_weight is a list"):
        layer(*edges, edge_weight=[1.0])


def test_a_conv_of_ours_is_a_layer_of_a_pyg_model(graph, edges):
    pyg = pytest.importorskip("torch_geometric.nn")
    model = pyg.Sequential(
        "x, edge_index",
        [
            (shoal.SAGEConv(graph.num_features, 16), "x, edge_index -> x"),
            nn.ReLU(),
            (pyg.GCNConv(16, graph.num_classes), "x, edge_index -> x"),
        ],
    )
    trainer = shoal.Trainer(
        model, graph, shoal.NeighborSampler(graph, fanouts=(5, 5), batch_size=50), lr=0.02
    )
    trainer.fit(8)
    assert trainer.evaluate("test")["accuracy"] > 0.7


def test_dropout_of_edges_follows_torchs_random_state(graph, edges):
    gnn = shoal.GNN("sage", graph.num_features, 16, graph.num_classes, dropout=0.5)
    torch.manual_seed(3)
    first, second = gnn(*edges), gnn(*edges)
    torch.manual_seed(3)
    assert torch.equal(gnn(*edges), first)
    assert not torch.equal(second, first)
    assert torch.equal(copy.deepcopy(gnn).eval()(*edges), gnn.eval()(*edges))


def test_edges_that_were_written_to_are_read_again(graph):
    x, edge_index = torch.eye(3, 4), torch.tensor([[0, 1], [1, 2]])
    layer = shoal.GCNConv(4, 2)
    before = layer(x, edge_index)
    edge_index[0, 1] = 0
    assert not torch.equal(layer(x, edge_index), before)
    assert torch.equal(layer(x, edge_index), layer(x, edge_index.clone()))


def test_features_of_another_width_are_refused(edges):
    x, edge_index = edges
    for made in (shoal.GCNConv(x.shape[1] - 1, 8), shoal.SAGEConv(x.shape[1] + 1, 8)):
        with pytest.raises(
            shoal.ShoalError, match=rf"x is \(300, 8\) but {type(made).__name__} has in_features="
        ):
            made(x, edge_index)


def test_what_are_no_edges_is_refused(graph, edges):
    gnn = shoal.GNN("sage", graph.num_features, 16, graph.num_classes)
    with pytest.raises(shoal.ShoalError, match=r"expected a Batch, or \(x, edge_index\)"):
        gnn(edges[0])
    with pytest.raises(shoal.ShoalError, match=r"edge_index is \(4, 3\)"):
        gnn(edges[0], torch.zeros(4, 3, dtype=torch.int64))
    with pytest.raises(shoal.ShoalError, match="expected node numbers"):
        gnn(edges[0], torch.zeros(2, 3))
    with pytest.raises(shoal.ShoalError, match="expected nodes 0 to 9"):
        gnn(edges[0][:10], edges[1])
