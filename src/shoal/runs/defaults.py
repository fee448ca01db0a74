"""Settings that follow the graph: what `shoal train` takes where nothing was said, and why.

The rule is small on purpose. `benchmarks/study_defaults.py` measures it, by validation scores only, leaving one graph out
at a time; docs/training.md shows what it found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from shoal.graph import Graph
from shoal.labels import is_regression
from shoal.partitioning.part import Part
from shoal.runs.config import FIXED, FROM_GRAPH, RunConfig
from shoal.sampling.base import SAMPLERS
from shoal.sampling.layered import LayeredSampler

FEW_LABELS = 50  # training nodes a class, below which labels are few
_WORK = 2e13  # multiply-adds of a default run: some ten minutes of one core
_EPOCHS = range(60, 501)
ENOUGH_STEPS = 300  # on the whole graph, from which on they reach as much as steps on batches


@dataclass(frozen=True)
class Facts:
    """What the rule looks at. Labels are those of training nodes only.

    Attributes:
        num_features: stored values of a row, on average: for sparse features fewer than there are columns.
    """

    num_nodes: int
    num_entries: int
    num_features: float
    num_classes: int
    num_labels: int
    multi_label: bool = False
    regression: bool = False

    @property
    def labels_per_class(self) -> float:
        """Labelled training nodes per class."""
        return self.num_labels / max(self.num_classes, 1)


class Choice(NamedTuple):
    """Settings that one reason speaks for, by section and name."""

    reason: str
    settings: dict[str, Any]


def is_few(facts: Facts) -> bool:
    """Whether a graph has few labels."""
    return not facts.multi_label and not facts.regression and facts.labels_per_class < FEW_LABELS


def choose_settings(facts: Facts) -> list[Choice]:
    """What fits a graph of these facts."""
    if is_few(facts):
        shape = Choice(
            f"{facts.labels_per_class:.0f} training nodes a class are few (shallow, strongly regularised)",
            {
                "model.name": "gcn",
                "model.num_layers": 2,
                "model.head_layers": 0,
                "model.norm": "none",
                "model.dropout": 0.7,
                "model.input_dropout": 0.5,
                "training.loss": "log_epsilon",
                "training.lr": 0.005,
                "training.weight_decay": 0.005,
            },
        )
    else:
        is_single = not facts.multi_label and not facts.regression
        labels = "regression" if facts.regression else "multi-label"
        if is_single:
            labels = f"{facts.labels_per_class:,.0f} training nodes a class"
        shape = Choice(
            f"{labels} (three layers with learned residuals, normalised before the activation)",
            {
                "model.name": "gcn" if is_single else "sage",
                "model.num_layers": 3,
                "model.norm": "batch",
                "model.norm_place": "conv",
                "model.residual": "linear",
                "model.dropout": 0.5 if is_single else 0.2,
                "training.lr": 0.003,
            },
        )
    layers = shape.settings["model.num_layers"]
    epochs = choose_epochs(facts, layers)
    length = Choice(
        f"{facts.num_nodes:,} nodes and {facts.num_entries:,} entries (ten minutes of a core, or {_EPOCHS[-1]} epochs)",
        {"training.epochs": epochs, "training.patience": max(epochs // 5, 20)},
    )
    return [shape, length]


def choose_epochs(facts: Facts, num_layers: int, hidden: int = 256) -> int:
    """As many epochs as a default run's work allows, within bounds."""
    epochs = min(max(count_passes(facts, num_layers, hidden), _EPOCHS.start), _EPOCHS[-1])
    return epochs // 10 * 10


def count_passes(facts: Facts, num_layers: int, hidden: int = 256) -> int:
    """How often the work of a default run allows to train on every node."""
    dense = 2 * num_layers * facts.num_nodes * hidden**2
    sparse = num_layers * facts.num_entries * hidden
    inputs = 2 * facts.num_nodes * facts.num_features * hidden
    return int(_WORK / max(3 * (dense + sparse + inputs), 1))


def follow_graph(
    config: RunConfig, graph: Graph | Part, total: Callable[[np.ndarray], np.ndarray] = lambda counts: counts
) -> tuple[str, ...]:
    """Put in what fits the graph where a configuration that leaves it open says nothing; returns a line for each reason.

    `total` sums counts over ranks that hold a part each.
    """
    if config.defaults != FROM_GRAPH:
        return ()
    config.defaults = FIXED
    lines = []
    for reason, settings in choose_settings(measure_facts(graph, total)):
        taken = []
        for name, value in settings.items():
            title, _, key = name.partition(".")
            section = getattr(config, title)
            if key in section.declared and key not in section.given and not _is_decided(config, key):
                setattr(section, key, value)
                taken.append(f"{name}={value}")
        if taken:
            lines.append(f"{reason}: {', '.join(taken)}")
    return tuple(lines)


def _is_decided(config: RunConfig, name: str) -> bool:
    """Whether another setting that was given decides about one of the model's."""
    model = config.model.given
    by_layers = config.draws and issubclass(SAMPLERS[config.sampler.name], LayeredSampler)
    if name == "num_layers":
        return by_layers or "orders" in model or isinstance(model.get("hidden"), str)
    if name == "head_layers" and (model.get("num_layers") == 1 or str(model.get("orders")) == "1"):
        return True  # a single layer may need its classifier
    if name == "head_layers":
        return isinstance(model.get("hidden"), str) or bool({"jumping", "l2_normalize"} & model.keys())
    return name == "norm_place" and "norm_first" in model


def measure_facts(
    graph: Graph | Part, total: Callable[[np.ndarray], np.ndarray] = lambda counts: counts
) -> Facts:
    """The facts of a graph, or of the graph that ranks hold parts of."""
    if isinstance(graph, Part):
        rows, entries = graph.num_local, len(graph.local_indices) + len(graph.halo_indices)
    else:
        rows, entries = graph.num_nodes, graph.num_entries
    labels = 0 if graph.train_mask is None else int(np.count_nonzero(graph.train_mask))
    x = graph.x
    values = x.nnz if isinstance(x, sp.csr_array) else rows * graph.num_features
    rows, entries, labels, values = total(np.array([rows, entries, labels, values], np.float64)).tolist()
    return Facts(
        num_nodes=int(rows),
        num_entries=int(entries),
        num_features=values / max(rows, 1),
        num_classes=graph.num_classes,
        num_labels=int(labels),
        multi_label=graph.multi_label,
        regression=is_regression(graph.y),
    )
