"""Deeper default models for graphs whose classes may follow from nodes further away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.memory import given_budget
from shoal.runs.effort import ENOUGH_STEPS, count_passes, read_widths
from shoal.runs.facts import Facts

MIXED = 0.3  # bound of adjusted homophily, below which neighbours are of other classes
_FEW_NEIGHBOURS = 16  # mean degree, above which four layers reach much of a graph
_CONVS = ("gcn", "sage")  # that eight layers were measured with
_DEEP = {"num_layers": 8, "dropout": 0.2, "input_dropout": 0.2}  # docs/lab/2026-11-19-low-homophily.md
_STEP = 16  # bytes of a training step for every output of a layer: four matrices of float32
_WIDTHS = {128: 10_000, 64: 0}  # and the training nodes that each takes


def choose_reach(facts: Facts, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a deeper model, if nodes have few neighbours, seldom of their own class, and time allows enough steps.

    With a memory budget such a step takes at most half of it.

    Args:
        facts: of a graph with one label a node, not few.
        given: the settings of the model that were given.
    """
    degree = (2 if facts.two_way else 1) * facts.num_entries / max(facts.num_nodes, 1)
    if facts.homophily >= MIXED or degree >= _FEW_NEIGHBOURS:
        return {}
    if {"num_layers", "orders"} & given.keys() or given.get("name", "gcn") not in _CONVS:
        return {}
    budget = given_budget()
    for width, labels in _WIDTHS.items():
        settings = _DEEP | {"hidden": width}
        widths = read_widths(settings | dict(given))
        has_time = count_passes(facts, widths) >= ENOUGH_STEPS
        has_room = budget is None or 2 * _STEP * facts.num_nodes * sum(widths) <= budget
        if facts.num_labels >= labels and has_time and has_room:
            return settings
    return {}
