"""Which share of training a process has: by what it was given."""

from __future__ import annotations

from torch import nn

from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.partitioning.part import Part
from shoal.partitioning.partition import Partition
from shoal.sampling.base import Sampler
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
) -> Share:
    """A rank with a part of the graph, with all of it, or with all of it in files (`Trainer` says what each is)."""
    if isinstance(graph, Part):
        if swapped is not None:
            raise ShoalError("swapped parts are those of a Graph: give the graph, or leave out swapped")
        method = EXCHANGES[exchange]() if isinstance(exchange, str) else exchange
        return PartShare(graph, sampler, transport, method, model)
    if swapped is not None:
        return SwappedShare(graph, swapped, sampler, transport, model)
    return ReplicaShare(graph, sampler, transport)
