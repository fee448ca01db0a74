"""Choosing smoothing settings by validation score. Test labels are read for the final score only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from shoal.batch import as_tensor
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.models.hops import StackedGraph
from shoal.training.metrics import choose_metric, score_predictions
from shoal.training.smoothing import (
    Smoothing,
    Spread,
    check_labels,
    check_probabilities,
    correct,
    correct_and_smooth,
    encode_labels,
    fill_unreached,
    make_spread,
    propagate_labels,
    share_classes,
    split_classes,
    spread_from,
)

if TYPE_CHECKING:
    from shoal.training.trainer import Trainer

ALPHAS = (0.5, 0.8, 0.95)
STEPS = (5, 20, 50)
SCALES = (None, 0.5, 1.0, 2.0)
Metric = str | Callable[..., float]
Score = Callable[[Tensor], float]


@dataclass(frozen=True)
class Smoothed:
    """Predictions after smoothing, and the chosen settings.

    Attributes:
        scores: (num_nodes, num_classes); the largest of a row is the predicted class.
        settings: the settings with the best validation score; None if none improved it and `scores` are unchanged.
        metric: name of the validation metric.
        before, after: validation scores before and after smoothing, without spreading validation labels.
    """

    scores: Tensor
    settings: Smoothing | None
    metric: str
    before: float
    after: float

    @property
    def labels(self) -> Tensor:
        """The predicted class of every node."""
        return self.scores.argmax(1)


def smooth_predictions(trainer: Trainer, *, with_validation: bool = False) -> Smoothed:
    """`choose_smoothing` for the predictions of a trainer that has the whole graph, by its metric.

    Args:
        trainer: a trained one.
        with_validation: spread labels of validation nodes too, once settings are chosen.
    """
    if trainer.share.n_id is not None:
        raise ShoalError("this rank holds a part of the graph: smoothing needs the whole graph")
    graph = trainer.graph.source if isinstance(trainer.graph, StackedGraph) else trainer.graph
    check_labels(graph)
    metric = next(iter(trainer.metrics), None)
    return choose_smoothing(graph, trainer.predict_proba(), metric, with_validation=with_validation)


def choose_smoothing(
    graph: Graph,
    probabilities: Tensor | np.ndarray,
    metric: Metric | None = None,
    *,
    with_validation: bool = False,
) -> Smoothed:
    """Correct & Smooth with the settings of the best validation score; predictions are unchanged if none improves it.

    The grid has alpha .5, .8, .95 and 5, 20, 50 steps for each part, and autoscale or the scales .5, 1, 2. The correct
    part is chosen first, then the smooth part, with and without it. Training labels are spread; with `with_validation`
    also validation labels, once the choice is made.

    Args:
        graph: the graph, with labels and a validation mask.
        probabilities: predictions of a model, one row per node, a Tensor or an array.
        metric: the score to compare by; None for the graph's usual one.
        with_validation: spread labels of validation nodes too.
    """
    known, score = _prepare(graph, metric)
    name = choose_metric(metric, graph)
    z = check_probabilities(graph, probabilities)
    y, spread = encode_labels(graph, known), make_spread(graph)
    before = best = score(z)
    chosen = Smoothing()
    for settings, found in _try_correct(z, y, known, spread):
        if (value := score(z + found)) > best:
            best, chosen = value, settings
    starts = [(Smoothing(), z)]
    if chosen.correct_steps:
        starts.append((chosen, correct_and_smooth(graph, z, **asdict(chosen))))
    for base, start in starts:
        labelled = torch.where(known[:, None], y, start)
        for alpha in ALPHAS:
            for steps, found in spread_from(labelled, spread, alpha, STEPS):
                if (value := score(found)) > best:
                    best, chosen = value, replace(base, smooth_alpha=alpha, smooth_steps=steps)
    if best == before:
        return Smoothed(z, None, name, before, before)
    scores = correct_and_smooth(graph, z, **asdict(chosen), nodes=_list_nodes(graph, with_validation))
    return Smoothed(scores, chosen, name, before, best)


def choose_propagation(graph: Graph, metric: Metric | None = None) -> tuple[Tensor, float, int]:
    """(scores, alpha, steps) of the label propagation with the best validation score, over the same grid."""
    found = score_propagation(graph, metric)
    alpha, steps = max(found, key=lambda one: found[one])
    return propagate_labels(graph, alpha=alpha, steps=steps), alpha, steps


def score_propagation(
    graph: Graph, metric: Metric | None = None, steps: Sequence[int] = STEPS
) -> dict[tuple[float, int], float]:
    """The validation score of label propagation for every alpha of the grid and each number of `steps`."""
    known, _ = _prepare(graph, metric, matrices=0)
    assert graph.val_mask is not None
    rows, spread = torch.from_numpy(np.flatnonzero(graph.val_mask)), make_spread(graph)
    tried = {(alpha, step): torch.empty(len(rows), graph.num_classes) for alpha in ALPHAS for step in steps}
    for start, end in split_classes(graph):
        y = encode_labels(graph, known, start, end)
        for alpha in ALPHAS:
            for step, found in spread_from(y, spread, alpha, steps):
                tried[alpha, step][:, start:end] = found[rows]
    score, shares = make_score(graph, graph.val_mask, metric, chosen=True), share_classes(graph, known)
    return {one: score(fill_unreached(found, shares)) for one, found in tried.items()}


def _try_correct(z: Tensor, y: Tensor, known: Tensor, spread: Spread) -> Iterator[tuple[Smoothing, Tensor]]:
    """Yields every setting of the correct part with its correction of z. Fixed scales share one propagation."""
    for alpha in ALPHAS:
        for scale in SCALES[:2]:
            for steps, found in correct(z, y, known, spread, alpha, STEPS, scale):
                settings = Smoothing(alpha, steps, scale)
                yield settings, found
                if scale is not None:
                    for other in SCALES[2:]:
                        yield replace(settings, scale=other), found * (other / scale)


def _prepare(graph: Graph, metric: Metric | None, *, matrices: int | None = None) -> tuple[Tensor, Score]:
    """The mask of training nodes, and the function that scores predictions on validation nodes."""
    known = check_labels(graph) if matrices is None else check_labels(graph, matrices=matrices)
    if graph.val_mask is None or not graph.val_mask.any():
        raise ShoalError(f"graph {graph.name!r} has no validation nodes: settings are chosen on them")
    return known, make_score(graph, graph.val_mask, metric)


def make_score(
    graph: Graph, mask: np.ndarray, metric: Metric | None = None, *, chosen: bool = False
) -> Score:
    """A function that scores predictions on the nodes in `mask`. It takes predictions of all nodes, or if `chosen` of
    those in `mask` only."""
    name = choose_metric(metric, graph)
    rows = torch.from_numpy(np.flatnonzero(mask))
    assert graph.y is not None
    y = as_tensor(graph.y)[rows]
    metrics = [] if metric is None else [metric]
    return lambda scores: score_predictions(scores if chosen else scores[rows], y, metrics)[name]


def _list_nodes(graph: Graph, with_validation: bool) -> np.ndarray | None:
    if not with_validation:
        return None
    assert graph.train_mask is not None
    assert graph.val_mask is not None
    return graph.train_mask | graph.val_mask
