"""GAT scaled by degrees, and with edges left out of its softmax in training."""

import numpy as np
import pytest
import torch
from torch.nn.functional import leaky_relu

import shoal
from shoal.kernels.edge_dropout import keep_entries, keep_entries_reference
from shoal.kernels.fused import mix_key
from shoal.models.conv import Draw
from shoal.models.gat import GATConv
from shoal.training.inference import embed_nodes
from small_graphs import make_labelled


@pytest.fixture(scope="module", params=[False, True], ids=["undirected", "directed"])
def graph(request) -> shoal.Graph:
    return make_labelled(40, directed=request.param)


def attend(conv: GATConv, adj: shoal.Adjacency, h: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Attention over `mask` in plain torch: sources scaled by D^-½ before they are scored, results by D^½."""
    n = len(h)
    scale = torch.ones(n, dtype=h.dtype)
    if conv.kind == "symmetric-attention":
        scale = adj.indptr.diff().float().rsqrt().double()
    z = (h @ conv.weight).view(n, conv.heads, -1)
    sent = z * scale[:, None, None]
    own, other = (z * conv.attend[0]).sum(-1), (sent * conv.attend[1]).sum(-1)
    scores = leaky_relu(own[:, None] + other, 0.2).masked_fill(~mask[:, :, None], -torch.inf)
    out = torch.einsum("ijh,jhf->ihf", scores.softmax(1), sent) / scale[:, None, None]
    return out.mean(1) if conv.mean else out.flatten(1)


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("rate", [0.0, 0.5])
@pytest.mark.parametrize("symmetric", [False, True])
def test_attention_follows_its_formula_and_gradient(graph, symmetric, rate, mean):
    torch.manual_seed(0)
    conv = GATConv(8, 12, heads=3, symmetric=symmetric, edge_dropout=rate, mean=mean).double()
    batch = shoal.FullSampler(graph).sample(0)
    adj = batch.blocks[0].adjacency(conv.kind)
    h = batch.x.double().requires_grad_()
    mask = adj.without_scales().to_torch().to_dense() > 0
    draw = Draw(mix_key(1, 2, 3), batch.n_id) if rate else None
    if draw is not None:
        kept = keep_entries_reference(adj, rate, mix_key(draw.key, 0xED6E, 0), batch.n_id)
        assert 0.4 < kept.double().mean() < 0.7
        mask[mask.clone()] = kept
    expected, found = attend(conv, adj, h, mask), conv(adj, h, draw=draw)
    torch.testing.assert_close(found, expected)
    seed, inputs = torch.randn_like(expected), [h, *conv.parameters()]
    wanted = torch.autograd.grad(expected, inputs, seed)
    torch.testing.assert_close(torch.autograd.grad(found, inputs, seed), wanted)


def test_even_attention_scaled_by_degrees_is_the_aggregation_of_gcn(graph):
    conv = GATConv(8, 12, heads=3, symmetric=True)
    torch.nn.init.zeros_(conv.attend)
    batch = shoal.FullSampler(graph).sample(0)
    found = conv(batch.blocks[0].adjacency(conv.kind), batch.x)
    wanted = shoal.spmm(batch.blocks[0].adjacency("gcn"), batch.x @ conv.weight)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_layer_wise_inference_equals_the_whole_forward(graph):
    model = shoal.GNN("gat", 8, 12, 3, num_layers=3, symmetric=True, edge_dropout=0.5).eval()
    batch = shoal.FullSampler(graph).sample(0)
    torch.testing.assert_close(embed_nodes(model, batch, rows_at_once=7), model.embed(batch))


def test_edges_are_left_out_alike_in_any_order_of_nodes_and_own_entries_stay(graph):
    adj = shoal.FullSampler(graph).sample(0).blocks[0].adjacency("attention")
    ids = torch.arange(40) * 1_000_003
    kept = keep_entries(adj, 0.4, 99, ids)
    assert torch.equal(kept, keep_entries_reference(adj, 0.4, 99, ids))
    edges = set(zip(*np.stack([rows_of(adj), adj.indices.numpy()])[:, kept.numpy()].tolist()))
    assert all((node, node) in edges for node in range(40))
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    dense = adj.without_scales().to_torch().to_dense()[order][:, order]
    turned = shoal.Adjacency.from_edge_index(dense.nonzero().T.flip(0), 40)
    again = keep_entries(turned, 0.4, 99, ids[order])
    found = order.numpy()[np.stack([rows_of(turned), turned.indices.numpy()])[:, again.numpy()]]
    assert set(zip(*found.tolist())) == edges
    assert not torch.equal(kept, keep_entries(adj, 0.4, 100, ids))


def rows_of(adj: shoal.Adjacency) -> np.ndarray:
    return np.repeat(np.arange(adj.num_rows), adj.indptr.diff())


def test_edges_stay_with_their_probability():
    """The count of 250,000 draws lies within 4 deviations of the binomial law's mean."""
    n, rate = 500, 0.3
    pattern = torch.arange(n).repeat(n)
    adj = shoal.Adjacency(torch.arange(0, n * n + 1, n), pattern.int(), n)
    kept = keep_entries(adj, rate, mix_key(5, 6, 7), torch.arange(n) + 12345)
    draws = n * n - n
    found = int(kept.sum()) - n
    assert abs(found - draws * (1 - rate)) < 4 * (draws * rate * (1 - rate)) ** 0.5


def test_training_with_edge_dropout_repeats_and_evaluation_leaves_nothing_out(graph):
    losses = []
    for _ in range(2):
        model = shoal.GNN("gat", 8, 12, 3, symmetric=True, edge_dropout=0.5)
        losses.append([one["loss"] for one in shoal.Trainer(model, graph, shoal.FullSampler(graph)).fit(3)])
    assert losses[0] == losses[1]
    batch = shoal.FullSampler(graph).sample(0)
    plain = shoal.GNN("gat", 8, 12, 3, symmetric=True).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(batch), plain(batch))
    assert not torch.equal(model.train()(batch, step=1), model(batch, step=2))
