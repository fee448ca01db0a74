"""Python users who give the wrong thing get a sentence: settings of every component, arrays of every constructor."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

import shoal
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.settings import list_settings

ODD = [
    None,
    True,
    -1,
    0.5,
    float("nan"),
    "x",
    [],
    {},
    (1, 2),
    10**30,
    -(10**30),
    object(),
    b"x",
    1 + 2j,
    ["x"],
]
EDGES = np.random.default_rng(0).integers(0, 40, (2, 90))


def make_graph() -> Graph:
    rng = np.random.default_rng(1)
    x, y = rng.random((40, 4), np.float32), rng.integers(0, 3, 40)
    return Graph.from_edge_index(EDGES, 40, directed=False, x=x, y=y).with_split()


def answer(call) -> None:
    """A call that works or is refused with a sentence; anything else is raised."""
    with suppress(ShoalError):
        call()


@pytest.mark.parametrize("name", sorted(shoal.SAMPLERS))
def test_settings_of_samplers_are_taken_or_refused_with_a_sentence(name):
    sampler, graph = shoal.SAMPLERS[name], make_graph()
    for setting in list_settings(sampler):
        for value in ODD:
            answer(lambda one=setting, value=value: sampler(graph, **{one: value}))
    with pytest.raises(ShoalError):
        sampler(None)


REFUSED = {
    "method of a frontier": lambda g: shoal.FrontierSampler(g, 20, 10, method=1),
    "eta of a frontier": lambda g: shoal.FrontierSampler(g, 20, 10, eta="x"),
    "burning of a fire": lambda g: shoal.ForestFireSampler(g, budget=10, burning=None),
    "a count beyond 64 bits": lambda g: shoal.RandomWalkSampler(g, roots=2**70),
    "a batch that is no number": lambda g: shoal.NodeSampler(g, budget=10).sample("first"),
    "parts that are no number": lambda g: shoal.partition_graph(g, "four"),
    "a partition of nothing": lambda g: shoal.partition_graph(None, 2),
    "an assignment out of range": lambda g: shoal.Partition(g, np.full(40, 7), 2),
    "an assignment of fractions": lambda g: shoal.Partition(g, np.full(40, 0.5), 2),
    "a model that is none": lambda g: shoal.Trainer("sage", g, shoal.FullSampler(g)),
    "a trainer without a graph": lambda g: shoal.Trainer(shoal.GNN("sage", 4, 4, 3), None, shoal.FullSampler(g)),
    "a width beyond 64 bits": lambda g: shoal.GNN("sage", 4, 2**70, 3),
    "columns out of range": lambda g: Graph(g.indptr, g.indices + 40),
    "negative columns": lambda g: Graph(g.indptr, g.indices - 1),
    "columns that are a list": lambda g: Graph(g.indptr, g.indices.tolist()),
    "edges that are fractions": lambda g: Graph.from_edge_index(EDGES + 0.5, 40),
    "edges of several lengths": lambda g: Graph.from_edge_index([[0, 1], [1]], 40),
    "nodes that are no number": lambda g: Graph.from_edge_index(EDGES, "many"),
    "features that are NaN": lambda g: Graph.from_edge_index(EDGES, 40, x=np.full((40, 2), np.nan)),
    "a matrix that is text": lambda g: Graph.from_scipy("adjacency"),
    "a NetworkX graph that is none": lambda g: Graph.from_networkx(3),
    "a subgraph of unknown nodes": lambda g: g.subgraph(np.array([3, 99])),
    "features of unknown nodes": lambda g: g.take_features(np.array([99])),
    "a share of nodes that is text": lambda g: g.with_split("most"),
    "a setting that is none": lambda g: g.train_graph(None),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_arguments_are_refused_with_a_sentence(case):
    with pytest.raises(ShoalError):
        REFUSED[case](make_graph())
