"""Scores from counts, against their definitions."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import shoal
from shoal.training.metrics import compute_roc_auc, count_outcomes, score_predictions, score_roc_auc


def test_single_label_scores_follow_their_definitions():
    y = torch.tensor([0, 0, 1, 1, 2])
    logits = torch.eye(4)[torch.tensor([0, 1, 1, 1, 0])]
    scores = score_predictions(logits, y)
    assert scores["accuracy"] == 3 / 5
    assert scores["f1_micro"] == 3 / 5
    f1 = [2 * 1 / (2 * 1 + 1 + 1), 2 * 2 / (2 * 2 + 1 + 0), 0, 0]
    np.testing.assert_allclose(scores["f1_macro"], np.mean(f1))


def test_multi_label_scores_follow_their_definitions():
    y = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=torch.uint8)
    logits = torch.tensor([[2.0, 1.0, -1.0], [-1.0, 3.0, -2.0]])
    scores = score_predictions(logits, y)
    np.testing.assert_allclose(scores["f1_micro"], 2 * 2 / (2 * 2 + 1 + 1))
    np.testing.assert_allclose(scores["f1_macro"], np.mean([1, 2 / 3, 0]))
    assert "accuracy" not in scores


def test_counts_of_chunks_add_up_to_counts_of_the_whole():
    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(50, 4, generator=generator), torch.randint(0, 4, (50,), generator=generator)
    parts = count_outcomes(logits[:20], y[:20]) + count_outcomes(logits[20:], y[20:])
    assert torch.equal(parts, count_outcomes(logits, y))


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=40))
def test_roc_auc_is_how_often_a_positive_scores_above_a_negative(pairs):
    scores = torch.tensor([float(score) for score, _ in pairs])
    y = torch.tensor([int(positive) for _, positive in pairs])
    above = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a in scores[y == 1].tolist()
        for b in scores[y == 0].tolist()
    ]
    expected = sum(above) / len(above) if above else 0.5
    assert compute_roc_auc(scores, y) == pytest.approx(expected)


def test_a_binary_task_has_roc_auc_and_the_trainer_can_select_by_it():
    graph = shoal.load("digits")
    binary = shoal.Graph(
        graph.indptr,
        graph.indices,
        x=graph.x,
        y=(graph.y % 2).astype("int64"),
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
    )
    model = shoal.GNN("sage", graph.num_features, 16, 2)
    trainer = shoal.Trainer(model, binary, metric="roc_auc")
    trainer.fit(3)
    assert trainer.evaluate("test").keys() == {"f1_micro", "f1_macro", "accuracy", "roc_auc"}
    assert trainer.best_score == trainer.evaluate("val")["roc_auc"]
    targets = graph._copy(y=graph.y.astype("float32"), num_classes=1)
    with pytest.raises(shoal.ShoalError, match="roc_auc needs classes"):
        shoal.Trainer(shoal.GNN("sage", graph.num_features, 16, 1), targets, metric="roc_auc")


def test_roc_auc_of_many_classes_is_the_mean_of_one_against_the_rest():
    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(60, 4, generator=generator), torch.randint(0, 3, (60,), generator=generator)
    chances = logits.softmax(1)
    expected = [compute_roc_auc(chances[:, one], (y == one).long()) for one in range(3)]  # none of class 3
    assert score_roc_auc(logits, y) == pytest.approx(sum(expected) / 3)
    many = torch.randint(0, 2, (60, 4), generator=generator)
    many[:, 3] = 1  # a class that every node has
    expected = [compute_roc_auc(logits[:, one], many[:, one]) for one in range(3)]
    assert score_roc_auc(logits, many) == pytest.approx(sum(expected) / 3)
    assert score_roc_auc(logits, torch.zeros(60, dtype=torch.long)) == 0.5
    graph = shoal.load("digits")
    trainer = shoal.Trainer(shoal.GNN("sage", graph.num_features, 16, 10), graph, metric="roc_auc")
    trainer.fit(3)
    assert trainer.best_score == trainer.evaluate("val")["roc_auc"] > 0.7


def test_a_metric_that_answers_no_number_is_named_with_its_shape():
    def rows(logits, y):
        return logits

    logits, y = torch.eye(3), torch.arange(3)
    with pytest.raises(
        shoal.ShoalError, match=r"^metric rows returned a Tensor of shape \(3, 3\): expected a number$"
    ):
        score_predictions(logits, y, [rows])
    with pytest.raises(shoal.ShoalError, match=r"^metric <lambda> returned 'xxx\S{56}: expected a number$"):
        score_predictions(logits, y, [lambda logits, y: 1000 * "x"])
