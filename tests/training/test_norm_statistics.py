"""Batch norm in evaluation: statistics of training batches without dropout, and nothing of it in training."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

import shoal
from shoal.sampling.base import make_sampler
from shoal.training import evaluation
from shoal.training.checkpoint import FORMAT
from shoal.training.evaluation import count_work
from shoal.training.norm_statistics import MOST_BATCHES, read_statistics
from shoal.training.tensor_files import read_tensors, save_tensors


@pytest.fixture(scope="module")
def graph() -> shoal.Graph:
    return shoal.load("blocks", num_nodes=400, seed=1)


WALKS = {"roots": 15, "depth": 2}
WAYS: dict[str, dict[str, Any]] = {
    "full": {},
    "inductive": {"setting": "inductive"},
    "walks": {"sampler": lambda graph: shoal.RandomWalkSampler(graph, **WALKS)},
    "layered": {
        "sampler": lambda graph: make_sampler("ladies", graph, num_layers=2, batch_size=60, layer_size=90)
    },
    "learned": {
        "sampler": lambda graph: make_sampler("asgcn", graph, num_layers=2, batch_size=60, layer_size=90)
    },
    "histories": {
        "sampler": lambda graph: shoal.RandomWalkSampler(graph, **WALKS),
        "history": True,
    },
    "labels": {"label_reuse": 0.5, "label_iterations": 1},
    "average": {"ema": 0.8, "sampler": lambda graph: shoal.RandomWalkSampler(graph, **WALKS)},
}


def make_trainer(
    graph: shoal.Graph, way: str = "full", norm: str = "batch", **settings: Any
) -> shoal.Trainer:
    chosen = WAYS[way] | settings
    sampler = chosen.pop("sampler", lambda graph: None)(graph)
    labels = graph.num_classes if "label_reuse" in chosen else 0
    width, place = graph.num_features + labels, chosen.pop("norm_place", "conv")
    model = shoal.GNN("gcn", width, 16, graph.num_classes, dropout=0.5, norm=norm, norm_place=place, seed=2)
    return shoal.Trainer(model, graph, sampler, **chosen)


class ExactNorm(nn.Module):
    """Batch norm written out, which keeps the means and variances of what it normalised."""

    def __init__(self, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        self.norm, self.seen = norm, list[tuple[Tensor, Tensor]]()

    def forward(self, h: Tensor) -> Tensor:
        self.seen.append((h.mean(0), h.var(0)))
        centred = (h - h.mean(0)) / (h.var(0, unbiased=False) + self.norm.eps).sqrt()
        return centred * self.norm.weight + self.norm.bias


def compute_exactly(model: shoal.GNN, batches: list[shoal.Batch]) -> list[Tensor]:
    """Means and variances that each norm sees in eval mode, averaged over the batches."""
    model = copy.deepcopy(model).eval()
    for layer in model.layers:
        layer.norm = ExactNorm(layer.norm)
    with torch.no_grad():
        for batch in batches:
            model(batch)
    return [torch.stack(values).mean(0) for layer in model.layers for values in zip(*layer.norm.seen)]


def is_same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("place", ["activation", "conv"])
@pytest.mark.parametrize("way", ["full", "inductive", "walks", "layered", "average"])
def test_evaluation_has_the_statistics_of_training_batches_without_dropout(graph, way, place):
    trainer = make_trainer(graph, way, norm_place=place)
    for _ in range(3):
        trainer.train_epoch()
    count, sampler = trainer.sampler.num_batches, trainer.sampler
    assert count == 1 or count > 2
    running = read_statistics(trainer.model)
    with trainer.weights.averaged():
        found = read_statistics(trainer.model)
        batches = [sampler.sample(2 * count + k) for k in range(min(count, MOST_BATCHES))]
        wanted = compute_exactly(trainer.model, batches)
    for one, other, before in zip(found, wanted, running, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        assert not torch.allclose(one, before, rtol=1e-2)  # what dropout and the moving average make of it
    assert all(torch.equal(*pair) for pair in zip(read_statistics(trainer.model), running, strict=True))


@pytest.mark.parametrize("way", WAYS)
def test_training_does_not_depend_on_evaluations(graph, way):
    often, never = make_trainer(graph, way, eval_every=1), make_trainer(graph, way, eval_every=100)
    often.fit(3)
    never.fit(3)
    assert is_same(dict(often.last_weights), dict(never.last_weights))


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_has_the_statistics_of_an_uninterrupted_one(graph, way, tmp_path):
    straight = make_trainer(graph, way, eval_every=2)
    scores = [record.get("val_accuracy") for record in straight.fit(5)]
    make_trainer(graph, way, eval_every=2, checkpoints=tmp_path).fit(3)
    resumed = make_trainer(graph, way, eval_every=2, checkpoints=tmp_path)
    resumed.resume(tmp_path)
    assert [record.get("val_accuracy") for record in resumed.fit(5)] == scores[3:]
    assert is_same(dict(resumed.last_weights), dict(straight.last_weights))
    assert is_same(dict(resumed.model.state_dict()), dict(straight.model.state_dict()))
    stored = safetensors.torch.load_file(tmp_path / "best.safetensors")
    assert is_same(
        {k.removeprefix("model."): v for k, v in stored.items()}, dict(straight.model.state_dict())
    )


@pytest.mark.parametrize("way", WAYS)
def test_evaluating_twice_gives_the_same_scores_and_measures_once(graph, way, monkeypatch):
    trainer = make_trainer(graph, way)
    trainer.train_epoch()
    calls, measure = [], trainer.weights._measure
    monkeypatch.setattr(trainer.weights, "_measure", lambda step: (calls.append(step), measure(step)))
    first = trainer.predict_proba()
    assert torch.equal(trainer.predict_proba(), first)
    assert calls == [trainer.step]
    other = make_trainer(graph, way)
    with trainer.weights.averaged():
        other.model.load_state_dict(trainer.model.state_dict())
    if way != "learned":  # weights that this trainer did not train are evaluated as they are
        torch.testing.assert_close(other.predict_proba(), first, rtol=0, atol=0)


@pytest.mark.parametrize("to_train", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_without_validation_nodes_the_result_has_measured_statistics(graph, way, to_train, tmp_path):
    graph = graph._copy(val_mask=np.zeros(graph.num_nodes, bool))
    trainer = make_trainer(graph, way, checkpoints=tmp_path)
    trainer.fit(2)
    result = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    assert not is_same(result, dict(trainer.last_weights))
    other = make_trainer(graph, way)
    other.share.to_train = to_train  # a run that is opened for prediction reads no histories and no sampler
    other.resume(tmp_path)
    other.restore_best()
    assert is_same(result, dict(other.model.state_dict()))
    trainer.fit(3)
    straight = make_trainer(graph, way)
    straight.fit(3)
    assert is_same(dict(trainer.last_weights), dict(straight.last_weights))


def test_statistics_of_a_checkpoint_that_do_not_fit_the_model_are_refused(graph, tmp_path):
    trainer = make_trainer(graph, checkpoints=tmp_path)
    trainer.fit(1)
    path = tmp_path / "last.safetensors"
    stored, progress = read_tensors(path, FORMAT)
    del stored["statistics.0"]
    save_tensors(path, stored, FORMAT, progress)
    with pytest.raises(shoal.ShoalError, match="does not fit this model: its batch norms have other shapes"):
        make_trainer(graph).resume(tmp_path)


class Plain(nn.Module):
    """A PyG-style model with torch's own batch norm and dropout."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Linear(in_features, 16), nn.BatchNorm1d(16)
        self.last = nn.Linear(16, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]])
        h = self.norm(self.first(nn.functional.dropout(x + h, training=self.training)))
        return self.last(torch.relu(h))


def test_batch_norms_of_other_models_are_measured_too(graph):
    torch.manual_seed(0)
    model = Plain(graph.num_features, graph.num_classes)
    trainer = shoal.Trainer(model, graph)
    trainer.train_epoch()
    batch = trainer.share.whole
    rows, columns = batch.edge_index
    h = batch.x + torch.zeros_like(batch.x).index_add(0, columns, batch.x[rows])
    with trainer.weights.averaged(), torch.no_grad():
        torch.testing.assert_close(model.norm.running_mean, model.first(h).mean(0), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(model.norm.running_var, model.first(h).var(0), rtol=1e-4, atol=1e-5)
    assert (model.norm.momentum, int(model.norm.num_batches_tracked), model.training) == (0.1, 1, True)


def test_models_without_batch_norm_draw_no_batch_for_evaluation(graph, monkeypatch):
    drawn = []
    sample = shoal.RandomWalkSampler.sample
    monkeypatch.setattr(
        shoal.RandomWalkSampler, "sample", lambda self, k: (drawn.append(k), sample(self, k))[1]
    )
    for norm, more in (("layer", 0), ("none", 0), ("batch", 1)):
        trainer = make_trainer(graph, "walks", norm)
        trainer.train_epoch()
        count = len(drawn)
        trainer.evaluate("val")
        assert len(drawn) - count == more * min(trainer.sampler.num_batches, MOST_BATCHES)


@pytest.mark.parametrize(("way", "large"), [("full", False), ("full", True), ("walks", True)])
def test_measuring_counts_as_work_of_an_evaluation(graph, way, large, monkeypatch):
    if large:
        monkeypatch.setattr(evaluation, "LARGE_EVALUATION", 1)
    without, measured = (make_trainer(graph, way, norm) for norm in ("none", "batch"))
    (once, epoch), (more, same) = (count_work(one.share, one.model) for one in (without, measured))
    batches = min(measured.sampler.num_batches, MOST_BATCHES) / measured.sampler.num_batches
    assert same == epoch
    assert more == pytest.approx(once + batches * epoch / 3)


def make_skewed(seed: int) -> shoal.Graph:
    """Classes of 88, 10 and 2 %, skewed amounts, a weak signal, and categories that mean nothing."""
    rng, count = np.random.default_rng(seed), 3000
    risk = rng.normal(size=count)
    ends = rng.integers(0, count, (2, 4 * count))
    amounts = np.exp(1.5 * rng.normal(size=(count, 4)))
    numbers = 0.1 * risk[:, None] + rng.normal(size=(count, 4))
    x = np.concatenate([amounts, numbers, np.eye(20)[rng.integers(0, 20, count)]], axis=1)
    x = ((x - x.mean(0)) / x.std(0)).astype(np.float32)
    score = risk + rng.normal(size=count)
    y = np.digitize(score, np.quantile(score, [0.88, 0.98]))
    return shoal.Graph.from_edge_index(ends, count, x=x, y=y).with_split(seed=0)


def test_a_skewed_table_on_which_running_statistics_fail_is_scored():
    graph = make_skewed(1)
    settings = {"norm": "batch", "norm_place": "conv", "residual": "linear", "dropout": 0.5}
    model = shoal.GNN("gcn", graph.num_features, 64, 3, num_layers=3, seed=0, **settings)
    trainer = shoal.Trainer(model, graph, lr=0.003, class_weights="balanced", metric="f1_macro")
    for _ in range(60):
        trainer.train_epoch()
    untrained = shoal.Trainer(model, graph, metric="f1_macro")  # takes the running statistics as they are
    running = untrained.evaluate("train")["f1_macro"]
    assert running < 0.2 < 0.3 < trainer.evaluate("train")["f1_macro"]
