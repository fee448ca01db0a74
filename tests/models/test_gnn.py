"""Models: the layers' formulas, the stack, and what is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.models.convs import CONVS
from shoal.models.gnn import GNN, parse_orders


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    rng = np.random.default_rng(0)
    x = rng.random((30, 8)) * (rng.random((30, 8)) < 0.3)
    edges = rng.integers(0, 30, (2, 80))
    return shoal.Graph.from_edge_index(edges, 30, directed=True, x=x, y=rng.integers(0, 3, 30))


def dense(adj: shoal.Adjacency) -> torch.Tensor:
    return adj.to_torch().to_dense()


@pytest.mark.parametrize("out_features", [4, 32])  # narrow layers project first, wide ones aggregate first
@pytest.mark.parametrize("name", CONVS)
def test_convolutions_follow_their_formula_and_gradient(graph, name, out_features):
    torch.manual_seed(0)
    conv = CONVS[name](8, out_features).double()
    batch = shoal.FullSampler(graph).sample(0)
    adj = batch.blocks[0].adjacency(conv.kind)
    h = batch.x.double().requires_grad_()
    a = dense(adj).double()
    if name == "sage":
        half = out_features // 2
        expected = torch.cat([a @ h @ conv.weight[:, :half], h @ conv.weight[:, half:]], 1)
    else:
        expected = a @ h @ conv.weight
    seed = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, [h, conv.weight], seed)
    found = conv(adj, h)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, [h, conv.weight], seed), wanted)
    from_known = conv(adj, h, (a @ h).detach())
    torch.testing.assert_close(from_known, expected)
    torch.testing.assert_close(torch.autograd.grad(from_known, conv.weight, seed)[0], wanted[1])


@pytest.mark.parametrize("name", ["sage", "gcn", "mlp"])
def test_sparse_features_give_what_dense_ones_give(graph, name):
    sparse = shoal.Graph(graph.indptr, graph.indices, x=sp.csr_array(graph.x), y=graph.y, directed=True)
    torch.manual_seed(0)
    model = GNN(name, 8, 16, 3, dropout=0.0)
    grads = []
    for g in (graph, sparse):
        model.zero_grad()
        model(shoal.FullSampler(g).sample(0)).square().sum().backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    for ours, theirs in zip(*grads):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_pattern_mixes_aggregating_and_dense_layers():
    model = GNN("sage", 8, 16, 3, orders="1-0-1-0")
    assert [layer.kind for layer in model.layers] == ["mean", None, "mean", None]
    assert parse_orders(None, 3) == [1, 1, 1]
    with pytest.raises(shoal.ShoalError, match="layer pattern '1-x'"):
        parse_orders("1-x", 2)


def test_mlp_does_not_see_edges(graph):
    model = GNN("mlp", 8, 16, 3).eval()
    alone = shoal.Graph.from_edge_index(np.empty((2, 0), np.int64), 30, x=graph.x, y=graph.y)
    torch.testing.assert_close(
        model(shoal.FullSampler(graph).sample(0)), model(shoal.FullSampler(alone).sample(0))
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "sags"}, "did you mean 'sage'"),
        ({"norm": "bach"}, "did you mean 'batch'"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"hidden": 15}, "expected an even width"),
        ({"num_layers": 0}, "num_layers is 0"),
    ],
)
def test_impossible_models_are_refused(settings, message):
    with pytest.raises(shoal.ShoalError, match=message):
        GNN(**{"model": "sage", "in_features": 8, "hidden": 16, "num_classes": 3, **settings})
