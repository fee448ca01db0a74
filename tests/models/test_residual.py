"""Residuals: a layer's input added as it is, or times a weight of its own."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

import shoal
from shoal.analysis.simulate import count_row_macs
from shoal.runs.config import apply_setting, make_config
from small_graphs import make_labelled


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(40)


def test_linear_residual_is_the_layer_of_the_classic_gnn_study(graph):
    """`relu(norm(conv(x) + lin(x)))` of modules of torch and PyG, with our weights, in every layer."""
    pyg = pytest.importorskip("torch_geometric.nn")
    model = shoal.GNN("gcn", 8, "16-8", 3, residual="linear", norm_place="conv", dropout=0.0).double()
    batch = shoal.FullSampler(graph).sample(0)
    x = h = batch.x.double()
    batch.x = x
    rows = np.repeat(np.arange(40), np.diff(graph.indptr))
    edge_index = torch.from_numpy(np.stack([graph.indices, rows])).long()
    for layer, (before, after) in zip(model.layers, ((8, 16), (16, 8))):
        conv, lin = (
            pyg.GCNConv(before, after, bias=False).double(),
            nn.Linear(before, after, bias=False).double(),
        )
        conv.lin.weight.data, lin.weight.data = layer.linear.weight.T, layer.residual.T
        h = torch.relu(layer.norm(conv(h, edge_index) + lin(h)))
    torch.testing.assert_close(model(batch), model.classifier(h), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat"])
def test_linear_residuals_of_sparse_features_equal_those_of_dense_ones(graph, name):
    model = shoal.GNN(name, 8, 12, 3, residual="linear", dropout=0.0)
    x = np.where(graph.x > 0.3, graph.x, 0)
    grads = []
    for features in (x, sp.csr_array(x)):
        whole = shoal.Graph(graph.indptr, graph.indices, x=features, y=graph.y)
        model.zero_grad()
        model(shoal.FullSampler(whole).sample(0)).square().sum().backward()
        grads.append([weight.grad.clone() for weight in model.parameters()])
    for ours, theirs in zip(*grads):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_linear_residuals_read_a_batch_of_shrinking_layers(graph):
    """With every neighbour drawn, the outputs are those of the whole graph."""
    model = shoal.GNN("sage", 8, 12, 3, residual="linear").eval()
    batch = shoal.NeighborSampler(graph, fanouts=[40, 40], batch_size=7).sample(0)
    whole = model(shoal.FullSampler(graph).sample(0))
    torch.testing.assert_close(model(batch), whole[batch.n_id[: batch.num_outputs]], rtol=1e-4, atol=1e-5)


def test_counts_have_the_linear_residual(graph):
    batch = shoal.FullSampler(graph).sample(0)
    plain, linear = (shoal.GNN("gcn", 8, "16-8", 3, residual=one) for one in ("none", "linear"))
    more = 40 * (8 * 16 + 16 * 8)
    assert linear.num_macs(batch) - plain.num_macs(batch) == more
    assert count_row_macs(linear) - count_row_macs(plain) == 2 * 8 * 16 + 3 * 16 * 8
    assert all("a dense product of its input" in line for line in linear.explain(batch))


def test_a_dense_layer_and_the_logits_have_no_linear_residual():
    model = shoal.GNN("gcn", 8, 16, 3, orders="1-0-1", head_layers=0, residual="linear")
    assert [layer.residual is not None for layer in model.layers] == [True, False, False]


def test_true_and_false_are_identity_and_none():
    for old, new in ((True, "identity"), (False, "none")):
        first, second = (shoal.GNN("gcn", 8, 8, 3, residual=one) for one in (old, new))
        assert [one.adds_input for one in first.layers] == [one.adds_input for one in second.layers]
        config = make_config({"model": {"residual": old}})
        config.validate()
        assert config.model.residual is old
    config = make_config({"model": {"residual": True}})
    apply_setting(config, "model.residual=liner")
    with pytest.raises(shoal.ShoalError, match="did you mean 'linear'"):
        config.validate()
