"""Scores from counts: accuracy, micro and macro F1."""

import torch
from torch import Tensor


def count_outcomes(logits: Tensor, y: Tensor) -> Tensor:
    """(3, num_classes) true positives, false positives and false negatives of every class.

    Counts add up over chunks and ranks, so no one needs all predictions. Multi-label `y` is a 0/1 matrix and
    a class is predicted where its logit is positive; single-label `y` holds class numbers.
    """
    if y.dim() == 2:
        predicted, true = logits > 0, y.bool()
        return torch.stack(
            [(predicted & true).sum(0), (predicted & ~true).sum(0), (~predicted & true).sum(0)]
        )
    num_classes = logits.shape[1]
    predicted = logits.argmax(1)
    hits = torch.bincount(y[predicted == y], minlength=num_classes)
    return torch.stack(
        [
            hits,
            torch.bincount(predicted, minlength=num_classes) - hits,
            torch.bincount(y, minlength=num_classes) - hits,
        ]
    )


def score_outcomes(outcomes: Tensor, *, multi_label: bool) -> dict[str, float]:
    """`f1_micro`, `f1_macro` and, for single-label tasks, `accuracy`. A class never seen nor predicted has F1 0."""
    hits, false, missed = outcomes.double()
    f1 = 2 * hits / (2 * hits + false + missed).clamp(min=1)
    total = 2 * hits.sum() + false.sum() + missed.sum()
    scores = {"f1_micro": float(2 * hits.sum() / total.clamp(min=1)), "f1_macro": float(f1.mean())}
    if not multi_label:
        scores["accuracy"] = float(hits.sum() / (hits + missed).sum().clamp(min=1))
    return scores
