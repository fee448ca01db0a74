"""Baselines that a trained model has to beat: a constant prediction, and label propagation if it is cheap."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from shoal.batch import as_tensor
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import memory_left
from shoal.models.hops import StackedGraph
from shoal.training.metrics import BUILT_IN, is_better, score_predictions
from shoal.training.smoothing_choice import ALPHAS, STEPS, score_propagation

if TYPE_CHECKING:
    from shoal.training.share import Share
    from shoal.training.trainer import Trainer

CONSTANT, PROPAGATED = "the same prediction for every node", "label propagation"
_MOST = 0.02  # share of the training time that label propagation may take
_LEAST_SECONDS = 0.2  # it may always take this long
_RATE = 2e8  # multiply-adds per second, a lower bound for any machine


class Baseline(NamedTuple):
    """A baseline's name and validation score."""

    name: str
    score: float


def find_better_baseline(trainer: Trainer, score: float) -> Baseline | None:
    """The best baseline that beats a validation `score` of the trainer's metric; None if no baseline does.

    A score equal to that of the constant prediction counts as beaten.

    Label propagation needs a process with the whole graph, and is limited to 2 % of the training time. Ranks that hold
    parts must all call this together.
    """
    if trainer.metric not in BUILT_IN or not trainer.has_nodes("val"):
        return None
    found = [Baseline(CONSTANT, score_constant(trainer))]
    if trainer.share.n_id is None and trainer.transport.rank == 0:
        graph = trainer.graph.source if isinstance(trainer.graph, StackedGraph) else trainer.graph
        seconds = sum(one["seconds"] + one.get("eval_seconds", 0.0) for one in trainer.history)
        if steps := choose_steps(graph, max(_MOST * seconds, _LEAST_SECONDS)):
            with suppress(ShoalError):  # the memory left may no longer suffice
                scores = score_propagation(graph, trainer.metric, steps)
                found.append(Baseline(PROPAGATED, max(scores.values())))
    best = None
    for one in found:
        ties = one.name == CONSTANT and one.score == score and score not in (0.0, 1.0)  # perfect scores
        if ties or is_better(trainer.metric, one.score, score if best is None else best.score):
            best = one
    return best


def score_constant(trainer: Trainer) -> float:
    """The validation score of a constant prediction.

    It is the majority class of the training nodes; multi-label, every class that most of them have; in a regression
    their mean.
    """
    share = trainer.share
    graph, targets = share.graph, trainer.task.targets
    assert graph.y is not None
    assert graph.val_mask is not None
    share.transport.phase = "the scores of a baseline"
    y = as_tensor(graph.y)
    truth = y[as_tensor(graph.val_mask)]
    if targets is not None:
        answer = targets.mean
    else:
        counts = count_training_nodes(share)
        answer = 2 * counts[:-1] - counts[-1] if graph.multi_label else counts[:-1]
    rows = answer.double().expand(len(truth), -1)
    return score_predictions(rows, truth, [trainer.metric], total=share.sum, collect=share.collect)[
        trainer.metric
    ]


def count_training_nodes(share: Share) -> Tensor:
    """Training nodes of every class, and behind them all training nodes, (num_classes + 1,), summed over the ranks."""
    graph = share.graph
    assert graph.y is not None
    assert graph.train_mask is not None
    labels = as_tensor(graph.y)[as_tensor(graph.train_mask)]
    if labels.dim() == 2:
        counts = (labels != 0).sum(0)
    else:
        counts = torch.bincount(labels[labels >= 0].long(), minlength=graph.num_classes)
    return share.sum(torch.cat([counts, torch.tensor([len(labels)])]))


def choose_steps(graph: Graph, seconds: float) -> tuple[int, ...]:
    """The step counts of label propagation that take at most `seconds` on any machine, and little memory."""
    if graph.multi_label or graph.regression:
        return ()
    both = 2 if graph.directed else 1
    validated = 0 if graph.val_mask is None else int(np.count_nonzero(graph.val_mask))
    held = (16 * graph.num_nodes + 4 * len(ALPHAS) * len(STEPS) * validated) * graph.num_classes
    if held + 12 * (both - 1) * graph.num_entries > memory_left() // 4:  # the transposed graph
        return ()
    step = len(ALPHAS) * both * (graph.num_entries + graph.num_nodes) * graph.num_classes / _RATE
    return tuple(steps for steps in STEPS if steps * step <= seconds)
