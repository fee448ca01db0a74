"""Models: the layers' formulas, the stack, and what is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import shoal
from shoal.models.gat import GATConv
from shoal.models.gcn import GCNConv
from shoal.models.gnn import GNN
from shoal.models.mixhop import MixHopConv
from shoal.models.pattern import parse_orders, parse_widths
from shoal.models.sage import SAGEConv


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    rng = np.random.default_rng(0)
    x = rng.random((30, 8)) * (rng.random((30, 8)) < 0.3)
    edges = rng.integers(0, 30, (2, 80))
    return shoal.Graph.from_edge_index(edges, 30, directed=True, x=x, y=rng.integers(0, 3, 30))


def dense(adj: shoal.Adjacency) -> torch.Tensor:
    return adj.to_torch().to_dense()


@pytest.mark.parametrize("out_features", [4, 32])  # narrow layers project first, wide ones aggregate first
@pytest.mark.parametrize("name", ["sage", "gcn"])
def test_convolutions_follow_their_formula_and_gradient(graph, name, out_features):
    torch.manual_seed(0)
    conv = {"sage": SAGEConv, "gcn": GCNConv}[name](8, out_features).double()
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


@pytest.mark.parametrize("order", [1, 2, 3])
def test_mixhop_is_the_powers_side_by_side(graph, order):
    torch.manual_seed(0)
    conv = MixHopConv(8, 16, order=order).double()
    batch = shoal.FullSampler(graph).sample(0)
    adj = batch.blocks[0].adjacency(conv.kind)
    h = batch.x.double().requires_grad_()
    a = dense(adj).double()
    powers = [torch.linalg.matrix_power(a, k) @ h for k in range(order + 1)]
    weights = conv.weight.split(conv.widths, dim=1)
    expected = torch.cat([p @ w for p, w in zip(powers, weights)], 1)
    found = conv(adj, h)
    torch.testing.assert_close(found, expected)
    seed = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, [h, conv.weight], seed)
    torch.testing.assert_close(torch.autograd.grad(found, [h, conv.weight], seed), wanted)


@pytest.mark.parametrize("mean", [False, True])
def test_gat_attends_to_neighbours_and_itself(graph, mean):
    torch.manual_seed(0)
    conv = GATConv(8, 12, heads=3, mean=mean).double()
    batch = shoal.FullSampler(graph).sample(0)
    h = batch.x.double().requires_grad_()
    z = (h @ conv.weight).view(30, 3, -1)
    scores = torch.einsum("ihf,hf->ih", z, conv.attend[0])[:, None] + torch.einsum(
        "jhf,hf->jh", z, conv.attend[1]
    )
    mask = (dense(batch.blocks[0].adjacency("sum")) + torch.eye(30)) > 0
    scores = torch.nn.functional.leaky_relu(scores, 0.2).masked_fill(~mask[:, :, None], -torch.inf)
    expected = torch.einsum("ijh,jhf->ihf", scores.softmax(1), z)
    expected = expected.mean(1) if mean else expected.flatten(1)
    found = conv(batch.blocks[0].adjacency("attention"), h)
    torch.testing.assert_close(found, expected)
    seed = torch.randn_like(expected)
    inputs = [h, *conv.parameters()]
    wanted = torch.autograd.grad(expected, inputs, seed)
    torch.testing.assert_close(torch.autograd.grad(found, inputs, seed), wanted)


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat", "mlp"])
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
    assert parse_widths(16, 2) == parse_widths("16-16", 2) == [16, 16]
    for wrong in ("16-8", 0, "16-x-1"):
        with pytest.raises(shoal.ShoalError, match="hidden"):
            parse_widths(wrong, 3)
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
        ({"orders": "2-1"}, "only mixhop has orders above 1"),
        ({"heads": 8}, "heads is a setting of gat: sage has no heads"),
        ({"model": "gat", "head": 8}, "did you mean 'heads'"),
        ({"model": "gat", "heads": 0}, "heads is 0: expected at least 1"),
        ({"model": 3}, "expected a name .* or a subclass of Conv"),
        ({"model": "gat", "hidden": 15}, "expected a multiple of the heads"),
        ({"model": "mixhop", "hidden": 2}, "expected at least 3"),
    ],
)
def test_impossible_models_are_refused(settings, message):
    with pytest.raises(shoal.ShoalError, match=message):
        GNN(**{"model": "sage", "in_features": 8, "hidden": 16, "num_classes": 3, **settings})


def test_the_seed_decides_the_weights_and_leaves_the_callers_random_state():
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    first = GNN("sage", 8, 16, 3, seed=1).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(99)
    again, other = GNN("sage", 8, 16, 3, seed=1).state_dict(), GNN("sage", 8, 16, 3, seed=2).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["classifier.weight"], other["classifier.weight"])


def test_a_pattern_and_a_number_of_layers_must_agree():
    assert len(GNN("sage", 8, 16, 3, orders="1-0-1", num_layers=3).layers) == 3
    with pytest.raises(shoal.ShoalError, match="orders 1-0-1 has 3 layers but num_layers is 2"):
        GNN("sage", 8, 16, 3, orders="1-0-1", num_layers=2)


def test_a_graph_without_features_or_labels_is_blamed():
    with pytest.raises(shoal.ShoalError, match="in_features is 0: the graph has no features"):
        GNN("sage", 0, 16, 3)
    with pytest.raises(shoal.ShoalError, match="num_classes is 0: the graph has no labels"):
        GNN("sage", 8, 16, 0)
    with pytest.raises(shoal.ShoalError, match="seed is -1"):
        GNN("sage", 8, 16, 3, seed=-1)


STACKS = [
    {"residual": True, "num_layers": 3},
    {"jumping": "concat", "hidden": "24-12", "head_layers": 2},
    {"jumping": "max", "residual": True, "num_layers": 3},
    {"head_layers": 3, "l2_normalize": True},
    {"norm": "batch"},
    {"norm": "batch", "norm_first": True, "jumping": "concat"},
    {"norm_first": True},
    {"input_dropout": 0.5},
    {"input_norm": "rows"},
    {"orders": "1-0-1", "jumping": "max", "head_layers": 2, "norm": "none"},
    {"head_layers": 0, "num_layers": 3, "hidden": "24-12"},
    {"head_layers": 0, "orders": "1-0", "norm": "batch"},
    {"head_layers": 0, "hidden": 4, "num_classes": 4, "num_layers": 3, "residual": True},
    {"residual": "linear", "hidden": "24-12-12", "num_layers": 3, "norm_place": "conv"},
    {"residual": "linear", "orders": "1-0-1", "jumping": "concat"},
    {"residual": "linear", "head_layers": 0, "norm": "batch"},
    {"norm_place": "input", "num_layers": 3, "residual": "identity", "head_layers": 2},
    {"norm_place": "input", "num_layers": 3, "residual": "linear", "norm": "batch", "jumping": "concat"},
    {"norm_place": "input", "orders": "1-0-1", "norm": "batch", "head_layers": 0},
]


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat"])
@pytest.mark.parametrize("settings", STACKS, ids=str)
def test_layer_wise_inference_equals_the_whole_forward(graph, name, settings):
    from shoal.training.inference import classify_nodes, embed_nodes

    model = GNN(name, 8, **{"hidden": 16, "num_classes": 3} | settings)
    batch = shoal.FullSampler(graph).sample(0)
    model.train()
    model(batch)  # moves the statistics of batch norm
    model.eval()
    embedding = embed_nodes(model, batch, rows_at_once=7)
    assert embedding.shape == (30, model.embedding_width)
    torch.testing.assert_close(embedding, model.embed(batch))
    torch.testing.assert_close(classify_nodes(model, embedding, rows_at_once=7), model(batch))


@pytest.mark.parametrize("settings", STACKS, ids=str)
def test_stacks_follow_their_formula(graph, settings):
    """The stack written out with plain torch, one line a step."""
    whole = {"hidden": 16, "num_classes": 3} | settings | {"dropout": 0.0, "input_dropout": 0.0}
    model = GNN("gcn", 8, **whole).train()
    batch = shoal.FullSampler(graph).sample(0)
    a = dense(batch.blocks[0].adjacency("gcn"))
    h, outputs = batch.x, []
    if settings.get("input_norm") == "rows":
        h = torch.nn.functional.normalize(h, p=1)
    for layer in model.layers:
        norm = layer.norm if layer.norm is not None else torch.nn.Identity()
        z = norm(h) if layer.norm_place == "input" else h
        z = (a @ z if layer.kind else z) @ layer.linear.weight
        z = z if layer.residual is None else z + h @ layer.residual
        z = z if layer.bias is None else z + layer.bias
        if layer is model.layers[-1] and model.classifier is None:
            h = z
            break
        z = torch.relu(norm(z) if layer.norm_place == "conv" else z)
        z = norm(z) if layer.norm_place == "activation" else z
        h = z + h if settings.get("residual") in (True, "identity") and h.shape == z.shape else z
        outputs.append(h)
    jumping = settings.get("jumping")
    z = torch.cat(outputs, 1) if jumping == "concat" else h
    z = torch.stack(outputs).amax(0) if jumping == "max" else z
    z = torch.nn.functional.normalize(z) if settings.get("l2_normalize") else z
    for layer in model.head:
        z = layer.norm(z) if layer.norm_place == "input" else z
        z = torch.relu(z @ layer.linear.weight + layer.bias)
        z = layer.norm(z) if layer.norm_place == "activation" else z
    logits = z if model.classifier is None else model.classifier(z)
    torch.testing.assert_close(model(batch), logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat", "mlp"])
def test_without_a_classifier_the_parts_of_the_last_layer_are_summed(graph, name):
    model = GNN(name, 8, 16, 3, num_layers=1, head_layers=0).eval()
    batch = shoal.FullSampler(graph).sample(0)
    layer = model.layers[0]
    torch.nn.init.normal_(layer.bias)
    whole = layer.linear(batch.blocks[0].adjacency(layer.kind) if layer.kind else None, batch.x)
    assert whole.shape[1] == 3 * {"sage": 2, "mixhop": 3}.get(name, 1)
    torch.testing.assert_close(model(batch), sum(whole.split(3, dim=1)) + layer.bias)
    assert model.embedding_width == 3


def test_rows_of_sparse_features_are_divided_by_their_sums(graph):
    x = np.abs(np.where(graph.x > 0, graph.x, 0))
    x[3] = 0
    expected = x / np.where(x.sum(1, keepdims=True) > 0, x.sum(1, keepdims=True), 1)
    plain, normal = GNN("gcn", 8, 16, 3).eval(), GNN("gcn", 8, 16, 3, input_norm="rows").eval()
    given = shoal.FullSampler(graph._copy(x=expected.astype(np.float32))).sample(0)
    for features in (x, sp.csr_array(x)):
        batch = shoal.FullSampler(graph._copy(x=features)).sample(0)
        torch.testing.assert_close(normal(batch), plain(given))
    with pytest.raises(shoal.ShoalError, match=r"sign reads hops.*leave out input_norm"):
        GNN("sign", 32, 16, 3, input_norm="rows")


def test_what_needs_a_classifier_is_refused_without_one():
    for settings in ({"l2_normalize": True}, {"jumping": "concat"}):
        with pytest.raises(shoal.ShoalError, match=f"{next(iter(settings))}.* needs a classifier"):
            GNN("gcn", 8, 16, 3, head_layers=0, **settings)
    with pytest.raises(shoal.ShoalError, match="jumping 'bogus'"):
        GNN("gcn", 8, 16, 3, head_layers=0, jumping="bogus")
    with pytest.raises(shoal.ShoalError, match="head_layers is -1"):
        GNN("gcn", 8, 16, 3, head_layers=-1)
    with pytest.raises(shoal.ShoalError, match="3 widths: expected one, or one for each of 2 layers before"):
        GNN("gcn", 8, "16-8-3", 3, num_layers=3, head_layers=0)


@pytest.mark.parametrize("name", ["sage", "gcn", "mixhop", "gat"])
def test_eight_layers_train_without_special_settings(name):
    data = shoal.load("digits")
    model = GNN(name, data.num_features, 32, data.num_classes, num_layers=8)
    trainer = shoal.Trainer(model, data, shoal.RandomWalkSampler(data, roots=200, depth=2))
    trainer.fit(15)
    assert trainer.evaluate("test")["accuracy"] > 0.85


def test_num_macs_counts_products(graph):
    n = 30
    loops = shoal.FullSampler(graph).sample(0).blocks[0].adjacency("gcn").num_entries
    batch = shoal.RandomWalkSampler(graph, roots=30, depth=1).sample(0)
    whole = shoal.FullSampler(graph).sample(0)
    # The fixed batch knows A X; the other has one in 8 columns, as many sparse products as two in 4 forward and back.
    assert GNN("gcn", 8, 4, 3, num_layers=1).num_macs(whole) == n * 8 * 4 + n * 4 * 3
    small = batch.blocks[0].adjacency("gcn").num_entries
    m = batch.num_nodes
    assert GNN("gcn", 8, 4, 3, num_layers=1).num_macs(batch) == small * 8 + m * 8 * 4 + m * 4 * 3
    assert GNN("gcn", 8, 2, 3, num_layers=1).num_macs(batch) == m * 8 * 2 + small * 2 + m * 2 * 3
    mixhop = GNN("mixhop", 8, 6, 3, num_layers=1).num_macs(whole)
    assert mixhop == n * 8 * 6 + loops * 2 + n * 6 * 3  # of A (A X W) + A X W the inner products are known
    assert GNN("mlp", 8, 6, 3, num_layers=1, head_layers=2).num_macs(whole) == n * (8 * 6 + 6 * 6 + 6 * 3)
    assert GNN("mlp", 8, 6, 3, num_layers=2, head_layers=0).num_macs(whole) == n * (8 * 6 + 6 * 3)


def test_the_halves_of_a_sage_layer_are_normalised_each_by_itself(graph):
    model = GNN("sage", 8, 32, 3, num_layers=1).eval()
    batch = shoal.FullSampler(graph).sample(0)
    layer, a = model.layers[0], dense(batch.blocks[0].adjacency("mean"))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    w = layer.linear.weight
    parts = (a @ batch.x @ w[:, :16], batch.x @ w[:, 16:])
    expected = [
        torch.nn.functional.layer_norm(torch.relu(part + bias), (16,), scale, shift)
        for part, bias, scale, shift in zip(
            parts, layer.bias.chunk(2), layer.norm.weight.chunk(2), layer.norm.bias.chunk(2)
        )
    ]
    torch.testing.assert_close(model.embed(batch), torch.cat(expected, 1), rtol=1e-4, atol=1e-4)
