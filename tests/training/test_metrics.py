"""Scores from counts, against their definitions."""

import numpy as np
import torch

from shoal.training.metrics import count_outcomes, score_outcomes


def test_single_label_scores_follow_their_definitions():
    y = torch.tensor([0, 0, 1, 1, 2])
    logits = torch.eye(4)[torch.tensor([0, 1, 1, 1, 0])]
    scores = score_outcomes(count_outcomes(logits, y), multi_label=False)
    assert scores["accuracy"] == 3 / 5
    assert scores["f1_micro"] == 3 / 5
    f1 = [2 * 1 / (2 * 1 + 1 + 1), 2 * 2 / (2 * 2 + 1 + 0), 0, 0]
    np.testing.assert_allclose(scores["f1_macro"], np.mean(f1))


def test_multi_label_scores_follow_their_definitions():
    y = torch.tensor([[1, 0, 1], [0, 1, 0]], dtype=torch.uint8)
    logits = torch.tensor([[2.0, 1.0, -1.0], [-1.0, 3.0, -2.0]])
    scores = score_outcomes(count_outcomes(logits, y), multi_label=True)
    np.testing.assert_allclose(scores["f1_micro"], 2 * 2 / (2 * 2 + 1 + 1))
    np.testing.assert_allclose(scores["f1_macro"], np.mean([1, 2 / 3, 0]))
    assert "accuracy" not in scores


def test_counts_of_chunks_add_up_to_counts_of_the_whole():
    generator = torch.Generator().manual_seed(0)
    logits, y = torch.randn(50, 4, generator=generator), torch.randint(0, 4, (50,), generator=generator)
    parts = count_outcomes(logits[:20], y[:20]) + count_outcomes(logits[20:], y[20:])
    assert torch.equal(parts, count_outcomes(logits, y))
