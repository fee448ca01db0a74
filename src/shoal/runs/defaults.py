"""Defaults that follow from the graph: settings that `shoal train` chooses if they are not given, and why.

The rule is small on purpose. `benchmarks/study_defaults.py` measures it by validation scores, leaving one graph out at a
time; docs/training.md shows the results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoal.graph import Graph
from shoal.memory import given_budget
from shoal.models.conv import CONVS
from shoal.models.two_way import can_reverse
from shoal.partitioning.part import Part
from shoal.runs.config import AUTO, FIXED, FROM_GRAPH, RunConfig
from shoal.runs.deep import LAYER_NORMED, allows_depth, choose_deep_model, count_neighbours
from shoal.runs.effort import ENOUGH_STEPS, EPOCHS, choose_epochs, count_passes, read_widths
from shoal.runs.facts import Facts, measure_facts
from shoal.runs.homophily import LOW_HOMOPHILY
from shoal.sampling.base import SAMPLERS
from shoal.sampling.layered import LayeredSampler
from shoal.sampling.neighbor import check_fanouts
from shoal.training.inference import count_reverse

FEW_LABELS = 50  # training nodes per class; fewer are few labels
_FEW_TEXTS = 100  # the same where features are short texts: docs/lab/2026-11-18-unseen-graphs.md
IMBALANCED = 0.8  # share of the training nodes in one class, above which accuracy tells little
_WIDTHS = {128: 0.5, 64: 0.2}  # widths with many labels, and the dropout of each
_MULTI_WIDTHS = {512: 0.1, 256: 0.1, 128: 0.1}
_WARMUP = 20
_LEAST_PATIENCE, _DEEP_PATIENCE = 20, 50  # deep models can begin with the largest class for all
_SHORT_TEXT = 64  # words a node; longer texts divided by their sums are too small for strong weight decay
_MANY_CLASSES = 20  # the log-ε loss gives nodes of many classes, whose losses begin large, too little weight
_MULTI_STEPS = 800  # enough steps for multi-label graphs: docs/lab/2026-11-18-first-runs.md
_LARGEST = 1 / 3  # share of the nodes in a batch
_ROOTS = range(3000, 1 << 16)  # default and most roots; a root makes about two nodes of a batch


@dataclass(frozen=True)
class Choice:
    """A reason and the settings that follow from it, by section and name.

    Attributes:
        meanings: some of the settings in words; shown behind the reason where they are taken.
    """

    reason: str
    settings: dict[str, Any]
    meanings: dict[str, str] = field(default_factory=dict)

    def explain(self, taken: list[str]) -> str:
        """The line of the settings that were taken: reason, what they mean, names and values."""
        meanings = ", ".join(self.meanings[name] for name in taken if name in self.meanings)
        values = ", ".join(f"{name}={self.settings[name]}" for name in taken)
        return f"{self.reason}{f' ({meanings})' if meanings else ''}: {values}"


def is_few(facts: Facts) -> bool:
    """Whether a graph has few labels."""
    if facts.multi_label or facts.regression:
        return False
    return facts.labels_per_class < (_FEW_TEXTS if has_short_texts(facts) else FEW_LABELS)


def has_short_texts(facts: Facts) -> bool:
    """Whether features are like counts of few words."""
    return facts.words and facts.num_features < _SHORT_TEXT


def choose_settings(
    facts: Facts,
    epochs: int | None = None,
    given: Mapping[str, Any] | None = None,
    *,
    is_exact: bool = True,
) -> list[Choice]:
    """The settings for a graph with these facts.

    Args:
        epochs, given: the number of epochs and the settings of the model that were given.
        is_exact: whether steps are exact ones on the whole graph.
    """
    given = given or {}
    is_single = not facts.multi_label and not facts.regression
    is_mixed = is_few(facts) and facts.homophily < LOW_HOMOPHILY
    is_short = has_short_texts(facts) and not is_mixed
    if is_few(facts):
        reason = f"on average {facts.labels_per_class:.0f} training nodes per class are few"
        if is_mixed:
            reason += ", and edges seldom join equal classes"
        shape = Choice(
            reason,
            {
                "model.name": "sage" if is_mixed else "gcn",
                "model.num_layers": 2,
                "model.head_layers": 0,
                "model.norm": "none",
                "model.dropout": 0.7,
                "model.input_dropout": 0.8 if is_short else 0.5,
                "training.loss": "log_epsilon" if facts.num_classes < _MANY_CLASSES else "cross_entropy",
                "training.lr": 0.02 if is_short else 0.005,
                "training.weight_decay": 0.001 if is_short else 0.005,
            },
            {"model.num_layers": "shallow", "training.weight_decay": "strongly regularised"}
            | ({"model.name": "own features apart"} if is_mixed else {}),
        )
    else:
        labels = "regression" if facts.regression else "multi-label"
        if is_single:
            labels = f"on average {facts.labels_per_class:,.0f} training nodes per class"
        shape = Choice(
            labels,
            {
                "model.name": "gcn" if is_single else "sage",
                "model.num_layers": 4 if is_single else 3,
                "model.norm": "layer",  # batch norm can lose on rare classes: docs/lab/2026-11-18-norms.md
                "model.norm_place": "conv",
                "model.residual": "linear",
                "training.lr": 0.003 if facts.regression else 0.01,
            },
            {
                "model.num_layers": "four layers" if is_single else "three layers",
                "model.norm_place": "normalised before the activation",
                "model.residual": "learned residuals",
            },
        )
    if facts.regression:
        shape.settings["model.dropout"] = 0.2
    shapes = [shape]
    model = {name.removeprefix("model."): value for name, value in shape.settings.items()} | dict(given)
    if not facts.regression and not is_few(facts):
        deep = choose_deep_model(facts, epochs, given) if is_single and is_exact else {}
        if deep:
            shape.settings.pop("model.num_layers")
        shapes.append(describe_depth(facts, deep) if deep else choose_width(facts, model))
        chosen = {name.removeprefix("model."): value for name, value in shapes[-1].settings.items()}
        model = model | chosen | dict(given)
    if facts.multi_label:
        reason = "labels differ in how many nodes have them, which a bias learns slowly"
        shapes.append(Choice(reason, {"training.prior_bias": True}))
    if facts.two_way:
        reason = "edges are directed, and their reverse tells about a node too"
        shapes.append(Choice(reason, {"model.directions": "both"}))
    if is_single and (is_short if is_few(facts) else facts.words):
        shapes.append(
            Choice("features are like counts of words, which differ in length", {"model.input_norm": "rows"})
        )
    shapes += choose_score(facts.largest_class, facts.num_classes)
    widths = read_widths(model)
    if len(widths) > LAYER_NORMED and not is_few(facts):
        # layer norm keeps what all nodes have in common: docs/lab/2026-11-18-first-runs.md
        shape.settings.pop("model.norm")
        reason = f"{len(widths)} layers learn slowly with layer norm"
        shapes.append(Choice(reason, {"model.norm": "batch"}))
    is_deep = len(widths) > 1 and not facts.regression and not is_few(facts)
    least = _DEEP_PATIENCE if is_deep else _LEAST_PATIENCE
    if epochs is None:
        epochs = choose_epochs(facts, widths)
        length = Choice(
            f"{facts.num_nodes:,} nodes and {facts.num_entries:,} entries",
            {"training.epochs": epochs, "training.patience": max(epochs // 5, least)},
            {"training.epochs": f"as many as about ten minutes of one core allow, at most {EPOCHS[-1]}"},
        )
    else:
        reason = f"a fifth of the {epochs:,} epochs that were given, at least {least}"
        length = Choice(reason, {"training.patience": max(epochs // 5, least)})
    share = min(epochs / _MULTI_STEPS, _LARGEST)
    roots = min(int(facts.num_nodes * share / 2), _ROOTS.stop)
    if facts.multi_label and roots > _ROOTS.start:
        reason = f"large batches keep more edges, and {_MULTI_STEPS} steps are enough"
        shapes.append(Choice(reason, {"sampler.roots": roots}))
    warmup = min(epochs // 10, _WARMUP)
    if warmup and is_deep:
        # Adam's first steps go in one direction: docs/lab/2026-11-18-first-runs.md
        rise = Choice("large first steps can keep a deep model from learning", {"training.warmup": warmup})
        return [*shapes, length, rise]
    return [*shapes, length]


def describe_depth(facts: Facts, settings: Mapping[str, Any]) -> Choice:
    """The choice of a deeper model."""
    reason = (
        f"nodes have few neighbours ({count_neighbours(facts):.1f}), seldom of their own class "
        f"(adjusted homophily at most {facts.homophily:.2f}), so more layers reach further"
    )
    return Choice(reason, {f"model.{name}": value for name, value in settings.items()})


def choose_score(largest_class: float, num_classes: int) -> list[Choice]:
    """The metric, where accuracy tells little: one class has most of the training nodes."""
    if largest_class <= IMBALANCED or num_classes < 2:
        return []
    reason = f"{largest_class:.0%} of the training nodes are of one class, so accuracy tells little"
    return [Choice(reason, {"training.metric": "roc_auc"})]


def choose_width(facts: Facts, model: Mapping[str, Any]) -> Choice:
    """Width and dropout where labels are not few: the widest with time for enough steps on the whole graph."""
    choices = _MULTI_WIDTHS if facts.multi_label else _WIDTHS
    if "hidden" in model:
        width = max(read_widths(model))
        nearest = max((one for one in choices if one <= width), default=min(choices))
        return Choice(f"layers of width {width}", {"model.hidden": width, "model.dropout": choices[nearest]})
    fitting = [
        width
        for width in choices
        if count_passes(facts, read_widths({**model, "hidden": width})) >= ENOUGH_STEPS
    ]
    width = max(fitting, default=min(choices))
    reason = f"{ENOUGH_STEPS} steps on the whole graph in about ten minutes of one core allow this width"
    if not fitting:
        reason = f"{ENOUGH_STEPS} steps on the whole graph take more than about ten minutes of one core at any width"
    return Choice(reason, {"model.hidden": width, "model.dropout": choices[width]})


def follow_graph(
    config: RunConfig,
    graph: Graph | Part | Sequence[Part],
    total: Callable[[np.ndarray], np.ndarray] = lambda counts: counts,
) -> tuple[str, ...]:
    """Fill in settings that were not given by the rule, if `defaults` is graph; returns a notice for each reason.

    `total` sums counts over ranks that hold parts.
    """
    if config.defaults != FROM_GRAPH:
        return ()
    config.defaults = FIXED
    lines = []
    epochs = config.training.epochs if "epochs" in config.training.given else None
    exact = is_exact(config)
    facts = measure_facts(graph, total, lambda facts: heeds_homophily(facts, epochs, exact))
    if not may_normalize(config) or config.model.given.get("name", "gcn") != "gcn":  # GAT loses by it
        facts = replace(facts, words=False)
    reasons = " and ".join(list_one_way(config))
    if facts.two_way and reasons and reads_directions(config) and "directions" not in config.model.given:
        said = f"edges are directed, and with {reasons} layers aggregate over them in one direction only"
        lines.append(f"{said}; without, both ways")
    facts = replace(facts, two_way=facts.two_way and may_reverse(config) and fits_reversed(facts))
    depth = count_drawn_layers(config)
    if depth is not None and not {"num_layers", "orders"} & config.model.given.keys():
        config.model.num_layers = depth
        lines.append(f"sampler {config.sampler.name} draws for this depth: model.num_layers={depth}")
    given = dict(config.model.given)
    if _is_decided(config, "num_layers"):
        given.setdefault("num_layers", None)
    for choice in choose_settings(facts, epochs, given, is_exact=exact):
        taken = []
        for name, value in choice.settings.items():
            title, _, key = name.partition(".")
            section = getattr(config, title)
            if key in section.declared and key not in section.given and not _is_decided(config, key):
                setattr(section, key, value)
                taken.append(name)
        if taken:
            lines.append(choice.explain(taken))
    return tuple(lines)


def may_normalize(config: RunConfig) -> bool:
    """Whether rows of features may be normalised: not hops, not label columns, and not against what is given."""
    name, given = config.model.name, config.model.given.get("input_norm", "rows")
    reads_hops = name in CONVS and CONVS[name].trains_on_rows
    return given == "rows" and not reads_hops and config.training.label_reuse is None


def may_reverse(config: RunConfig) -> bool:
    """Whether a model may aggregate over reversed edges too, by its conv and the way it is trained."""
    return reads_directions(config) and not list_one_way(config)


def reads_directions(config: RunConfig) -> bool:
    """Whether the conv can aggregate over reversed edges, and was not told to leave them."""
    given = config.model.given
    conv = given.get("name", "gcn")
    return conv in CONVS and can_reverse(CONVS[conv]) and given.get("directions", "both") != "in"


def list_one_way(config: RunConfig) -> list[str]:
    """What about the way of training rules reversed edges out."""
    exchange = config.make_exchange()
    layered = config.draws and not SAMPLERS[config.sampler.name].draws_subgraphs
    normalised = config.draws and not layered and config.sampler.resolve().get("coverage") is not None
    reasons = {
        f"sampler {config.sampler.name}": layered,
        "sampler.coverage": normalised,
        "training.history": config.training.history,
        "method swapped": config.method == "swapped",
        "partition.boundary_rate below 1": exchange.thins,
        "partition.staleness": exchange.is_stale,
    }
    return [reason for reason, holds in reasons.items() if holds]


def is_exact(config: RunConfig) -> bool:
    """Whether a step is an exact one on the whole graph, or may become one where the method follows the graph."""
    exchange = config.make_exchange()
    draws = config.draws and config.method != AUTO
    return not (draws or exchange.thins or exchange.is_stale or config.training.history)


def heeds_homophily(facts: Facts, epochs: int | None, exact: bool) -> bool:
    """Whether settings depend on the homophily of a graph with these other facts, for given epochs."""
    if facts.multi_label or facts.regression:
        return False
    return is_few(facts) or (exact and allows_depth(replace(facts, two_way=False), epochs=epochs))


def fits_reversed(facts: Facts) -> bool:
    """Whether reversed edges take at most a quarter of the memory budget, if one is given."""
    budget = given_budget()
    return budget is None or 4 * count_reverse(facts.num_nodes, facts.num_entries) <= budget


def draws_layers(config: RunConfig) -> bool:
    """Whether batches have a block for every aggregation of the model."""
    return config.draws and issubclass(SAMPLERS[config.sampler.name], LayeredSampler)


def count_drawn_layers(config: RunConfig) -> int | None:
    """Layers of a model that aggregates as often as a layered sampler draws; None if that does not decide its depth."""
    name, sampler = config.model.given.get("name", "gcn"), config.sampler.resolve()
    aggregates_once = name in CONVS and CONVS[name].kind is not None and CONVS[name].default_order == 1
    if not draws_layers(config) or not aggregates_once or isinstance(config.model.given.get("hidden"), str):
        return None
    return len(check_fanouts(sampler["fanouts"])) if "fanouts" in sampler else int(sampler["num_layers"])


def _is_decided(config: RunConfig, name: str) -> bool:
    """Whether another given setting already determines a setting, or rules it out."""
    model = config.model.given
    if name == "prior_bias":
        return model.get("name", "gcn") not in CONVS
    if name == "roots":  # the rule knows walks of two steps over all nodes; a budget takes small batches
        is_plain = config.training.setting == "transductive" and "depth" not in config.sampler.given
        return not (config.draws and is_plain) or given_budget() is not None
    if name == "num_layers":
        return draws_layers(config) or "orders" in model or isinstance(model.get("hidden"), str)
    is_single = model.get("num_layers") == 1 or str(model.get("orders")) == "1"
    if name == "hidden":
        return is_single and model.get("head_layers") == 0  # such a layer is as wide as there are classes
    if name == "head_layers" and is_single:
        return True  # a single layer may need its classifier
    if name == "head_layers":
        return isinstance(model.get("hidden"), str) or bool({"jumping", "l2_normalize"} & model.keys())
    return name == "norm_place" and "norm_first" in model
