"""One trial: a configuration trained within a time limit on a graph whose test labels are hidden."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.batch import as_tensor
from shoal.errors import ShoalError, Stopped
from shoal.graph import Graph
from shoal.memory import memory_budget
from shoal.runs.build import make_trainer
from shoal.runs.config import RunConfig
from shoal.runs.need import estimate_need
from shoal.training.callback import Callback
from shoal.training.epoch_state import Record
from shoal.training.metrics import score_predictions
from shoal.training.trainer import Trainer
from shoal.wording import format_bytes

Judge = Callable[[Trainer, Record], bool]


def hide_test_labels(graph: Graph) -> Graph:
    """The graph without labels of test nodes: unlabelled (single-label), no class (multi-label) or NaN (regression)."""
    if graph.y is None or graph.test_mask is None:
        return graph
    y = np.array(graph.y)
    unknown = 0 if graph.multi_label else -1
    y[graph.test_mask] = np.nan if graph.regression else unknown
    return graph._copy(y=y, num_classes=graph.num_classes)


class Clock:
    """The time limit of a search; none without `minutes`."""

    def __init__(self, minutes: float | None) -> None:
        self.total = math.inf if minutes is None else 60 * minutes
        self.end = time.monotonic() + self.total

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.end - time.monotonic()


class Watch(Callback):
    """Ends training when the clock passes `limit`, or when `judge` prunes the trial.

    Attributes:
        is_cut: whether the time limit ended it.
        is_pruned: whether `judge` ended it.
    """

    def __init__(self, limit: float, judge: Judge) -> None:
        self.limit, self.judge = limit, judge
        self.is_cut = self.is_pruned = False

    def on_epoch(self, trainer: Trainer, record: dict[str, Any]) -> None:
        self.is_pruned = self.judge(trainer, record)
        self.is_cut = not self.is_pruned and time.monotonic() >= self.limit
        if self.is_cut or self.is_pruned:
            trainer.stop()


def train_trial(config: RunConfig, graph: Graph, folder: Path, watch: Watch) -> Trainer:
    """Train `config`; returns the trainer with the best weights in its model. A signal raises `Stopped`.

    Raises if memory does not suffice. Files of evaluation go to `folder`.
    """
    trainer = make_trainer(config, graph)
    trainer.share.scratch_folder = folder
    need = estimate_need(trainer, folder)
    need.check()
    if need.least > memory_budget():
        raise ShoalError(
            f"needs about {format_bytes(need.least)} of memory, and {format_bytes(memory_budget())} are free or in use"
        )
    trainer.callbacks.append(watch)
    with trainer.asked.listening():
        trainer.fit(config.training.epochs, progress=False)
    if trainer.asked.missed is not None:
        raise Stopped(trainer.asked.missed)
    if trainer.best_epoch == 0:
        raise ShoalError("it ended before its first evaluation")
    return trainer


def predict_test(trainer: Trainer, graph: Graph) -> Tensor:
    """Logits of the test nodes, or predicted numbers of a regression."""
    assert graph.test_mask is not None
    mask, targets = as_tensor(graph.test_mask), trainer.task.targets
    with trainer.weights.averaged():
        if targets is None:
            return trainer.share.predict(trainer.model, mask)
        return trainer.share.predict(trainer.model, mask, take=targets.restore)


def score_test(graph: Graph, logits: Tensor, metric: str | None) -> dict[str, float]:
    """Test scores of logits, with the labels that `hide_test_labels` hid from trials."""
    assert graph.y is not None
    y = torch.from_numpy(np.asarray(graph.y[graph.test_mask]))
    return score_predictions(logits, y, [] if metric is None else [metric])
