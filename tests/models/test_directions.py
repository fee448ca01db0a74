"""Convs over both directions of a directed graph's edges, each with weights and degrees of its own."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.training.inference import embed_nodes
from small_graphs import make_labelled

N = 40


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(N, directed=True)


def scale(pattern: torch.Tensor, name: str) -> torch.Tensor:
    """D⁻¹A for SAGE, D̃^-½ (A + I) D̃^-½ for the others, D the lengths of rows."""
    if name == "sage":
        return pattern / pattern.sum(1, keepdim=True).clamp(min=1)
    looped = torch.maximum(pattern, torch.eye(N))
    root = looped.sum(1).rsqrt()
    return root[:, None] * looped * root


def convolve(conv: shoal.Conv, a: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    if conv.name == "gcn":
        return a @ h @ conv.weight
    widths = conv.widths if conv.name == "mixhop" else [conv.split_at] * 2
    powers = range(len(widths)) if conv.name == "mixhop" else (1, 0)
    parts = conv.weight.split(list(widths), dim=1)
    return torch.cat([torch.linalg.matrix_power(a, k) @ h @ w for k, w in zip(powers, parts)], 1)


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop"])
def test_the_result_is_the_sum_of_a_conv_over_edges_and_one_over_reversed_edges(graph, name):
    model = shoal.GNN(name, 8, 12, 3, num_layers=1, directions="both", norm="none", dropout=0.0)
    batch = shoal.FullSampler(graph).sample(0)
    layer = model.layers[0]
    pattern = torch.from_numpy(
        sp.csr_array((np.ones(len(graph.indices)), graph.indices, graph.indptr), (N, N)).toarray()
    ).float()
    assert not torch.equal(pattern, pattern.T)
    conv = layer.linear
    h = convolve(conv.inward, scale(pattern, name), batch.x)
    h = h + convolve(conv.outward, scale(pattern.T, name), batch.x)
    wanted = model.classifier(torch.relu(h + layer.bias))
    found = model(batch)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    weights = [conv.inward.weight, conv.outward.weight]
    ours, theirs = (torch.autograd.grad(out.square().sum(), weights) for out in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    assert model.num_macs(batch) > shoal.GNN(name, 8, 12, 3, num_layers=1).num_macs(batch)
    assert "reversed edges" in model.explain(batch)[0]


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop"])
def test_layer_wise_inference_equals_the_whole_forward(graph, name):
    model = shoal.GNN(name, 8, 12, 3, num_layers=3, directions="both", residual="linear").eval()
    batch = shoal.FullSampler(graph).sample(0)
    torch.testing.assert_close(embed_nodes(model, batch, rows_at_once=7), model.embed(batch))


def test_gradients_of_reversed_products_are_exact(graph):
    adj = shoal.FullSampler(graph).sample(0).blocks[0].adjacency("mean")
    turned = adj.reverse(lambda degree: 1 / degree.clamp(min=1).double())
    h = torch.randn(N, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: shoal.spmm(turned, h), h)


def test_subgraphs_train_in_both_directions(graph):
    model = shoal.GNN("sage", 8, 12, 3, directions="both")
    trainer = shoal.Trainer(model, graph, shoal.RandomWalkSampler(graph, roots=10, depth=2))
    assert trainer.fit(3)[-1]["loss"] > 0
    assert 0 <= trainer.evaluate("test")["accuracy"] <= 1


def test_what_has_no_reversed_edges_is_refused(graph):
    model = shoal.GNN("sage", 8, 12, 3, directions="both")
    undirected = make_labelled(N)
    for given, message in (
        ((undirected,), "is undirected, its edges go both ways already"),
        ((graph, shoal.NeighborSampler(graph, fanouts=[3, 3])), "sampler neighbor draws no reversed edges"),
        (
            (graph, shoal.NodeSampler(graph, budget=20, coverage=5)),
            "sampler.coverage normalises one direction",
        ),
    ):
        with pytest.raises(shoal.ShoalError, match=message):
            shoal.Trainer(model, *given)
    walks = shoal.RandomWalkSampler(graph, roots=10, depth=2, seed=0)
    with pytest.raises(shoal.ShoalError, match="histories keep results of one direction only"):
        shoal.Trainer(model, graph, walks, history=True)
    parts = shoal.partition_graph(graph, 2, "random")
    with pytest.raises(shoal.ShoalError, match="swapped parts have no reversed edges"):
        shoal.Trainer(model, graph, swapped=parts)
    with pytest.raises(shoal.ShoalError, match="gat supports incoming edges only"):
        shoal.GNN("gat", 8, 12, 3, directions="both")
    with pytest.raises(shoal.ShoalError, match="mlp reads no edges"):
        shoal.GNN("mlp", 8, 12, 3, directions="both")


def test_edge_norms_of_one_direction_are_refused(graph):
    sampler = shoal.RandomWalkSampler(graph, roots=10, depth=2, seed=0)
    sampler.normalize(20)
    model = shoal.GNN("sage", 8, 12, 3, directions="both")
    with pytest.raises(shoal.ShoalError, match="edge norms for one direction only"):
        model(sampler.sample(0))
