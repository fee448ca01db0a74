"""Metrics, registered by name: accuracy and F1 from counts, R², MAE and RMSE from sums, ROC-AUC and users' own from logits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.registry import Registry
from shoal.settings import Choices, Null

# A metric is a function of (logits, y) of the scored nodes, or a CountMetric.
METRICS: Registry[Any] = Registry("metric", "shoal.training")
Deciding = Annotated[
    str | Callable[..., float] | None,
    Choices(METRICS),
    Null("accuracy, multi-label f1_micro, regression r2"),
    "validation score that decides which weights are best",
]


@dataclass(frozen=True)
class CountMetric:
    """A metric of the classes' true positives, false positives and false negatives, (3, num_classes).

    Counts are summed over ranks, so no rank needs all predictions.
    """

    compute: Callable[[Tensor], float]
    summary: str = ""


def _score_micro(outcomes: Tensor) -> float:
    hits, false, missed = outcomes.double()
    total = 2 * hits.sum() + false.sum() + missed.sum()
    return float(2 * hits.sum() / total.clamp(min=1))


def _score_macro(outcomes: Tensor) -> float:
    """A class never seen nor predicted has F1 0."""
    hits, false, missed = outcomes.double()
    return float((2 * hits / (2 * hits + false + missed).clamp(min=1)).mean())


def _score_accuracy(outcomes: Tensor) -> float:
    hits, _, missed = outcomes.double()
    return float(hits.sum() / (hits + missed).sum().clamp(min=1))


METRICS.add("f1_micro", CountMetric(_score_micro, "F1 over all nodes and classes"))
METRICS.add("f1_macro", CountMetric(_score_macro, "mean of the classes' F1"))
METRICS.add("accuracy", CountMetric(_score_accuracy, "share of nodes with the right class; single-label"))


@dataclass(frozen=True)
class ErrorMetric(CountMetric):
    """A metric of the sums of `sum_errors`, (4, targets), averaged over the targets."""

    lower_is_better: bool = False


def _score_r2(sums: Tensor) -> float:
    """1 - Σ error² / Σ (y - mean)². For targets that are all equal: 1 if every prediction is right, else 0."""
    _, _, squares, spread = _take_known(sums)
    explained = torch.where(spread > 0, 1 - squares / spread.clamp(min=1e-300), (squares == 0).double())
    return float(explained.mean())


def _score_mae(sums: Tensor) -> float:
    counts, absolutes, _, _ = _take_known(sums)
    return float((absolutes / counts).mean())


def _score_rmse(sums: Tensor) -> float:
    counts, _, squares, _ = _take_known(sums)
    return float((squares / counts).sqrt().mean())


def _take_known(sums: Tensor) -> Tensor:
    """The sums of targets that at least one scored node has."""
    return sums[:, sums[0] > 0]


METRICS.add("r2", ErrorMetric(_score_r2, "share of the targets' variance that is explained; regression"))
METRICS.add("mae", ErrorMetric(_score_mae, "mean absolute error; regression", lower_is_better=True))
METRICS.add(
    "rmse", ErrorMetric(_score_rmse, "root of the mean squared error; regression", lower_is_better=True)
)
_ERRORS = ("r2", "mae", "rmse")
_CLASSES = ("f1_micro", "f1_macro", "accuracy", "roc_auc")
BUILT_IN = (*_CLASSES, *_ERRORS)


@METRICS.named("roc_auc")
def score_roc_auc(logits: Tensor, y: Tensor) -> float:
    """ROC-AUC of two classes, from the difference of their logits; otherwise the mean over classes of one against the rest.

    With more than two classes nodes are ranked by a class's probability, with many labels by its logit. Classes that
    all or none of the nodes have are left out.
    """
    if y.dim() == 1 and logits.shape[1] == 2:
        return compute_roc_auc(logits[:, 1] - logits[:, 0], y)
    scores, truth = logits, y
    if y.dim() == 1:
        scores, truth = logits.log_softmax(1), one_hot(y.long(), logits.shape[1])
    counts = truth.sum(0)
    mixed = torch.nonzero((counts > 0) & (counts < len(truth))).flatten().tolist()
    areas = [compute_roc_auc(scores[:, one], truth[:, one]) for one in mixed]
    return sum(areas) / len(areas) if areas else 0.5


def known_metrics(num_classes: int, *, multi_label: bool, regression: bool = False) -> tuple[str, ...]:
    """The metrics that are always reported for a task: accuracy for single-label tasks, ROC-AUC for two classes."""
    if regression:
        return _ERRORS
    if multi_label:
        return _CLASSES[:2]
    return _CLASSES if num_classes == 2 else _CLASSES[:3]


def score_predictions(
    logits: Tensor,
    y: Tensor,
    metrics: Iterable[str | Callable[[Tensor, Tensor], float]] = (),
    *,
    total: Callable[[Tensor], Tensor] = lambda counts: counts,
    collect: Callable[[Tensor], Tensor] = lambda rows: rows,
) -> dict[str, float]:
    """The task's metrics for these nodes, and additional `metrics`: names, or functions of (logits, y).

    Float labels mean a regression; `logits` are then predictions in the units of the labels. If nodes are split among
    ranks, `total` sums counts over the ranks and `collect` gathers the rows of all ranks.
    """
    names: tuple[str, ...]
    if y.is_floating_point():
        names, outcomes = _ERRORS, sum_errors(logits, y, total)
    else:
        names = known_metrics(logits.shape[1], multi_label=y.dim() == 2)
        outcomes = total(count_outcomes(logits, y).contiguous())
    scores: dict[str, float] = {}
    gathered: tuple[Tensor, Tensor] | None = None
    for one in [*names, *(metric for metric in metrics if metric not in names)]:
        metric = METRICS[one] if isinstance(one, str) else one
        name = one if isinstance(one, str) else name_metric(one)
        if isinstance(metric, CountMetric):
            scores[name] = metric.compute(outcomes)
        else:
            gathered = gathered or (collect(logits), collect(y))
            value = metric(*gathered)
            try:
                scores[name] = float(value)
            except (TypeError, ValueError):
                raise ShoalError(f"metric {name} returned {_describe(value)}: expected a number") from None
    return scores


def _describe(value: object) -> str:
    """A returned value that is no number, in a few words."""
    shape = getattr(value, "shape", None)
    return f"{value!r:.60}" if shape is None else f"a {type(value).__name__} of shape {tuple(shape)}"


def choose_metric(metric: str | Callable[..., float] | None, graph: Graph) -> str:
    """The name of the metric that decides which weights are best; an error if the task does not have it."""
    if metric is None and graph.regression:
        return "r2"
    if metric is None:
        return "f1_micro" if graph.multi_label else "accuracy"
    known = known_metrics(graph.num_classes, multi_label=graph.multi_label, regression=graph.regression)
    if metric == "roc_auc" and (graph.regression or graph.num_classes < 2):
        raise ShoalError(f"roc_auc needs classes and graph {graph.name!r} has none: use {', '.join(known)}")
    if isinstance(metric, str) and isinstance(METRICS[metric], CountMetric) and metric not in known:
        raise unknown_name(f"score of graph {graph.name!r}", metric, known)
    return name_metric(metric)


def name_metric(metric: str | Callable[..., float]) -> str:
    """The name of a metric in records."""
    return metric if isinstance(metric, str) else str(getattr(metric, "__name__", type(metric).__name__))


def is_better(metric: str, score: float, best: float) -> bool:
    """Whether `score` is better than `best`: higher, or lower for a metric with `lower_is_better`."""
    return score < best if _is_error(metric) else score > best


def worst_score(metric: str) -> float:
    """The initial best score of a metric: infinitely bad."""
    return float("inf") if _is_error(metric) else float("-inf")


def reaches(metric: str, score: float, target: float, deviation: float) -> bool:
    """Whether a score is as good as a published one, within its deviation."""
    worst = target + (deviation if _is_error(metric) else -deviation)
    return not is_better(metric, worst, score)


def _is_error(metric: str) -> bool:
    return metric in METRICS and bool(getattr(METRICS[metric], "lower_is_better", False))


def compute_roc_auc(scores: Tensor, y: Tensor) -> float:
    """The probability that a node of class 1 scores above one of class 0, ties counting half; 0.5 if a class is missing."""
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

    Multi-label `y` is a 0/1 matrix, and a class is predicted if its logit is positive. Single-label `y` holds class
    numbers.
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


def sum_errors(predicted: Tensor, y: Tensor, total: Callable[[Tensor], Tensor] = lambda sums: sums) -> Tensor:
    """(4, targets): count of known targets, and their sums of |error|, error² and (y - mean of y)², over all ranks."""
    y = (y if y.dim() == 2 else y[:, None]).double()
    known = ~y.isnan()
    counts, sums = total(torch.stack([known.sum(0).double(), y.nan_to_num().sum(0)]))
    apart = torch.where(known, y - sums / counts.clamp(min=1), 0.0)
    error = torch.where(known, predicted.double().reshape(y.shape) - y, 0.0)
    rest = total(torch.stack([error.abs().sum(0), error.square().sum(0), apart.square().sum(0)]))
    return torch.cat([counts[None], rest])


def decide_class(logits: Tensor) -> Tensor:
    """The class of the largest logit."""
    return logits.argmax(1)


def decide_labels(logits: Tensor) -> Tensor:
    """A 0/1 matrix of the classes with positive logits."""
    return (logits > 0).to(torch.uint8)
