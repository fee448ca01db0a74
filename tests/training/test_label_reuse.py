"""Labels as input: masked in training, never those of validation or test nodes, the same by every way of training."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import nn

import shoal
from rank_jobs import Job, assign_nodes, make_graph, make_model, train_alone, train_here
from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.label_columns import JoinedRows, KnownLabels, SparseJoin
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from shoal.training import label_reuse
from small_graphs import make_labelled

RATE = 0.5


def make_noise(num_nodes: int = 600, num_classes: int = 4, *, sparse: bool = False) -> shoal.Graph:
    """Features and edges that say nothing of the labels: only leaked labels can be learned."""
    generator = np.random.default_rng(5)
    x = generator.normal(size=(num_nodes, 6)).astype(np.float32)
    features = sp.csr_array(np.where(x > 0.5, x, 0)) if sparse else x
    ends = generator.integers(0, num_nodes, (2, 4 * num_nodes))
    y = generator.integers(0, num_classes, num_nodes)
    return shoal.Graph.from_edge_index(ends, num_nodes, directed=False, x=features, y=y).with_split(0.5, 0.25)


class Recorder(nn.Module):
    """Keeps what it is shown; answers by its own label columns alone."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.in_features, self.num_classes = num_features + num_classes, num_classes
        self.factor = nn.Parameter(torch.ones(()))
        self.seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []

    def forward(self, batch: Batch) -> torch.Tensor:
        x = batch.dense_x[:, -self.num_classes :]
        if self.training:
            self.seen.append((batch.n_id, x, batch.train_mask))
        return 9 * self.factor * x[: batch.num_outputs]


def list_samplers(graph: shoal.Graph) -> list[shoal.Sampler | None]:
    return [
        None,
        shoal.RandomWalkSampler(graph, roots=40, depth=2, coverage=3),
        shoal.NeighborSampler(graph, fanouts="5-5", batch_size=50),
        shoal.NodeSampler(graph, budget=120, setting="inductive"),
    ]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_node_never_sees_its_own_label_while_its_loss_is_counted(sparse):
    graph = make_noise(sparse=sparse)
    for sampler in list_samplers(graph):
        model = Recorder(graph.num_features, graph.num_classes)
        shoal.Trainer(model, graph, sampler, label_reuse=RATE).fit(3)
        counted = shown = 0
        for n_id, labels, train_mask in model.seen:
            own = labels[: len(train_mask)].sum(1) > 0
            assert not bool((own & train_mask).any())
            trains = torch.from_numpy(graph.train_mask)[n_id]
            assert not bool((labels.sum(1) > 0)[~trains].any())
            y = torch.from_numpy(graph.y)[n_id]
            assert torch.equal(labels.argmax(1)[labels.sum(1) > 0], y[labels.sum(1) > 0])
            counted, shown = counted + int(train_mask.sum()), shown + int(own.sum())
        assert abs(shown / (shown + counted) - RATE) < 4 * 0.5 / (shown + counted) ** 0.5


def test_a_run_draws_the_mask_by_its_seed_whatever_the_model(monkeypatch):
    monkeypatch.setattr(shoal.MODELS, "_components", dict(shoal.MODELS))
    shoal.MODELS.add("label-recorder", lambda width, classes: Recorder(width - classes, classes))
    graph, masks = make_noise(), []
    for seed in (7, 7, 8):
        config = {"method": "full", "model": {"name": "label-recorder"}}
        config |= {"training": {"seed": seed, "label_reuse": RATE}}
        trainer = make_trainer(make_config(config), graph)
        trainer.fit(1)
        masks.append(trainer.model.seen[0][2])
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_labels_of_validation_and_test_nodes_never_reach_the_model():
    """A model that answers what it is shown scores 1 on whoever's labels are shown, and as guessing does on others."""
    graph = make_noise()
    trainer = shoal.Trainer(Recorder(graph.num_features, graph.num_classes), graph, label_reuse=RATE)
    trainer.fit(1)
    for split in ("val", "test"):
        assert trainer.evaluate(split)["accuracy"] < 0.4
    everyone = graph._copy(train_mask=np.ones(graph.num_nodes, np.bool_))
    leaking = trainer.predict(
        graph=everyone
    )  # the power of the check: with all labels shown it is right everywhere
    assert float((leaking == torch.from_numpy(graph.y)).float().mean()) == 1.0
    other = graph._copy(y=np.where(graph.train_mask, graph.y, (graph.y + 1) % graph.num_classes))
    assert torch.equal(trainer.predict_proba(graph=other), trainer.predict_proba())


@pytest.mark.parametrize("model", ["sage", "gcn", "mixhop", "gat"])
def test_predictions_do_not_depend_on_labels_outside_training(model):
    graph = make_labelled()
    flipped = graph._copy(y=np.where(graph.train_mask, graph.y, (graph.y + 1) % 3))
    found = []
    for one in (graph, flipped):
        net = shoal.GNN(model, 11, 16, 3, seed=1)
        trainer = shoal.Trainer(net, one, label_reuse=RATE, label_iterations=1, patience=None)
        for _ in range(3):
            trainer.train_epoch()
        found.append(trainer.predict_proba())
    assert torch.equal(*found)


def test_reused_labels_raise_the_score_of_a_homophilous_graph():
    graph = make_labelled()
    blind = graph._copy(x=np.ones((graph.num_nodes, 1), np.float32))
    scores = []
    for reuse in (None, RATE):
        model = shoal.GNN("sage", 1 if reuse is None else 4, 16, 3)
        trainer = shoal.Trainer(model, blind, label_reuse=reuse)
        trainer.fit(30)
        scores.append(trainer.evaluate("test")["accuracy"])
    assert scores[0] < 0.5
    assert scores[1] > 0.9


def test_the_mean_of_hidden_losses_is_that_of_all_training_nodes():
    """Σ over unshown nodes of ℓ / (1 − rate) has the full sum as its mean: held over many steps of a fixed loss."""
    graph = make_noise()
    reuse = label_reuse.LabelReuse(RATE, 0, 4, seed=3, multi_label=False)
    batch = shoal.Trainer(make_plain(graph), graph).share.whole
    labels = KnownLabels.of(graph, batch.nodes, batch.n_id)
    losses = torch.rand(graph.num_nodes, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = []
    for step in range(400):
        batch.step = step
        hidden = reuse.hide(batch, labels)
        found.append(float((losses * hidden.node_norm)[hidden.train_mask].sum()))
    mean = float(losses[torch.from_numpy(graph.train_mask)].mean())
    assert abs(np.mean(found) - mean) < 4 * np.std(found) / 20


def make_plain(graph: shoal.Graph) -> shoal.GNN:
    return shoal.GNN("sage", graph.num_features, 8, graph.num_classes)


@pytest.mark.parametrize("iterations", [0, 2])
@pytest.mark.parametrize("sparse", [False, True])
def test_inference_by_layers_equals_a_plain_pass(sparse, iterations, monkeypatch):
    job = Job("sage", sparse=sparse, training=(("label_reuse", RATE),))
    graph = make_graph(job)
    trainer = shoal.Trainer(make_model(job), graph, label_reuse=RATE, label_iterations=iterations)
    trainer.fit(2)
    trainer.model.eval()
    with torch.no_grad():
        shown = trainer.share.show_labels(trainer.model)
        wanted = trainer.model(shown)
    found = trainer.share.predict(trainer.model)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr("shoal.label_columns.memory_left", lambda: 0)
    assert sparse or isinstance(trainer.share.show_labels(trainer.model).stored_x, JoinedRows)
    torch.testing.assert_close(trainer.share.predict(trainer.model), wanted, rtol=1e-4, atol=1e-5)


def test_both_sparse_patterns_of_passes_with_predictions_are_made_once(monkeypatch):
    made = []

    class Counted(SparseJoin):
        def __init__(self, *args, full):
            super().__init__(*args, full=full)
            made.append(full)

    monkeypatch.setattr(label_reuse, "SparseJoin", Counted)
    job = Job("sage", sparse=True, training=(("label_reuse", RATE),))
    shoal.Trainer(make_model(job), make_graph(job), label_reuse=RATE, label_iterations=1).fit(3)
    assert sorted(made) == [False, True]


def test_a_model_without_a_seed_shows_labels_by_the_samplers():
    graph, shown = make_noise(), []
    for seed in (1, 1, 2):
        model = Recorder(graph.num_features, graph.num_classes)
        sampler = shoal.FullSampler(graph, seed=seed)
        shoal.Trainer(model, graph, sampler, label_reuse=RATE).fit(1)
        shown.append(model.seen[0][1])
    assert torch.equal(shown[0], shown[1])
    assert not torch.equal(shown[0], shown[2])


def test_a_resumed_run_shows_the_labels_of_an_uninterrupted_one(tmp_path):
    graph = make_labelled()
    weights = []
    for breaks in (False, True):
        folder = tmp_path / str(breaks)

        def make(folder=folder):
            sampler = shoal.RandomWalkSampler(graph, roots=100, depth=2)
            model = shoal.GNN("gcn", 11, 16, 3)
            return shoal.Trainer(
                model, graph, sampler, label_reuse=0.4, label_iterations=1, checkpoints=folder
            )

        trainer = make()
        if breaks:
            trainer.fit(2)
            trainer = make()
            trainer.resume(folder)
        trainer.fit(4)
        weights.append(torch.cat([one.reshape(-1) for one in trainer.last_weights.values()]))
    assert torch.equal(*weights)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_predictions_reused_across_ranks_are_those_of_one_process(model, ranks):
    job = Job(model, double=True, epochs=2, training=(("label_reuse", RATE), ("label_iterations", 2)))
    wanted = train_alone(job)
    assignment = assign_nodes(job, make_graph(job), 3).tolist()
    found = ranks("gloo", 3).call(train_here, asdict(job), assignment)
    np.testing.assert_allclose(found["losses"], wanted["losses"], rtol=1e-10)
    np.testing.assert_allclose(found["embedding"], wanted["embedding"], rtol=1e-8, atol=1e-11)
    assert found["test"] == pytest.approx(wanted["test"], abs=1e-12)


def test_what_does_not_fit_is_refused():
    graph = make_labelled()
    model = shoal.GNN("sage", 11, 16, 3)
    with pytest.raises(ShoalError, match=r"num_features \+ graph.num_classes"):
        shoal.Trainer(make_plain(graph), graph, label_reuse=RATE)
    with pytest.raises(ShoalError, match="add label_reuse"):
        shoal.Trainer(make_plain(graph), graph, label_iterations=1)
    sampler = shoal.NeighborSampler(graph, fanouts="5-5")
    with pytest.raises(ShoalError, match="predictions for output nodes only"):
        shoal.Trainer(model, graph, sampler, label_reuse=RATE, label_iterations=1)
    numbers = graph._copy(y=graph.y.astype(np.float32) + 0.5, num_classes=1)
    with pytest.raises(ShoalError, match="label reuse needs classes"):
        shoal.Trainer(shoal.GNN("sage", 9, 16, 1), numbers, label_reuse=RATE)
    with pytest.raises(ShoalError, match="see their own labels"):
        shoal.Trainer(model, graph, label_reuse=RATE).evaluate("train")
    with pytest.raises(ShoalError, match="above 0, below 1"):
        shoal.Trainer(model, graph, label_reuse=1.0)
