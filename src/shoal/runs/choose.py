"""Which method fits a graph, by a rule that measures nothing: what `shoal train` takes where no method is given."""

from __future__ import annotations

from typing import NamedTuple

from shoal.graph import Graph
from shoal.memory import memory_left
from shoal.models.pattern import DEFAULT_LAYERS
from shoal.runs.build import make_batches, make_model
from shoal.runs.config import AUTO, RunConfig
from shoal.runs.defaults import ENOUGH_STEPS, count_passes, measure_facts
from shoal.runs.need import count_whole_step
from shoal.wording import format_bytes

_COVERED = 0.5  # of the training graph's nodes in a batch, from which on batches save nothing


class Choice(NamedTuple):
    """A method, and why it fits."""

    method: str
    reason: str


def choose_method(config: RunConfig, graph: Graph, num_ranks: int = 1) -> Choice:
    """`full` where batches would hold half of the graph or more, or where the work of a default run allows enough steps on
    the whole graph; not where memory does not hold such a step. Else `sampled`."""
    if num_ranks > 1:
        return Choice("sampled", f"{num_ranks} ranks draw batches of their own")
    sampler = make_batches(config, graph)
    num_nodes = sampler.graph.num_nodes
    share = min(sampler.batch_size / max(num_nodes, 1), 1.0)
    batch = f"a batch of sampler {config.sampler.name} holds {share:.0%} of the {num_nodes:,} nodes"
    steps = count_passes(measure_facts(graph), getattr(config.model, "num_layers", None) or DEFAULT_LAYERS)
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
        return Choice("full", f"{num_nodes:,} nodes allow {ENOUGH_STEPS} steps on the whole graph and more")
    return Choice("full", f"{batch}, so that drawing it saves nothing")


def leave_open(config: RunConfig) -> None:
    """Let the graph decide the method, unless something was said about batches."""
    training = config.training
    said = training.sampling_threads or training.history or training.node_multiple > 1
    if not (config.sampler.given or config.features.given or said):
        config.method = AUTO


def settle_method(config: RunConfig, graph: Graph, num_ranks: int = 1) -> tuple[str, ...]:
    """Put the method that fits into a configuration that leaves it open; returns what to say of it."""
    if config.method != AUTO:
        return ()
    chosen = choose_method(config, graph, num_ranks)
    config.method = chosen.method
    if not config.draws:
        config.sampler.clear()  # the defaults, which a configuration written out in full has
    other = "sampled" if chosen.method == "full" else "full"
    return (f"method {chosen.method}: {chosen.reason} (--method {other} is the other way)",)
