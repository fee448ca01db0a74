"""Outcomes: a compact summary of predictions on a split: counts by class, or sums and a sample of points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from shoal.training.metrics import count_outcomes, sum_errors

MOST_CLASSES = 1000  # of a confusion matrix that is computed
MOST_STORED = 64  # of one that is stored; of a larger one only the most frequent confusions are
MOST_CONFUSED = 30
MOST_TARGETS = 6
MOST_POINTS = 600  # of a regression


def tabulate_outcomes(
    predicted: Tensor,
    y: Tensor,
    *,
    total: Callable[[Tensor], Tensor] = lambda counts: counts,
    collect: Callable[[Tensor], Tensor] = lambda rows: rows,
    num_nodes: int | None = None,
) -> dict[str, Any]:
    """Outcomes of a split's nodes as JSON data, from logits, or from regression predictions in the units of y.

    Classification: `hits`, `false` (false positives) and `missed` (false negatives) of every class; single-label also
    `confusion[true][predicted]`, or `confused` with its largest entries. Regression: for every target the count of known
    values, sums of errors and some points. If nodes are split among ranks, `total` sums counts over the ranks,
    `collect` gathers the rows of all ranks, and `num_nodes` is the number of nodes on all ranks.
    """
    if y.is_floating_point():
        return _tabulate_errors(predicted, y, total, collect, num_nodes or len(y))
    hits, false, missed = total(count_outcomes(predicted, y).contiguous()).tolist()
    table: dict[str, Any] = {"hits": hits, "false": false, "missed": missed}
    num_classes = predicted.shape[1]
    if y.dim() == 2:
        return {"task": "multi-label"} | table
    table = {"task": "single-label"} | table
    if num_classes > MOST_CLASSES:
        return table
    pairs = torch.bincount(y.long() * num_classes + predicted.argmax(1), minlength=num_classes**2)
    confusion = total(pairs).reshape(num_classes, num_classes)
    if num_classes <= MOST_STORED:
        return table | {"confusion": confusion.tolist()}
    wrong = confusion.clone()
    wrong.fill_diagonal_(0)
    counts, places = wrong.flatten().topk(MOST_CONFUSED)
    confused = [[p // num_classes, p % num_classes, n] for p, n in zip(places.tolist(), counts.tolist()) if n]
    return table | {"confused": confused}


def _tabulate_errors(
    predicted: Tensor,
    y: Tensor,
    total: Callable[[Tensor], Tensor],
    collect: Callable[[Tensor], Tensor],
    num_nodes: int,
) -> dict[str, Any]:
    y = (y if y.dim() == 2 else y[:, None]).double()
    predicted = predicted.double().reshape(y.shape)
    sums = sum_errors(predicted, y, total)
    step = -(-num_nodes // MOST_POINTS)
    targets = []
    for number in range(min(y.shape[1], MOST_TARGETS)):
        pairs = collect(torch.stack([y[:, number], predicted[:, number]], 1)[::step].contiguous())
        points = [[float(f"{a:.5g}"), float(f"{b:.5g}")] for a, b in pairs.tolist() if a == a]
        counted = dict(zip(("known", "absolute", "squared", "spread"), sums[:, number].tolist()))
        targets.append(counted | {"points": points})
    return {"task": "regression", "targets": targets, "num_targets": y.shape[1]}
