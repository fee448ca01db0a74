"""Losses, their settings and class weights."""

import math

import numpy as np
import pytest
import torch

import shoal
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from shoal.training.loss import compute_loss, cross_entropy, log_epsilon, weigh_classes


def make_graph(y: np.ndarray) -> shoal.Graph:
    n = len(y)
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
    mask, half = np.arange(n) < n // 2, np.arange(n) % 2 == 0
    return shoal.Graph.from_edge_index(
        ring,
        n,
        x=np.ones((n, 2), np.float32),
        y=y,
        train_mask=mask,
        val_mask=~mask & half,
        test_mask=~mask & ~half,
    )


def test_balanced_weights_make_every_class_count_the_same():
    y = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 0] * 4)
    graph = make_graph(y)
    weights = weigh_classes(graph, "balanced")
    counts = np.bincount(y[graph.train_mask], minlength=3)
    assert np.allclose(weights.numpy() * counts, counts.sum() / 3)


def test_a_class_without_training_nodes_has_weight_one():
    graph = make_graph(np.array([0, 1, 0, 1, 2, 2, 2, 2]))
    assert weigh_classes(graph, "balanced").tolist() == [1, 1, 1]


def test_several_labels_are_weighed_by_how_rare_they_are():
    y = np.zeros((20, 2), np.uint8)
    y[:2, 0] = 1
    y[:5, 1] = 1
    assert weigh_classes(make_graph(y), "balanced").tolist() == pytest.approx([4, 1])


@pytest.mark.parametrize("multi", [False, True])
def test_weights_enter_the_loss_as_in_torch(multi):
    rng = np.random.default_rng(0)
    y = (rng.random((20, 3)) < 0.4).astype(np.uint8) if multi else rng.integers(0, 3, 20)
    graph = make_graph(y)
    batch = shoal.FullSampler(graph).sample(0)
    logits, weights = torch.randn(20, 3), torch.tensor([0.5, 1.0, 3.0])
    mask = torch.from_numpy(graph.train_mask)
    wanted, labels = logits[mask], torch.from_numpy(graph.y)[mask]
    if multi:
        expected = torch.nn.functional.binary_cross_entropy_with_logits(
            wanted, labels.float(), pos_weight=weights
        )
    else:
        expected = (
            torch.nn.functional.cross_entropy(wanted, labels, weight=weights, reduction="sum") / mask.sum()
        )
    assert float(compute_loss(logits, batch, weights)) == pytest.approx(float(expected), rel=1e-5)


def test_wrong_weights_are_refused():
    graph = make_graph(np.arange(12) % 3)
    for wrong, said in (([1.0, 2.0], "expected 3 numbers"), ([1, -1, 1], "above 0"), ("even", "balanced")):
        with pytest.raises(shoal.ShoalError, match=said):
            weigh_classes(graph, wrong)


def draw(multi=False):
    rng = np.random.default_rng(1)
    y = (rng.random((30, 4)) < 0.4).astype(np.uint8) if multi else rng.integers(0, 4, 30)
    return rng.normal(0, 3, (30, 4)), y, np.array([0.5, 1.0, 3.0, 2.0])


@pytest.mark.parametrize("name", ["cross_entropy", "log_epsilon"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_single_label_losses_are_the_formulas(name, smoothing):
    logits, y, weights = draw()
    log_p = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    target = (1 - smoothing) * np.eye(4)[y] + smoothing / 4
    z = -(target * log_p).sum(1)
    epsilon = 1 - math.log(2)
    expected = (z if name == "cross_entropy" else np.log(epsilon + z) - np.log(epsilon)) * weights[y]
    loss = shoal.make_loss(name, label_smoothing=smoothing)
    found = loss(torch.from_numpy(logits), torch.from_numpy(y), class_weights=torch.from_numpy(weights))
    assert np.allclose(found.numpy(), expected)


@pytest.mark.parametrize("name", ["cross_entropy", "log_epsilon"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_multi_label_losses_are_means_over_classes(name, smoothing):
    logits, y, weights = draw(multi=True)
    target = (1 - smoothing) * y + smoothing / 2
    hits, misses = np.log1p(np.exp(-logits)), np.log1p(np.exp(logits))
    if name == "cross_entropy":
        expected = weights * target * hits + (1 - target) * misses
    else:
        z = target * hits + (1 - target) * misses
        expected = np.where(y == 1, weights, 1) * np.log1p(z / 0.5)
    settings = {"epsilon": 0.5} if name == "log_epsilon" else {}
    loss = shoal.make_loss(name, label_smoothing=smoothing, **settings)
    found = loss(torch.from_numpy(logits), torch.from_numpy(y), class_weights=torch.from_numpy(weights))
    assert np.allclose(found.numpy(), expected.mean(1))


def test_settings_of_a_loss_reach_the_trainer():
    graph = make_graph(np.arange(40) % 4)
    config = make_config({"training": {"loss": "log_epsilon", "epsilon": 0.5, "label_smoothing": 0.1}})
    trainer = make_trainer(config, graph)
    logits, y, _ = draw()
    logits, y = torch.from_numpy(logits), torch.from_numpy(y)
    assert torch.equal(trainer.task.loss(logits, y), log_epsilon(logits, y, epsilon=0.5, label_smoothing=0.1))
    assert torch.equal(make_trainer(make_config({}), graph).task.loss(logits, y), cross_entropy(logits, y))


def test_a_setting_of_another_loss_is_refused():
    config = make_config({"training": {"epsilon": 0.5}})
    with pytest.raises(shoal.ShoalError, match="belongs to loss 'log_epsilon'"):
        config.validate()
    with pytest.raises(shoal.ShoalError, match="epsilon is 0\\.0: expected a number above 0"):
        shoal.make_loss("log_epsilon", epsilon=0)
    with pytest.raises(shoal.ShoalError, match="label_smoothing"):
        make_config({"training": {"label_smoothing": 1.0}}).validate()
