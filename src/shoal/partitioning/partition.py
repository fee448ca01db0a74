"""Partition and partition_graph: which part every node belongs to, by one of several methods, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoal.checks import check_number, check_seed, check_whole
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.partitioning.estimate import check_memory, choose_method
from shoal.partitioning.hosts import group_parts
from shoal.partitioning.methods import Work
from shoal.partitioning.part import MAX_PARTS, Part, check_assignment, split_graph
from shoal.partitioning.quality import Quality, compare_quality, list_figures, measure_quality
from shoal.partitioning.simple import partition_at_random
from shoal.threads import available_cores

METHODS = ("auto", "random", "block", "metis", "metis-volume", "hypergraph", "stochastic", "streaming")
BALANCES = ("edges", "nodes")


@dataclass(frozen=True, eq=False)
class Partition:
    """Which part every node of `graph` belongs to.

    Attributes:
        assignment: int32 (num_nodes,), from 0 to num_parts - 1.
        parts_per_host: where parts were mapped to hosts, parts 0 … h-1 are on the first and so on.
        seconds: how long each step took.
        notices: what was adapted, one sentence each.
    """

    graph: Graph
    assignment: np.ndarray
    num_parts: int
    method: str = "given"
    balance: str = "edges"
    imbalance: float = 0.01
    seed: int = 0
    parts_per_host: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def quality(self, *, relative: bool = True) -> Quality:
        """Everything counted; with `relative`, as multiples of random partitioning with the same seed too."""
        found = measure_quality(self.graph, self.assignment, self.num_parts, self.parts_per_host)
        if not relative:
            return found
        chance = partition_at_random(self.graph.num_nodes, self.num_parts, self.seed)
        other = measure_quality(self.graph, chance, self.num_parts, self.parts_per_host)
        return replace(found, relative=compare_quality(found, other), random=list_figures(other))

    def split(self) -> list[Part]:
        """The parts, in memory."""
        return split_graph(self.graph, self.assignment, self.num_parts)

    def map_to_hosts(self, parts_per_host: int) -> Partition:
        """The same parts numbered so that those which exchange most share a host (see `group_parts`)."""
        check_whole("parts_per_host", parts_per_host, 1, self.num_parts)
        number = group_parts(self.graph, self.assignment, self.num_parts, parts_per_host)
        return replace(self, assignment=number[self.assignment], parts_per_host=parts_per_host)

    def __repr__(self) -> str:
        return f"Partition({self.method}, {self.graph.num_nodes:,} nodes in {self.num_parts:,} parts)"


def partition_graph(
    graph: Graph,
    num_parts: int,
    method: str = "auto",
    *,
    imbalance: float = 0.01,
    seed: int = 0,
    threads: int | None = None,
    balance: str = "edges",
    refine: bool | None = None,
    parts_per_host: int | None = None,
    progress: Callable[[str], None] = lambda step: None,
    **options: Any,
) -> Partition:
    """Split the nodes of `graph` into `num_parts` parts; deterministic in the seed.

    Methods: `random` (equally many nodes each), `block` (consecutive nodes), `streaming` (linear deterministic greedy, for graphs that
    nothing else can hold), `metis` (edge cut), `metis-volume`, `hypergraph` (fewest rows sent: METIS by
    both objectives, a multilevel cycle of Mt-KaHyPar, each where it takes minutes at most, and local search), `stochastic` (fewest rows sent by
    sampled mini-batches), `auto` (hypergraph where the tools are there and memory suffices).

    Args:
        imbalance: how much heavier than the average a part may be. A row heavier than that alone cannot be helped.
        balance: a node weighs its row's entries and itself (`edges`), or 1 (`nodes`).
        refine: search locally for less volume, fewer messages and a lower peak afterwards; by default
            `hypergraph` and `stochastic` do.
        parts_per_host: number the parts so that those which exchange most share a host.
        progress: called with each step's name.
        options: of `stochastic`: `sampler` (a name or a Sampler) and its settings, `theta`, `delta`.
    """
    if method not in METHODS:
        raise unknown_name("method", method, METHODS)
    if balance not in BALANCES:
        raise unknown_name("balance", balance, BALANCES)
    check_whole("num_parts", num_parts, 1, MAX_PARTS)
    check_number("imbalance", imbalance, 0, 10)
    check_seed(seed)
    if options and method != "stochastic":
        raise ShoalError(
            f"method {method!r} takes no setting {next(iter(options))!r}: only 'stochastic' does"
        )
    notices: list[str] = []
    if method == "auto":
        method, why = choose_method(graph, num_parts)
        notices.append(f"chose method {method!r}: {why}")
    else:
        check_memory(graph, num_parts, method)
    work = Work(graph, num_parts, imbalance, seed, threads or available_cores(), balance, progress, notices)
    began = time.perf_counter()
    assignment = work.run(method, refine, options)
    seconds = {**work.seconds, "total": time.perf_counter() - began}
    partition = Partition(
        graph,
        check_assignment(assignment, graph.num_nodes, num_parts),
        num_parts,
        method,
        balance,
        imbalance,
        seed,
        seconds=seconds,
        notices=tuple(notices),
    )
    return partition if parts_per_host is None else partition.map_to_hosts(parts_per_host)
