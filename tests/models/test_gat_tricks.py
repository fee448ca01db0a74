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


def attend(
    conv: GATConv, adj: shoal.Adjacency, h: torch.Tensor, mask: torch.Tensor, factors: torch.Tensor
) -> torch.Tensor:
    """Attention over `mask` in plain torch: sources scaled by D^-½ before they are scored, results by D^½."""
    n = len(h)
    scale = torch.ones(n, dtype=h.dtype)
    if conv.kind == "symmetric-attention":
        scale = adj.indptr.diff().float().rsqrt().double()
    z = (h @ conv.weight).view(n, conv.heads, -1)
    sent = z * scale[:, None, None]
    own, other = (z * conv.attend[0]).sum(-1), (sent * conv.attend[1]).sum(-1)
    scores = leaky_relu(own[:, None] + other, 0.2).masked_fill(~mask[:, :, None], -torch.inf)
    out = torch.einsum("ijh,jhf->ihf", scores.softmax(1) * factors, sent) / scale[:, None, None]
    return out.mean(1) if conv.mean else out.flatten(1)


@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize(("rate", "attention"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.6), (0.4, 0.3)])
@pytest.mark.parametrize("symmetric", [False, True])
def test_attention_follows_its_formula_and_gradient(graph, symmetric, rate, attention, mean):
    torch.manual_seed(0)
    dropped = {"edge_dropout": rate, "attention_dropout": attention}
    conv = GATConv(8, 12, heads=3, symmetric=symmetric, mean=mean, **dropped).double()
    batch = shoal.FullSampler(graph).sample(0)
    adj = batch.blocks[0].adjacency(conv.kind)
    h = batch.x.double().requires_grad_()
    mask = adj.without_scales().to_torch().to_dense() > 0
    entries, factors = mask.clone(), torch.ones(40, 40, 3, dtype=torch.double)
    draw = Draw(mix_key(1, 2, 3), batch.n_id) if rate or attention else None
    if rate:
        kept = keep_entries_reference(adj, rate, mix_key(draw.key, 0xED6E, 0), batch.n_id)
        assert 0.9 - rate < kept.double().mean() < 1.2 - rate
        mask[entries] = kept
    for head in range(3) if attention else ():
        key = mix_key(draw.key, 0xA77E, head)
        kept = keep_entries_reference(adj, attention, key, batch.n_id, loops=False)
        factors[:, :, head][entries] = kept.double() / (1 - attention)
    expected, found = attend(conv, adj, h, mask, factors), conv(adj, h, draw=draw)
    torch.testing.assert_close(found, expected)
    seed, inputs = torch.randn_like(expected), [h, *conv.parameters()]
    wanted = torch.autograd.grad(expected, inputs, seed)
    torch.testing.assert_close(torch.autograd.grad(found, inputs, seed), wanted)


def test_dropped_attention_is_right_on_average_and_may_drop_a_node_itself(graph):
    """The mean of 4,000 draws lies within 5 standard errors of undropped attention, in all but 1 % of the values."""
    conv = GATConv(8, 12, heads=3, attention_dropout=0.5).double()
    batch = shoal.FullSampler(graph).sample(0)
    adj, h = batch.blocks[0].adjacency(conv.kind), batch.x.double()
    with torch.no_grad():
        exact = conv(adj, h)
        drawn = torch.stack(
            [conv(adj, h, draw=Draw(mix_key(1, step, 0), batch.n_id)) for step in range(4000)]
        )
    error = drawn.std(0) / len(drawn) ** 0.5
    assert ((drawn.mean(0) - exact).abs() > 5 * error + 1e-9).double().mean() < 0.01
    kept, factors = conv.drop(adj, Draw(mix_key(1, 2, 3), batch.n_id), batch.n_id)
    loops = torch.from_numpy(rows_of(adj)) == adj.indices
    assert kept is None
    assert 0 < (factors[loops] == 0).double().mean() < 1


def test_the_last_aggregation_has_its_own_number_of_heads(graph):
    model = shoal.GNN("gat", 8, 12, 3, heads=4, output_heads=1, head_layers=0)
    assert [layer.linear.heads for layer in model.layers] == [4, 1]
    batch = shoal.FullSampler(graph).sample(0)
    assert model(batch).shape == (40, 3)


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


@pytest.mark.parametrize("dropped", ["edge_dropout", "attention_dropout"])
def test_training_with_dropped_edges_repeats_and_evaluation_leaves_nothing_out(graph, dropped):
    losses = []
    for _ in range(2):
        model = shoal.GNN("gat", 8, 12, 3, symmetric=True, **{dropped: 0.5})
        losses.append([one["loss"] for one in shoal.Trainer(model, graph, shoal.FullSampler(graph)).fit(3)])
    assert losses[0] == losses[1]
    batch = shoal.FullSampler(graph).sample(0)
    plain = shoal.GNN("gat", 8, 12, 3, symmetric=True).eval()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(batch), plain(batch))
    assert not torch.equal(model.train()(batch, step=1), model(batch, step=2))
