"""Checks that graph, model and sampler fit each other, before training."""

from __future__ import annotations

from torch import nn

from shoal.errors import ShoalError
from shoal.graph import Graph, require_graph
from shoal.models.calling import find_convention, find_widths
from shoal.partitioning.part import Part
from shoal.sampling.base import Sampler


def check_trainable(graph: Graph) -> None:
    """Raise if a graph has no features or no labels. A missing split is allowed: it can be drawn."""
    lacks = [
        what for what, there in (("features", graph.num_features), ("labels", graph.num_classes)) if not there
    ]
    if lacks:
        raise ShoalError(
            f"graph {graph.name!r} has no {' and no '.join(lacks)}: training needs features and labels"
        )


def check_fit(model: nn.Module, graph: Graph | Part, *, reuses_labels: bool = False) -> None:
    """Raise if a graph cannot be trained on, or if the model's widths do not match it."""
    if not isinstance(model, nn.Module):
        raise ShoalError(f"the model is a {type(model).__name__}: expected a torch.nn.Module")
    if find_convention(model).edges and isinstance(graph, Part):
        raise ShoalError(
            f"{type(model).__name__} takes edge_index, which has no halo rows: give every rank the Graph (--method sampled), or write forward(batch)"
        )
    if not isinstance(graph, Part):
        require_graph(graph)
        check_trainable(graph)
        if graph.train_mask is None:
            raise ShoalError(
                f"graph {graph.name!r} has no split: training needs train_mask, which graph.with_split() draws"
            )
    widths = find_widths(model)
    further = graph.num_classes if reuses_labels else 0
    for what, takes, has in zip(
        ("features", "classes"), widths, (graph.num_features + further, graph.num_classes)
    ):
        if takes is not None and takes != has and what == "features" and further:
            raise ShoalError(
                f"the model is made for {takes:,} features but graph {graph.name!r} has {has:,} with the labels "
                "reused as input: make it with graph.num_features + graph.num_classes"
            )
        if takes is not None and takes != has:
            raise ShoalError(
                f"the model is made for {takes:,} {what} but graph {graph.name!r} has {has:,}: make it with graph.num_{what}"
            )


def check_same_graph(sampler: Sampler, graph: Graph) -> None:
    """Raise if a sampler was made for another graph, or before the split was drawn: it would train on test labels."""
    drawn = sampler.graph
    while drawn is not graph and drawn.parent is not None:
        drawn = drawn.parent
    if drawn is graph or (
        drawn.num_nodes == graph.num_nodes
        and (graph.has_checksum(drawn.checksum) or drawn.has_checksum(graph.checksum))
    ):
        return
    raise ShoalError(
        f"the sampler was made for another graph than {graph.name!r}, or before its split was drawn: make it from the graph the trainer gets"
    )
