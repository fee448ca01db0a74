"""make_share: the share of training that fits a trainer's arguments."""

from __future__ import annotations

from torch import nn

from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.transport import Transport
from shoal.edge_weights import require_unweighted
from shoal.errors import ShoalError, unknown_name
from shoal.graph import SETTINGS, Graph
from shoal.models.calling import find_convention
from shoal.models.hops import check_hops
from shoal.partitioning.part import Part
from shoal.partitioning.partition import Partition
from shoal.sampling.adaptive import AdaptiveSampler
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler
from shoal.training.history_share import HistoryShare
from shoal.training.label_reuse import LabelReuse, check_reuse
from shoal.training.learning_share import LearningShare
from shoal.training.part_share import PartShare
from shoal.training.share import ReplicaShare, Share
from shoal.training.swapped_share import SwappedShare


def make_share(
    model: nn.Module,
    graph: Graph | Part,
    sampler: Sampler | None,
    transport: Transport,
    exchange: ExchangeMethod | str,
    swapped: Partition | None,
    setting: str = "transductive",
    history: bool = False,
    reuse: LabelReuse | None = None,
) -> Share:
    """The share for a part of the graph, for the whole graph, or for the whole graph in swapped parts.

    The arguments are those of `Trainer`. `setting` is for full-batch training; a sampler has its own.
    """
    if setting not in SETTINGS:
        raise unknown_name("setting", setting, SETTINGS)
    if sampler is not None and not isinstance(sampler, Sampler):
        raise ShoalError(
            f"sampler is {sampler!r}: expected a Sampler, such as shoal.RandomWalkSampler(graph)"
        )
    method = EXCHANGES[exchange]() if isinstance(exchange, str) else exchange
    if reuse is not None:
        parts = method if isinstance(graph, Part) else None
        check_reuse(reuse, sampler, parts, swapped=swapped is not None, history=history)
    share = _choose_share(model, graph, sampler, transport, method, swapped, setting, history, reuse)
    share.reuse = reuse
    return share


def _choose_share(
    model: nn.Module,
    graph: Graph | Part,
    sampler: Sampler | None,
    transport: Transport,
    method: ExchangeMethod,
    swapped: Partition | None,
    setting: str,
    history: bool,
    reuse: LabelReuse | None,
) -> Share:
    check_hops(model, graph)
    if getattr(model, "directions", "in") == "both":
        check_directions(graph, sampler, method, swapped, history=history)
    if isinstance(graph, Graph):
        check_weights(model, graph)
    if history and (isinstance(graph, Part) or swapped is not None):
        raise ShoalError("training on parts exchanges halo rows and reads no histories: leave out history")
    if isinstance(graph, Part):
        if swapped is not None:
            raise ShoalError(
                "swapped parts need a Graph and a Part was given: give the graph, or leave out swapped"
            )
        return PartShare(graph, sampler, transport, method, model, setting)
    if swapped is not None:
        if setting != "transductive":
            raise ShoalError(f"swapped parts train on the whole graph: leave out setting={setting}")
        return SwappedShare(graph, swapped, sampler, transport, model, reuse)
    if sampler is None and setting != "transductive":
        sampler = FullSampler(graph, setting=setting)
    if history:
        return HistoryShare(graph, sampler, transport, model)
    if isinstance(sampler, AdaptiveSampler):
        if reuse is not None:
            raise ShoalError(
                f"sampler {sampler.name} learns from features alone: leave out training.label_reuse, or use another sampler"
            )
        return LearningShare(graph, sampler, transport, model)
    return ReplicaShare(graph, sampler, transport)


def check_directions(
    graph: Graph | Part,
    sampler: Sampler | None,
    method: ExchangeMethod,
    swapped: Partition | None,
    *,
    history: bool,
) -> None:
    """Raise if a model with directions=both cannot be trained this way."""
    leave = "leave out model.directions=both"
    if not graph.directed:
        raise ShoalError(f"graph {graph.name!r} is undirected, its edges go both ways already: {leave}")
    if history:
        raise ShoalError(f"histories keep results of one direction only: {leave}, or training.history")
    if swapped is not None:
        raise ShoalError(f"swapped parts have no reversed edges: {leave}, or train with --method full")
    if sampler is not None and not (sampler.draws_subgraphs or isinstance(sampler, FullSampler)):
        raise ShoalError(
            f"sampler {sampler.name} draws no reversed edges: {leave}, or use a subgraph sampler"
        )
    if sampler is not None and sampler.coverage is not None:
        raise ShoalError(f"sampler.coverage normalises one direction only: {leave}, or sampler.coverage")
    if isinstance(graph, Part) and (method.thins or method.is_stale):
        raise ShoalError(f"ranks with parts need complete, current halos for both directions: {leave}")


def check_weights(model: nn.Module, graph: Graph) -> None:
    """Raise if a model would ignore the graph's edge weights."""
    if graph.edge_weight is None:
        return
    convention = find_convention(model)
    if convention.edges and not convention.weights:
        ignores = getattr(model, "supports_edge_weight", True) is False
        why = "supports_edge_weight is False" if ignores else "forward has no edge_weight"
        require_unweighted(graph, f"{type(model).__name__}, whose {why}, does")
