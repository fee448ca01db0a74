"""What is kept of a split's predictions is what its scores are made of, on one rank and on several."""

import numpy as np
import pytest
import torch

import shoal
from shoal.training.metrics import score_predictions
from shoal.training.outcomes import MOST_POINTS, MOST_STORED, tabulate_outcomes


def test_confusion_counts_every_node_once():
    y = torch.tensor([0, 0, 1, 2, 2, 2])
    logits = torch.eye(3)[torch.tensor([0, 1, 1, 2, 2, 0])]
    found = tabulate_outcomes(logits, y)
    assert found["confusion"] == [[1, 1, 0], [0, 1, 0], [1, 0, 2]]
    assert found["hits"] == [1, 1, 2]
    assert found["false"] == [1, 1, 0]
    assert found["missed"] == [1, 0, 1]


def test_many_classes_keep_the_commonest_confusions():
    classes = MOST_STORED + 1
    y = torch.arange(classes).repeat(3)
    answered = y.clone()
    answered[[5, 5 + classes]] = 7
    answered[9] = 3
    found = tabulate_outcomes(torch.eye(classes)[answered], y)
    assert "confusion" not in found
    assert found["confused"] == [[5, 7, 2], [9, 3, 1]]


def test_multi_label_outcomes_give_the_f1_of_the_scores():
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(50, 4, generator=draw)
    y = (torch.rand(50, 4, generator=draw) < 0.4).to(torch.uint8)
    found = tabulate_outcomes(logits, y)
    hits, false, missed = (np.array(found[name]) for name in ("hits", "false", "missed"))
    micro = 2 * hits.sum() / (2 * hits + false + missed).sum()
    assert micro == pytest.approx(score_predictions(logits, y)["f1_micro"])


def test_regression_keeps_points_and_sums_without_unknown_targets():
    y = torch.arange(2000, dtype=torch.float64)
    y[::10] = float("nan")
    found = tabulate_outcomes(y.nan_to_num() + 1, y)
    (target,) = found["targets"]
    assert target["known"] == 1800
    assert target["absolute"] == pytest.approx(1800)
    assert 0 < len(target["points"]) <= MOST_POINTS
    assert all(predicted - true == pytest.approx(1) for true, predicted in target["points"])


def test_examined_scores_are_those_of_evaluate():
    graph = shoal.load("digits")
    model = shoal.GNN("sage", graph.num_features, 8, graph.num_classes, num_layers=1, seed=0)
    trainer = shoal.Trainer(model, graph)
    scores, outcomes = trainer.examine("test")
    assert scores == trainer.evaluate("test")
    assert np.sum(outcomes["confusion"]) == graph.test_mask.sum()
