"""Scores: accuracy, micro and macro F1 from counts, ROC-AUC from the scores of a binary task."""

import torch
from torch import Tensor

METRICS = ("f1_micro", "f1_macro", "accuracy", "roc_auc")


def known_metrics(num_classes: int, *, multi_label: bool) -> tuple[str, ...]:
    """The scores a task has: accuracy needs one label a node, ROC-AUC two classes."""
    if multi_label:
        return METRICS[:2]
    return METRICS if num_classes == 2 else METRICS[:3]


def score_predictions(logits: Tensor, y: Tensor) -> dict[str, float]:
    """Every score of `known_metrics` for these nodes."""
    multi_label = y.dim() == 2
    scores = score_outcomes(count_outcomes(logits, y), multi_label=multi_label)
    if not multi_label and logits.shape[1] == 2:
        scores["roc_auc"] = compute_roc_auc(logits[:, 1] - logits[:, 0], y)
    return scores


def compute_roc_auc(scores: Tensor, y: Tensor) -> float:
    """How often a node of class 1 scores above one of class 0, ties counting half; 0.5 where a class is missing."""
    _, place, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    rank = counts.cumsum(0).double() - (counts.double() - 1) / 2  # the mean rank of equal scores
    positive = y == 1
    num_positive, num_negative = int(positive.sum()), int((~positive).sum())
    if num_positive == 0 or num_negative == 0:
        return 0.5
    above = float(rank[place[positive]].sum()) - num_positive * (num_positive + 1) / 2
    return above / (num_positive * num_negative)


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
