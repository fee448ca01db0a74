"""How long a default run may be: passes over the graph that about ten minutes of one core allow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.models.pattern import parse_orders
from shoal.runs.facts import Facts
from shoal.runs.sections import DEFAULT_WIDTH

EPOCHS = range(60, 501)
ENOUGH_STEPS = 250  # full-batch steps that decide shape and method: docs/lab/2026-11-18-first-runs.md
_WORK = 2e13  # multiply-adds of a default run: about ten minutes of one core


def read_widths(model: Mapping[str, Any]) -> list[int]:
    """The width of every layer that a model's settings name, each a default one where it is not given."""
    layers = len(parse_orders(model.get("orders"), model.get("num_layers")))
    widths = [int(width) for width in str(model.get("hidden") or DEFAULT_WIDTH).split("-")]
    return widths * layers if len(widths) == 1 else widths


def choose_epochs(facts: Facts, widths: Sequence[int]) -> int:
    """The number of epochs that the work of a default run allows, within bounds."""
    epochs = min(max(count_passes(facts, widths), EPOCHS.start), EPOCHS[-1])
    return epochs // 10 * 10


def count_passes(facts: Facts, widths: Sequence[int]) -> int:
    """Full passes over all nodes that the work of a default run allows for layers of these widths."""
    ways = 2 if facts.two_way else 1
    dense = (1 + ways) * facts.num_nodes * sum(width**2 for width in widths)
    sparse = ways * facts.num_entries * sum(widths)
    inputs = 2 * facts.num_nodes * facts.num_features * widths[0]
    return int(_WORK / max(3 * (dense + sparse + inputs), 1))
