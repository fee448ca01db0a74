"""Modules that take (x, edge_index), as PyG's do, in the trainer: full, sampled and layered batches."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import shoal
from command_line import run_shoal
from shoal.distributed.transport import LocalTransport
from shoal.models.calling import call_model, count_one_pass
from shoal.partitioning.part import make_part
from shoal.runs.need import estimate_need
from shoal.training.seeding import seeded
from small_graphs import make_labelled

pyg = pytest.importorskip("torch_geometric.nn")


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return make_labelled(400)


def make_gcn(graph: shoal.Graph, kind: type = pyg.GCN) -> nn.Module:
    torch.manual_seed(0)
    return kind(graph.num_features, 16, num_layers=2, out_channels=graph.num_classes)


class Weighted(nn.Module):
    """A user's own module that needs a weight for every edge, and keeps what it was called with."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, num_classes)
        self.weights: torch.Tensor | None = None

    def forward(self, h, edge_index, edge_weight):
        self.weights = edge_weight
        source, target = edge_index
        return self.linear(h).index_add(0, target, edge_weight[:, None] * self.linear(h)[source])


def test_a_pyg_gcn_trained_full_batch_equals_a_hand_written_loop(graph):
    ours, theirs, data = make_gcn(graph), make_gcn(graph), graph.to_pyg()
    shoal.Trainer(ours, graph, lr=0.01, patience=None).fit(10)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.01)
    best, kept = -1.0, {}
    for _ in range(10):
        theirs.train()
        optimizer.zero_grad()
        out = theirs(data.x, data.edge_index)
        functional.cross_entropy(out[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        theirs.eval()
        right = theirs(data.x, data.edge_index).argmax(1) == data.y
        if (score := right[data.val_mask].float().mean().item()) > best:
            best, kept = score, {name: value.clone() for name, value in theirs.state_dict().items()}
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, kept[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "sampler"),
    [
        *((pyg.GCN, sampler) for sampler in ("full", "frontier", "neighbor", "cluster", "ladies")),
        *((pyg.GraphSAGE, sampler) for sampler in ("full", "neighbor")),
        *((pyg.GAT, sampler) for sampler in ("frontier", "neighbor")),
    ],
)
def test_pyg_models_learn_on_batches_of_every_sort(graph, kind, sampler):
    draws = {
        "full": lambda: None,
        "frontier": lambda: shoal.FrontierSampler(graph, budget=150, frontier=40, coverage=10),
        "neighbor": lambda: shoal.NeighborSampler(graph, fanouts=(8, 8), batch_size=50),
        "cluster": lambda: shoal.ClusterSampler(graph, assignment=np.arange(400) % 4),
        "ladies": lambda: shoal.LadiesSampler(graph, batch_size=50),
    }
    trainer = shoal.Trainer(make_gcn(graph, kind), graph, draws[sampler](), lr=0.02)
    trainer.fit(30 if sampler == "full" else 6)
    assert trainer.evaluate("test")["accuracy"] > 0.7
    assert trainer.predict().shape == (400,)


def test_a_sequential_of_pyg_is_called_by_the_arguments_it_names(graph):
    layers = [(pyg.GCNConv(graph.num_features, graph.num_classes), "x, edge_index -> x")]
    model = pyg.Sequential("x, edge_index", layers)
    assert len(shoal.Trainer(model, graph).fit(2)) == 2


def test_layers_of_all_neighbours_joined_equal_the_whole_graph(graph):
    """With every neighbour drawn, the outputs of two layers depend on nothing that the joined batch lacks."""
    sampler = shoal.NeighborSampler(graph, fanouts=(-1, -1), batch_size=20)
    batch = sampler.sample(3)
    joined = shoal.join_layers(batch)
    data, model = graph.to_pyg(), make_gcn(graph, pyg.GraphSAGE).eval()
    with torch.no_grad():
        whole = model(data.x, data.edge_index)[batch.n_id[: batch.num_outputs]]
        torch.testing.assert_close(call_model(model, batch), whole, rtol=1e-4, atol=1e-5)
    assert torch.equal(joined.n_id[: joined.num_outputs], batch.n_id[: batch.num_outputs])
    assert torch.equal(joined.y, batch.y)
    assert len(joined.n_id.unique()) == joined.num_nodes


def test_a_node_of_joined_layers_has_neighbours_drawn_once():
    graph = make_labelled(300, seed=2)
    rows = np.repeat(np.arange(300), graph.degree)
    others = np.bincount(rows[graph.indices != rows], minlength=300)
    for k in range(5):
        joined = shoal.join_layers(shoal.NeighborSampler(graph, fanouts=(3, 2, 2), batch_size=10).sample(k))
        source, target = joined.edge_index
        drawn = torch.bincount(target[source != target], minlength=joined.num_nodes)  # a loop is always kept
        seeds = joined.n_id[:10].numpy()
        assert drawn[:10].tolist() == np.minimum(others[seeds], 3).tolist()
        assert drawn[10:].max() <= 2
        reached = torch.zeros(joined.num_nodes, dtype=torch.bool)
        reached[:10] = True
        reached[joined.edge_index[0]] = True
        assert reached.all()
        for source, target in joined.n_id[joined.edge_index].T.tolist():
            assert source in graph.indices[graph.indptr[target] : graph.indptr[target + 1]]


def test_edge_weights_are_the_samplers_norms_or_ones(graph):
    model = Weighted(graph.num_features, graph.num_classes)
    sampler = shoal.NodeSampler(graph, budget=100, coverage=10)
    batch = sampler.sample(0)
    call_model(model, batch)
    assert torch.equal(model.weights, batch.edge_norm)
    assert shoal.Trainer(model, graph, sampler).fit(1)
    assert torch.equal(model.weights, torch.ones(graph.num_entries))


def test_a_run_by_threads_and_with_sparse_features_is_the_same(graph):
    import scipy.sparse as sp

    sparse, losses = graph._copy(x=sp.csr_array(graph.x)), []
    for data, threads in ((graph, 0), (graph, 2), (sparse, 0)):
        sampler = shoal.NeighborSampler(data, fanouts=(4, 4), batch_size=50)
        records = shoal.Trainer(make_gcn(data), data, sampler, sampling_threads=threads).fit(2)
        losses.append([record["loss"] for record in records])
    assert losses[0] == losses[1]
    assert losses[2] == pytest.approx(losses[0], rel=1e-5)


def make_dropping(graph: shoal.Graph, sampled: bool, **options: Any) -> shoal.Trainer:
    torch.manual_seed(0)
    model = pyg.GraphSAGE(graph.num_features, 16, 2, graph.num_classes, dropout=0.5)
    sampler = shoal.NeighborSampler(graph, fanouts=(8, 8), batch_size=50) if sampled else None
    return shoal.Trainer(model, graph, sampler, patience=None, **options)


@pytest.mark.parametrize("sampled", [False, True], ids=["full", "sampled"])
def test_a_resumed_model_with_torchs_dropout_equals_an_uninterrupted_one(graph, tmp_path, sampled):
    straight = make_dropping(graph, sampled)
    straight.fit(6)
    make_dropping(graph, sampled, checkpoints=tmp_path).fit(3)
    second = make_dropping(graph, sampled)
    torch.manual_seed(123)  # a new process starts from another random state
    second.resume(tmp_path)
    second.fit(6)
    assert [one["loss"] for one in second.history] == [one["loss"] for one in straight.history[3:]]
    for name, value in straight.last_weights.items():
        assert torch.equal(second.last_weights[name], value)


def test_a_step_leaves_torchs_random_numbers_as_they_were(graph):
    trainer = make_dropping(graph, sampled=True)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    trainer.fit(1)
    assert torch.equal(torch.rand(3), expected)


def test_torchs_random_numbers_differ_by_seed_step_and_rank():
    drawn = set()
    for where in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (2**63 - 1, 2**40, 4095)):
        found = []
        for _ in range(2):
            with seeded(*where):
                found.append(torch.rand(2))
        assert torch.equal(*found)
        drawn.add(tuple(found[0].tolist()))
    assert len(drawn) == 5


PLUGIN = """
from torch_geometric.nn import GraphSAGE

import shoal


@shoal.MODELS.named("pyg-sage-NAME")
def make(in_features, num_classes, *, hidden=16):
    return GraphSAGE(in_features, hidden, 2, num_classes, dropout=0.5)
"""


@pytest.mark.parametrize("method", ["full", "sampled"])
def test_the_same_command_with_a_pyg_model_gives_the_same_run(tmp_path, method):
    (tmp_path / "dropping_sage.py").write_text(PLUGIN.replace("NAME", method))
    plugin = ("--plugin", str(tmp_path / "dropping_sage.py"), "--model", f"pyg-sage-{method}")
    command = ("train", "digits", *plugin, "--method", method, "--no-report")
    resume = ("train", "--resume", str(tmp_path / "resumed"))
    run_shoal(*command, "--epochs", "3", "--out", str(tmp_path / "first"))
    run_shoal(*command, "--epochs", "3", "--out", str(tmp_path / "again"))
    run_shoal(*command, "--epochs", "2", "--out", str(tmp_path / "resumed"))
    run_shoal(*resume, "--epochs", "3", "--no-report")
    losses = {}
    for name in ("first", "again", "resumed"):
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        losses[name] = [json.loads(line).get("loss") for line in lines]
    assert losses["first"] == losses["again"] == losses["resumed"]
    assert len(losses["first"]) == 4  # the last line has the test scores


class TwoInputs(nn.Module):
    def forward(self, x, adjacency):
        return x


class NoForward(nn.Module):
    pass


class Answers(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer, self.weight = answer, nn.Parameter(torch.ones(1))

    def forward(self, x, edge_index):
        return self.answer(x)


def test_modules_that_cannot_be_trained_get_one_sentence(graph):
    with pytest.raises(
        shoal.ShoalError, match=r"TwoInputs has forward\(x, adjacency\): expected forward\(batch\)"
    ):
        shoal.Trainer(TwoInputs(), graph)
    with pytest.raises(shoal.ShoalError, match="NoForward has no forward"):
        shoal.Trainer(NoForward(), graph)
    with pytest.raises(shoal.ShoalError, match=r"Sequential has forward\(input\): expected forward"):
        shoal.Trainer(nn.Sequential(nn.Linear(8, 3)), graph)
    with pytest.raises(shoal.ShoalError, match="made for 7 features but graph"):
        shoal.Trainer(pyg.GCN(7, 16, 2, 3), graph)
    with pytest.raises(shoal.ShoalError, match="made for 16 classes but graph"):
        shoal.Trainer(pyg.GCN(8, 16, 2), graph)
    for answer, said in (
        (lambda x: (x, x), "returned a tuple: expected a tensor of logits"),
        (lambda x: x[:5], "expected 400 rows of logits"),
        (lambda x: x, "returned 8 columns: expected 3, one per class"),
    ):
        with pytest.raises(shoal.ShoalError, match=said):
            shoal.Trainer(Answers(answer), graph).fit(1)
    part = make_part(graph, np.zeros(400, np.int32), 1, 0)
    with pytest.raises(shoal.ShoalError, match="edge_index, which has no halo rows"):
        shoal.Trainer(make_gcn(graph), part, transport=LocalTransport())
    batch = shoal.NeighborSampler(graph, fanouts=(2, 2), batch_size=5).sample(0)
    with pytest.raises(shoal.ShoalError, match=r"shoal\.join_layers\(batch\)"):
        _ = batch.edge_index


def test_a_whole_graph_that_does_not_fit_in_one_pass_is_refused_first(graph, monkeypatch):
    monkeypatch.setattr("shoal.models.calling.memory_left", lambda: 1000)
    trainer = shoal.Trainer(make_gcn(graph), graph)
    with pytest.raises(shoal.ShoalError, match="computes the whole graph in one pass"):
        trainer.predict()


def test_memory_of_a_whole_pass_is_said(graph, tmp_path):
    """The line that `shoal train` prints counts x, edge_index and a message along every edge."""
    need = estimate_need(shoal.Trainer(make_gcn(graph), graph), tmp_path)
    assert need.evaluation > 4 * 16 * graph.num_entries + 16 * graph.num_entries
    gnn = shoal.GNN("gcn", graph.num_features, 16, graph.num_classes)
    assert count_one_pass(gnn, shoal.FullSampler(graph).sample(0)) == 0
