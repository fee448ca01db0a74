"""Deeper default models for graphs whose classes may follow from nodes further away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.memory import given_budget
from shoal.runs.effort import ENOUGH_STEPS, count_passes
from shoal.runs.facts import Facts
from shoal.runs.homophily import LOW_HOMOPHILY

_LAYERS = 8  # docs/lab/2026-11-19-low-homophily.md
_SETTINGS = {"num_layers": _LAYERS, "dropout": 0.2, "input_dropout": 0.2}
_LEAST_LABELS = {128: 10_000, 64: 0}  # least training nodes for each width
LAYER_NORMED = 4  # layers that layer norm serves well; more take batch norm
_FEW_NEIGHBOURS = 16  # mean degree, above which four layers reach much of a graph
# Settings of the model that were measured together: who gives one keeps the usual depth.
_SHAPE = {
    *("orders", "hidden", "dropout", "residual", "norm", "norm_place", "norm_first"),
    *("head_layers", "jumping"),
}


def count_neighbours(facts: Facts) -> float:
    """The mean number of nodes that a layer aggregates from."""
    return (2 if facts.two_way else 1) * facts.num_entries / max(facts.num_nodes, 1)


def allows_depth(
    facts: Facts, width: int = min(_LEAST_LABELS), layers: int = _LAYERS, epochs: int | None = None
) -> bool:
    """Whether nodes have few neighbours and the epochs of a run, given or by its time, are enough for deep models."""
    if count_neighbours(facts) >= _FEW_NEIGHBOURS:
        return False
    passes = count_passes(facts, [width] * layers)
    return min(passes, passes if epochs is None else epochs) >= ENOUGH_STEPS


def choose_deep_model(facts: Facts, epochs: int | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a deeper model, if few neighbours, seldom of a node's class, and enough epochs call for it.

    With a memory budget it is the narrower one, whose outputs take no more room than those of the usual model.

    Args:
        facts: of a graph with one label a node, not few, whose steps are exact ones on the whole graph.
        epochs, given: the number of epochs and the settings of the model that were given.
    """
    layers = given.get("num_layers", _LAYERS)
    if facts.homophily >= LOW_HOMOPHILY or _SHAPE & given.keys() or given.get("name", "gcn") != "gcn":
        return {}
    if layers is None or layers <= LAYER_NORMED:
        return {}
    for width, labels in _LEAST_LABELS.items():
        has_room = width == min(_LEAST_LABELS) or given_budget() is None
        if facts.num_labels >= labels and has_room and allows_depth(facts, width, layers, epochs):
            return _SETTINGS | {"hidden": width}
    return {}
