"""Class weights in the loss."""

import numpy as np
import pytest
import torch

import shoal
from shoal.training.loss import compute_loss, weigh_classes


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
