"""Samplers by name, as the command line and recipes know them."""

import inspect
from typing import Any

from shoal.errors import unknown_name
from shoal.graph import Graph
from shoal.sampling.base import Sampler
from shoal.sampling.cluster import ClusterSampler
from shoal.sampling.edge import EdgeSampler
from shoal.sampling.forest_fire import ForestFireSampler
from shoal.sampling.frontier import FrontierSampler
from shoal.sampling.full import FullSampler
from shoal.sampling.layered import FastGCNSampler, LadiesSampler
from shoal.sampling.multi_walk import MultiRandomWalkSampler
from shoal.sampling.neighbor import NeighborSampler
from shoal.sampling.node import NodeSampler
from shoal.sampling.walk import RandomWalkSampler

SAMPLERS: dict[str, type[Sampler]] = {
    cls.name: cls
    for cls in (
        FrontierSampler,
        RandomWalkSampler,
        EdgeSampler,
        NodeSampler,
        MultiRandomWalkSampler,
        ForestFireSampler,
        NeighborSampler,
        FastGCNSampler,
        LadiesSampler,
        ClusterSampler,
        FullSampler,
    )
}


def default_options(name: str) -> dict[str, Any]:
    """The options of a sampler and their defaults, without those every run sets itself: setting and seed."""
    if name not in SAMPLERS:
        raise unknown_name("sampler", name, SAMPLERS)
    parameters = list(inspect.signature(SAMPLERS[name]).parameters.values())[1:]
    return {known.name: known.default for known in parameters if known.name not in ("setting", "seed")}


def make_sampler(name: str, graph: Graph, **options: Any) -> Sampler:
    """The sampler called `name` on `graph`; an option it does not have is refused with the nearest one."""
    if name not in SAMPLERS:
        raise unknown_name("sampler", name, SAMPLERS)
    known = list(inspect.signature(SAMPLERS[name]).parameters)[1:]
    for option in options:
        if option not in known:
            raise unknown_name(f"option of sampler {name!r}", option, known)
    return SAMPLERS[name](graph, **options)
