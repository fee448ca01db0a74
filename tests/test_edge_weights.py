"""Edge weights: kept by entry, used by every aggregation that takes them, refused by whatever does not."""

import numpy as np
import pytest
import torch

import shoal
from partitioned_graphs import assert_same_part
from shoal.aggregation import find_aggregation
from shoal.block import Block
from shoal.datasets.reorder import take_order
from shoal.kernels.arrays import as_tensor
from shoal.kernels.spmm import spmm
from shoal.partitioning.part import make_part
from shoal.partitioning.partition import Partition
from shoal.partitioning.stored import open_part, store_parts
from shoal.sampling.base import make_sampler
from shoal.sampling.importance import find_column_norms
from shoal.training.smoothing import make_spread
from small_graphs import make_labelled
from weighted_graphs import aggregate, make_dense, make_random


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", ["sum", "mean", "gcn"])
def test_aggregations_weigh_neighbours(kind, directed):
    graph = make_random(directed=directed)
    adj = shoal.FullSampler(graph).sample(0).block(0).adjacency(kind)
    wanted, h = aggregate(make_dense(graph), kind), np.random.default_rng(1).normal(size=(30, 4))
    np.testing.assert_allclose(spmm(adj, torch.from_numpy(h)), wanted @ h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(spmm(adj.transpose(), torch.from_numpy(h)), wanted.T @ h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "sampler"),
    [
        *((model, sampler) for model in ("sage", "gcn", "mixhop") for sampler in ("full", "random-walk")),
        ("sage", "neighbor"),
        ("gcn", "neighbor"),
    ],
)
def test_weights_of_one_train_as_no_weights(model, sampler):
    graph = make_labelled(200)
    weighted = graph._copy(edge_weight=np.ones(graph.num_entries, np.float32))
    settings = {
        "random-walk": {"roots": 30},
        "neighbor": {"fanouts": (5, 5), "batch_size": 40},
    }.get(sampler, {})
    losses = []
    for one in (graph, weighted):
        batches = shoal.SAMPLERS[sampler](one, seed=0, **settings)
        trainer = shoal.Trainer(shoal.GNN(model, 8, 16, 3, num_layers=2, seed=0), one, batches)
        losses.append([record["loss"] for record in trainer.fit(3)])
    np.testing.assert_allclose(*losses, rtol=1e-5)


def test_batches_keep_the_weights_of_their_edges_and_norms_multiply_them():
    graph = make_random(60)
    dense = make_dense(graph)
    for coverage in (None, 5):
        sampler = shoal.RandomWalkSampler(graph, roots=8, seed=0, coverage=coverage)
        batch = sampler.sample(3)
        block, nodes = batch.blocks[0], batch.nodes
        targets, sources = batch.edge_index[1], batch.edge_index[0]
        np.testing.assert_allclose(batch.edge_weight, dense[nodes[targets], nodes[sources]], rtol=1e-6)
        if coverage is None:
            inner = dense[np.ix_(nodes, nodes)]
            np.testing.assert_allclose(
                spmm(block.adjacency("mean"), torch.eye(len(nodes))),
                aggregate(inner, "mean"),
                rtol=1e-5,
                atol=1e-7,
            )
        else:
            np.testing.assert_allclose(block.degree, dense.sum(1)[nodes], rtol=1e-6)
            assert torch.equal(block.adjacency("sum").values, block.edge_weight * block.edge_norm)


@pytest.mark.parametrize("kind", ["mean", "gcn"])
def test_drawn_neighbours_estimate_the_weighted_aggregation_without_bias(kind):
    graph = make_random(24)
    wanted = aggregate(make_dense(graph), kind)
    nodes = np.flatnonzero(graph.train_mask)
    h = np.random.default_rng(2).normal(size=(24, 3))
    sampler = shoal.NeighborSampler(graph, fanouts=(2,), batch_size=len(nodes), seed=0)
    found = np.zeros((1500, len(nodes), 3))
    for k in range(len(found)):
        batch = sampler.sample(k)
        order = np.argsort(batch.nodes[: batch.num_outputs])
        found[k] = spmm(batch.block(0).adjacency(kind), torch.from_numpy(h[batch.nodes]))[order]
    error = found.mean(0) - (wanted @ h)[nodes]
    deviation = found.std(0) / np.sqrt(len(found))
    assert (abs(error) <= 5 * deviation + 1e-5).all()


def test_weights_are_stored_cut_and_left_out(tmp_path):
    graph = make_random(directed=True)
    shoal.save_graph(graph, tmp_path / "g")
    stored = shoal.open_graph(tmp_path / "g")
    np.testing.assert_array_equal(stored.edge_weight, graph.edge_weight)
    assert stored.content_checksum == graph.content_checksum != graph.without_weights().content_checksum
    nodes = np.arange(0, 30, 2)
    np.testing.assert_allclose(make_dense(stored.subgraph(nodes)), make_dense(graph)[np.ix_(nodes, nodes)])
    inductive = graph.train_graph("inductive")
    assert len(inductive.edge_weight) == inductive.num_entries


class Weighing(torch.nn.Module):
    """Sums neighbours by the weights it is given."""

    def __init__(self):
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(5, 3))

    def forward(self, x, edge_index, edge_weight=None):
        messages = x[edge_index[0]] * edge_weight[:, None]
        return torch.zeros_like(x).index_add(0, edge_index[1], messages) @ self.factor


def test_models_of_edge_index_are_given_the_weights():
    graph = make_random()
    trainer = shoal.Trainer(Weighing(), graph)
    wanted = make_dense(graph) @ graph.x @ np.ones((5, 3))
    np.testing.assert_allclose(trainer.share.predict(trainer.model).detach(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_integer_weights_count_as_repeated_edges_in_attention(directed, symmetric):
    """α_uv = w_uv e^s_uv / Σ w e^s is the softmax over w_uv copies of every edge, here spelt out."""
    graph = make_random(directed=directed)
    weights = np.ceil(graph.edge_weight).astype(np.float32)
    graph = graph._copy(edge_weight=weights)
    conv = shoal.GNN("gat", 5, 8, 3, num_layers=1, seed=2, heads=2, symmetric=symmetric).layers[0].linear
    adj = shoal.FullSampler(graph).sample(0).block(0).adjacency(conv.kind)
    found = conv(adj, torch.from_numpy(graph.x))
    rows = np.repeat(np.arange(30), graph.degree)
    loops = np.setdiff1d(np.arange(30), rows[rows == graph.indices])
    ends = np.repeat([rows, graph.indices], weights.astype(int), axis=1)
    row, column = torch.from_numpy(np.concatenate([ends, [loops, loops]], axis=1))
    degree = torch.bincount(row, minlength=30).float()[:, None]
    h = torch.from_numpy(graph.x) @ conv.weight
    h = h * degree.rsqrt() if symmetric else h
    z = h.unflatten(1, (2, -1))
    own, other = ((z * vector).sum(-1) for vector in conv.attend)
    own = own * degree.sqrt() if symmetric else own
    powers = torch.nn.functional.leaky_relu(own[row] + other[column], 0.2).exp()
    sums = torch.zeros(30, 2).index_add(0, row, powers)
    wanted = torch.zeros_like(z).index_add(0, row, (powers / sums[row])[:, :, None] * z[column])
    wanted = conv.join(wanted, degree.rsqrt() if symmetric else None)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_integer_weights_are_repeated_edges_in_mean_aggregation():
    edges = np.array([[0, 1, 1, 2], [3, 3, 0, 1]])
    weights = np.array([2.0, 3.0, 1.0, 4.0])
    repeated = np.repeat(edges, weights.astype(int), axis=1)
    x = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    graph = shoal.Graph.from_edge_index(edges, 4, directed=True, x=x, edge_weight=weights)
    counted = shoal.Graph.from_edge_index(repeated, 4, directed=True, x=x, edge_weight=np.ones(10))
    np.testing.assert_array_equal(graph.edge_weight, counted.edge_weight)
    adj = shoal.FullSampler(graph).sample(0).block(0).adjacency("mean")
    wanted = np.zeros((4, 5))
    for node in range(4):
        sources = repeated[0][repeated[1] == node]
        wanted[node] = x[sources].mean(0) if len(sources) else 0
    np.testing.assert_allclose(spmm(adj, torch.from_numpy(x)), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["fastgcn", "ladies"])
def test_importance_follows_the_weighted_operator(kind):
    """q_v ∝ Σ_u Â_uv² of the weighted Â, and an aggregation over the sample estimates the whole one without bias."""
    graph = make_random()
    dense = make_dense(graph)
    operator = aggregate(dense, "gcn")
    rows = np.arange(30) if kind == "fastgcn" else np.array([0, 4, 9])
    scale = 1 / (dense.sum(1) + 1)  # degrees with a loop of 1 each, as the samplers count them
    off = dense - np.diag(dense.diagonal())
    wanted = (off[rows] ** 2 * scale[rows, None] * scale).sum(0) + (scale**2 if kind == "fastgcn" else 0)
    found = scale**2 if kind == "fastgcn" else np.zeros(30)
    find_column_norms(graph, rows, found)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    settings = {"row_normalize": False} if kind == "ladies" else {}
    sampler = make_sampler(kind, graph, batch_size=30, layer_size=20, num_layers=1, **settings)
    found = torch.zeros(400, 30, 5)
    for k in range(400):
        batch = sampler.sample(k)
        own = batch.nodes[: batch.num_outputs]
        found[k, own] = spmm(batch.block(0).adjacency("gcn"), torch.from_numpy(graph.x)[batch.nodes])
    exact = torch.from_numpy(operator @ graph.x).float()
    off, error = (found.mean(0) - exact).abs(), found.std(0) / 20
    assert bool((off[own] < 5 * error[own] + 1e-5).all())


def test_both_directions_weigh_their_edges():
    graph = make_random(directed=True)
    adj = shoal.FullSampler(graph).sample(0).block(0).adjacency("mean")
    turned = adj.reverse(find_aggregation("mean").scale_degrees)
    h = torch.from_numpy(graph.x)
    wanted = aggregate(make_dense(graph).T, "mean") @ graph.x
    np.testing.assert_allclose(spmm(turned, h), wanted, rtol=1e-5, atol=1e-6)


def test_orders_keep_weights_with_their_edges():
    graph = make_random(directed=True)
    order = np.random.default_rng(3).permutation(30)
    np.testing.assert_array_equal(make_dense(take_order(graph, order)), make_dense(graph)[order][:, order])


def test_smoothing_spreads_by_weights():
    for directed in (False, True):
        graph = make_random(directed=directed)
        dense = make_dense(graph) + (make_dense(graph).T if directed else 0)
        scale = 1 / np.sqrt(np.where(dense.sum(1) > 0, dense.sum(1), 1))
        wanted = scale[:, None] * dense * scale @ graph.x
        np.testing.assert_allclose(
            make_spread(graph)(torch.from_numpy(graph.x)), wanted, rtol=1e-4, atol=1e-5
        )


def test_stored_parts_keep_weights(tmp_path):
    graph = make_random()
    partition = Partition(graph, (np.arange(30) % 3).astype(np.int32), 3)
    store_parts(graph, partition, tmp_path / "parts")
    for rank in range(3):
        made = make_part(graph, partition.assignment, 3, rank)
        opened = open_part(tmp_path / "parts", rank, verify=True)
        assert_same_part(made, opened)
        assert made.halo_weight.sum() + made.local_weight.sum() == pytest.approx(
            graph.edge_weight[np.repeat(np.arange(30) % 3 == rank, graph.degree)].sum(), rel=1e-5
        )


def test_inference_by_layers_is_the_forward_pass():
    graph = make_random(80)
    trainer = shoal.Trainer(shoal.GNN("gcn", 5, 8, 3, num_layers=2, seed=0), graph)
    trainer.fit(1)
    trainer.model.eval()
    with torch.no_grad():
        wanted = trainer.model.embed(trainer.share.whole)
    torch.testing.assert_close(trainer.embed(), wanted, rtol=1e-5, atol=1e-6)


def test_a_run_leaves_weights_out_if_asked(shoal, tmp_path):
    from shoal import save_graph

    save_graph(make_random(), tmp_path / "g")
    runs = [("a",), ("b", "--set", "training.edge_weights=false")]
    for folder, *more in runs:
        assert shoal("train", "g", "--epochs", "2", "--method", "full", "--out", folder, *more).code == 0
    one, other = ((tmp_path / folder / "metrics.jsonl").read_text().splitlines()[0] for folder, *_ in runs)
    assert one.split(",")[1] != other.split(",")[1]


def test_blocks_without_weights_have_no_values():
    graph = make_labelled(50)
    block = Block(as_tensor(graph.indptr), as_tensor(graph.indices), 50, symmetric=True)
    assert block.adjacency("gcn").values is None
    assert block.adjacency("mean").values is None
