"""The default method of `shoal train`, chosen by a rule that measures nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from shoal.graph import Graph
from shoal.memory import memory_left
from shoal.runs.build import make_batches, make_model
from shoal.runs.config import AUTO, RunConfig
from shoal.runs.effort import ENOUGH_STEPS, count_passes, read_widths
from shoal.runs.facts import measure_facts
from shoal.runs.need import count_whole_step
from shoal.wording import format_bytes

_COVERED = 0.5  # batches with at least this share of the training graph's nodes save nothing


class Choice(NamedTuple):
    """A method, and why it fits."""

    method: str
    reason: str


def choose_method(config: RunConfig, graph: Graph) -> Choice:
    """`full` if memory holds such a step and a batch would hold half of the graph or more, or labels are not multi-label
    and a default run has time for enough steps on the whole graph. Otherwise `sampled`."""
    sampler = make_batches(config, graph)
    num_nodes = sampler.graph.num_nodes
    share = min(sampler.batch_size / max(num_nodes, 1), 1.0)
    batch = f"a batch of sampler {config.sampler.name} holds {share:.0%} of the {num_nodes:,} nodes"
    shape = {name: getattr(config.model, name, None) for name in ("num_layers", "hidden", "orders")}
    facts = measure_facts(graph, heeds=lambda facts: False)
    facts = replace(facts, two_way=getattr(config.model, "directions", "in") == "both")
    steps = count_passes(facts, read_widths(shape))
    if share < _COVERED and graph.multi_label:
        return Choice("sampled", f"multi-label graphs need many steps, and {batch}")
    if share < _COVERED and steps < ENOUGH_STEPS:
        return Choice("sampled", f"{batch}, and an epoch has {sampler.num_batches:,} steps")
    model = make_model(config, graph.num_features, graph.num_classes)
    needed, left = count_whole_step(graph, model), memory_left()
    if needed > left:
        return Choice(
            "sampled",
            f"a step on the whole graph takes {format_bytes(needed)} and {format_bytes(left)} are left",
        )
    if share < _COVERED:
        return Choice("full", f"{num_nodes:,} nodes allow at least {ENOUGH_STEPS} steps on the whole graph")
    return Choice("full", f"{batch}, so sampling saves nothing")


def leave_open(config: RunConfig) -> None:
    """Set method auto, unless a setting of batches was given."""
    training = config.training
    said = training.sampling_threads or training.history or training.node_multiple > 1
    if not (config.sampler.given or config.features.given or said):
        config.method = AUTO


def settle_method(config: RunConfig, graph: Graph) -> tuple[str, ...]:
    """Replace method auto by the method that fits the graph; returns a notice about it."""
    if config.method != AUTO:
        return ()
    chosen = choose_method(config, graph)
    config.method = chosen.method
    if not config.draws:
        config.sampler.clear()  # defaults that a configuration with all settings has
    return (_explain(chosen, "sampled" if chosen.method == "full" else "full"),)


def settle_ranks(config: RunConfig, num_ranks: int) -> tuple[str, ...]:
    """Replace method auto by sampled where there are several ranks; returns a notice about it."""
    if config.method != AUTO or num_ranks == 1:
        return ()
    config.method = "sampled"
    return (_explain(Choice("sampled", f"each of {num_ranks} ranks draws its own batches"), "partitioned"),)


def _explain(chosen: Choice, other: str) -> str:
    return f"method {chosen.method}: {chosen.reason} (or choose --method {other})"
