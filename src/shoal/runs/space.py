"""The search space of `shoal tune`: the searched settings and their values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.models.conv import CONVS
from shoal.models.two_way import can_reverse
from shoal.runs.config import RunConfig
from shoal.runs.defaults import may_normalize, may_reverse
from shoal.runs.facts import is_counted
from shoal.runs.sections import Section, model_settings
from shoal.settings import Setting

Values = tuple[Any, ...]
Suggest = Callable[[str, "Values | Interval"], Any]
BATCHES = "batches"  # full, or the sampler of method sampled
_LEAST_BATCH = 500  # nodes


@dataclass(frozen=True)
class Interval:
    """Numbers from `low` to `high`, searched on a logarithmic scale."""

    low: float
    high: float


# A setting is searched if the model, the sampler or the trainer declares it and the user has not fixed it. None means all
# choices of the declaration, or true and false.
SPACE: Mapping[str, Values | Interval | None] = {
    "model.name": None,
    "model.hidden": (64, 128, 256, 512),
    "model.num_layers": (1, 2, 3, 4, 6),
    "model.hops": (2, 3, 4, 6),
    "model.heads": (1, 2, 4, 8),
    "model.attention_dropout": (0.0, 0.3, 0.6),
    "model.directions": None,
    "model.norm": None,
    "model.norm_place": None,
    "model.residual": None,
    "model.jumping": None,
    "model.dropout": (0.0, 0.1, 0.3, 0.5, 0.7, 0.8),
    "model.input_dropout": (0.0, 0.2, 0.5, 0.8),
    "model.input_norm": None,
    "training.loss": ("cross_entropy", "log_epsilon"),
    "training.label_smoothing": (0.0, 0.1, 0.2),
    "training.ema": (None, 0.99, 0.999),
    "training.lr": Interval(5e-4, 2e-2),
    "training.warmup": (0, 20),
    "training.prior_bias": None,
    "training.weight_decay": (0.0, 5e-5, 5e-4, 5e-3),
}
CLASSES_ONLY = ("training.loss", "training.label_smoothing")  # not searched for a regression
# sampler → (the setting for the batch size, nodes of the batch per unit of it)
SIZES: Mapping[str, tuple[str, float]] = {
    "random-walk": ("roots", 3.0),
    "frontier": ("budget", 1.0),
    "node": ("budget", 1.0),
    "edge": ("num_edges", 2.0),
}
SHARES = (0.05, 0.1, 0.25, 0.5)  # of the training graph's nodes in a batch
# (epochs, patience) if they are not fixed; a full-batch epoch is one step
LENGTHS = {"full": (500, 100), "sampled": (100, 20)}
# Tried before Optuna proposes settings: settings of well-tuned GNNs in the literature.
STARTS: tuple[Mapping[str, Any], ...] = (
    {
        BATCHES: "full", "model.name": "gcn", "model.hidden": 256, "model.num_layers": 2, "model.norm": "none",
        "model.dropout": 0.8, "model.input_dropout": 0.8, "training.lr": 0.01, "training.weight_decay": 5e-3,
        "model.residual": "none", "model.jumping": "none",
    },
    {
        BATCHES: "full", "model.name": "gcn", "model.hidden": 512, "model.num_layers": 3, "model.norm": "layer",
        "model.norm_place": "conv", "model.dropout": 0.5, "model.input_dropout": 0.0, "training.lr": 0.001,
        "training.weight_decay": 5e-5, "training.warmup": 20, "model.residual": "linear", "model.jumping": "none",
    },
    {
        BATCHES: "full", "model.name": "sage", "model.hidden": 256, "model.num_layers": 4, "model.norm": "layer",
        "model.norm_place": "conv", "model.dropout": 0.3, "model.input_dropout": 0.0, "training.lr": 0.003,
        "training.weight_decay": 5e-5, "training.warmup": 20, "model.residual": "linear", "model.jumping": "none",
    },
    {
        BATCHES: "random-walk", "sampler.share": 0.25, "model.name": "sage", "model.hidden": 256, "model.num_layers": 3,
        "model.norm": "layer", "model.norm_place": "conv", "model.dropout": 0.3, "model.input_dropout": 0.0,
        "training.lr": 0.005, "training.weight_decay": 5e-5, "model.residual": "linear", "model.jumping": "none",
    },
)  # fmt: skip


def propose(base: RunConfig, fixed: Collection[str], graph: Graph, suggest: Suggest) -> RunConfig:
    """A configuration of the space: `base` with `suggest(key, values)` for every setting that is not `fixed`.

    Args:
        fixed: dotted keys that keep the values of `base`. `method` or a sampler's setting fixes how batches are sampled.
        graph: decides the batch sizes, and whether the loss of classes and the norm of features are searched.
    """
    config = copy.deepcopy(base)
    for key in SPACE:
        section, name = _find(config, key)
        if key in fixed or name not in section.declared or not _is_searched(config, key, graph):
            continue
        setattr(section, name, suggest(key, _find_values(config, key, fixed)))
    if _trains_on_rows(config.model.name):
        kept = [key.partition(".")[2] for key in fixed if key.startswith("sampler.")]
        config.sampler.clear(*kept)  # such models have their own sampler
        config.method = "sampled"
    elif not _has_batches(fixed):
        _choose_batches(config, graph, suggest)
    epochs, patience = LENGTHS["full" if config.method == "full" else "sampled"]
    for key, value in (("training.epochs", epochs), ("training.patience", patience)):
        if key not in fixed:
            setattr(config.training, key.partition(".")[2], value)
    return config


def list_values(setting: Setting) -> Values:
    """The choices that a setting declares, or true and false."""
    if setting.choices is not None:
        return tuple(sorted(setting.choices.names))
    if setting.accepted == (bool,):
        return (False, True)
    raise ShoalError(f"setting {setting.name} has no choices to search: give it values in the space")


def select_start(base: RunConfig, fixed: Collection[str], number: int) -> dict[str, Any] | None:
    """The values of start `number` that are declared for `base` and not fixed; None if there is no such start."""
    if number >= len(STARTS):
        return None
    start = STARTS[number]
    config = copy.deepcopy(base)
    if "model.name" not in fixed:
        config.model.clear()
        config.model.name = start["model.name"]
    found = {}
    for key, value in start.items():
        if key in (BATCHES, "sampler.share"):
            found[key] = value
        elif key not in fixed and _find(config, key)[1] in _find(config, key)[0].declared:
            values = _find_values(config, key, fixed)
            if isinstance(values, Interval) or value in values:
                found[key] = value
    return found


def flatten(config: RunConfig) -> dict[str, Any]:
    """The settings of a trial, by dotted keys."""
    flat: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        if isinstance(value, dict) and name in ("model", "sampler", "training"):
            flat |= {f"{name}.{key}": one for key, one in value.items()}
        elif name == "method":
            flat[name] = value
    return flat


def _choose_batches(config: RunConfig, graph: Graph, suggest: Suggest) -> None:
    name = suggest(BATCHES, ("full", *SIZES))
    config.sampler.clear()
    if name == "full":
        config.method = "full"
        return
    config.method, config.sampler.name = "sampled", name
    share = suggest("sampler.share", SHARES)
    key, nodes = SIZES[name]
    num_nodes = graph.num_nodes
    if config.training.setting == "inductive" and graph.train_mask is not None:
        num_nodes = int(graph.train_mask.sum())
    size = min(max(share * num_nodes, _LEAST_BATCH), num_nodes)
    setattr(config.sampler, key, max(int(size / nodes), 1))
    if name == "frontier":
        config.sampler.frontier = max(int(size / 8), 1)


def _find_values(config: RunConfig, key: str, fixed: Collection[str]) -> Values | Interval:
    """The values searched for a setting. Models must have every fixed setting."""
    section, name = _find(config, key)
    values = SPACE[key] or list_values(section.declared[name])
    if key != "model.name" or isinstance(values, Interval):
        return values
    needed = [one.partition(".")[2] for one in fixed if one.startswith("model.")]
    both = "directions" in needed and config.model.given.get("directions") == "both"
    return tuple(
        model
        for model in values
        if all(one in model_settings(model) for one in needed)
        and not (_trains_on_rows(model) and (_has_batches(fixed) or "model.input_norm" in fixed))
        and not (both and model in CONVS and not can_reverse(CONVS[model]))
    )


def _is_searched(config: RunConfig, key: str, graph: Graph) -> bool:
    """Whether a setting is searched for a graph and the model that was chosen."""
    if key == "model.input_norm":
        return may_normalize(config) and is_counted(graph)
    if key == "training.prior_bias":
        return graph.multi_label and config.model.name in CONVS
    if key == "model.directions":
        return graph.directed and may_reverse(config)
    return not (graph.regression and key in CLASSES_ONLY)


def _has_batches(fixed: Collection[str]) -> bool:
    """Whether fixed settings decide how batches are sampled."""
    return any(key == "method" or key.startswith("sampler.") for key in fixed)


def _trains_on_rows(model: str) -> bool:
    return model in CONVS and CONVS[model].trains_on_rows


def _find(config: RunConfig, key: str) -> tuple[Section, str]:
    title, _, name = key.partition(".")
    section: Section = getattr(config, title)
    return section, name
