"""Partition and partition_graph: which part every node belongs to, by one of several methods, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Annotated, Any

import numpy as np

from shoal.checks import check_whole
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph, require_graph
from shoal.notebook import show_facts
from shoal.partitioning.estimate import check_method, choose_method, count_cover_threads
from shoal.partitioning.hosts import group_parts
from shoal.partitioning.methods.block import partition_in_blocks
from shoal.partitioning.methods.random import partition_at_random
from shoal.partitioning.nets import make_nets
from shoal.partitioning.part import MAX_PARTS, Part, check_assignment, split_graph
from shoal.partitioning.quality import Quality, compare_quality, list_figures, measure_quality
from shoal.partitioning.work import (
    PARTITION_METHODS,
    Method,
    Work,
    find_method,
    name_method,
    traits_of,
    weigh_nodes,
)
from shoal.settings import AtLeast, Choices, Null, Range, Seed, check_options, check_settings, list_settings
from shoal.threads import available_cores
from shoal.wording import count

AUTO = "auto"
BALANCES = ("edges", "nodes")


@dataclass(frozen=True, eq=False)
class Partition:
    """Which part every node of `graph` belongs to.

    Args:
        graph: the graph that is split.
        num_parts: number of parts.

    Attributes:
        assignment: int32 (num_nodes,), from 0 to num_parts - 1.
        method, balance, imbalance, seed: how it was made (`partition_graph`); method `given` for one made elsewhere.
        parts_per_host: h, if parts are mapped to hosts: parts 0 … h-1 are on the first host, and so on.
        seconds: of each step.
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

    def __post_init__(self) -> None:
        require_graph(self.graph)
        checked = check_assignment(self.assignment, self.graph.num_nodes, self.num_parts)
        object.__setattr__(self, "assignment", checked)

    def quality(self, *, relative: bool = True, covers: bool = True) -> Quality:
        """Volume, messages and balance, counted.

        Args:
            relative: count a random partition with the same seed too, and report multiples of it.
            covers: count rows and sums sent by minimum covers, which takes longest; also left out if memory is too small.
        """
        threads = count_cover_threads(self.graph, self.num_parts) if covers else None
        settings = (self.num_parts, self.parts_per_host, threads)
        found = measure_quality(self.graph, self.assignment, *settings)
        if not relative:
            return found
        chance = partition_at_random(self.graph.num_nodes, self.num_parts, self.seed)
        other = measure_quality(self.graph, chance, *settings)
        return replace(found, relative=compare_quality(found, other), random=list_figures(other))

    def split(self) -> list[Part]:
        """The parts, in memory."""
        return split_graph(self.graph, self.assignment, self.num_parts)

    def map_to_hosts(self, parts_per_host: int) -> Partition:
        """The same parts numbered so that those which exchange most share a host (see `group_parts`).

        Args:
            parts_per_host: parts on a host.
        """
        check_whole("parts_per_host", parts_per_host, 1, self.num_parts)
        number = group_parts(self.graph, self.assignment, self.num_parts, parts_per_host)
        return replace(self, assignment=number[self.assignment], parts_per_host=parts_per_host)

    def __repr__(self) -> str:
        return f"Partition({self.method}, {self.graph.num_nodes:,} nodes in {count(self.num_parts, 'part')})"

    def _repr_html_(self) -> str:
        sizes = np.bincount(self.assignment, minlength=self.num_parts)
        facts = {
            "graph": self.graph.name,
            "parts": self.num_parts,
            "nodes per part": f"{sizes.min():,} to {sizes.max():,}",
            "method": self.method,
            "balance": f"{self.balance}, imbalance {self.imbalance:g}",
            "seconds": self.seconds.get("total"),
        }
        return show_facts("Partition", facts)


@check_settings
def partition_graph(
    graph: Graph,
    num_parts: Annotated[int, Range(1, MAX_PARTS), "how many parts: one for each rank"],
    method: Annotated[str | Method, "how to split: a partition method, or auto"] = AUTO,
    *,
    imbalance: Annotated[float, Range(0, 10), "how much heavier than the average a part may be"] = 0.01,
    seed: Seed = 0,
    threads: Annotated[int | None, AtLeast(1), Null("all cores"), "threads to partition with"] = None,
    balance: Annotated[
        str, Choices(BALANCES), "a node weighs its row's entries and itself (edges), or 1 (nodes)"
    ] = "edges",
    refine: Annotated[
        bool | None,
        Null("what the method does by itself"),
        "search locally for less volume, messages and peak",
    ] = None,
    parts_per_host: Annotated[
        int | None, AtLeast(1), Null("no mapping"), "number the parts so that busy pairs share a host"
    ] = None,
    progress: Callable[[str], None] = lambda step: None,
    **options: Any,
) -> Partition:
    """Split the nodes of `graph` into `num_parts` parts; deterministic in the seed.

    Methods are those of `PARTITION_METHODS` (`shoal partition --help` lists them), and `auto`: the most preferred
    one that is installed and fits in memory. A function of your own takes a Work and returns every node's part.

    Args:
        imbalance: how much heavier than the average a part may be. Parts with a single row heavier than that exceed it.
        balance: a node weighs its row's entries and itself (`edges`), or 1 (`nodes`).
        refine: search locally for less volume, fewer messages and a lower peak afterwards; by default only methods
            with a local search of their own do.
        parts_per_host: number the parts so that those which exchange most share a host.
        progress: called with each step's name.
        options: the method's own settings.
        graph: the graph.
    """  # fmt: skip
    require_graph(graph)
    if isinstance(method, str) and method != AUTO and method not in PARTITION_METHODS:
        raise unknown_name("method", method, (AUTO, *PARTITION_METHODS))
    notices: list[str] = []
    if method == AUTO:
        method, why = choose_method(graph, num_parts)
        notices.append(f"chose method {method!r}: {why}")
    else:
        check_method(graph, num_parts, method)
    options = _check_options(method, options)
    told = traits_of(find_method(method))
    work = Work(
        graph,
        num_parts,
        weigh_nodes(graph, balance),
        imbalance,
        seed,
        threads or available_cores(),
        told.refines if refine is None else refine,
        progress,
        notices,
    )
    began = time.perf_counter()
    assignment = _assign(work, method, options)
    seconds = {**work.seconds, "total": time.perf_counter() - began}
    partition = Partition(
        graph,
        check_assignment(assignment, graph.num_nodes, num_parts),
        num_parts,
        name_method(method),
        balance,
        imbalance,
        seed,
        seconds=seconds,
        notices=tuple(notices),
    )
    return partition if parts_per_host is None else partition.map_to_hosts(parts_per_host)


def _check_options(method: str | Method, options: dict[str, Any]) -> dict[str, Any]:
    """The settings of a method, checked; those that it passes on (`**settings`) are checked by their receiver."""
    function = find_method(method)
    declared = list_settings(function)
    passed_on = any(known.kind == known.VAR_KEYWORD for known in signature(function).parameters.values())
    others = {name: value for name, value in options.items() if passed_on and name not in declared}
    own = {name: value for name, value in options.items() if name not in others}
    if own and not declared:
        raise ShoalError(f"method {name_method(method)!r} takes no settings: {next(iter(own))!r} was given")
    return check_options(declared, own, what=f"method {name_method(method)!r}") | others


def _assign(work: Work, method: str | Method, options: dict[str, Any]) -> np.ndarray:
    """Run a method; graphs and numbers of parts that leave nothing to choose are split in blocks."""
    function, n, num_parts = find_method(method), work.graph.num_nodes, work.num_parts
    told = traits_of(function)
    heavy = int((work.weights > work.max_weight).sum())
    if heavy and num_parts > 1 and told.balances:
        work.notices.append(
            f"{heavy:,} single rows are heavier than a part may be ({work.max_weight:,.0f}): their parts exceed the imbalance"
        )
    if num_parts == 1 or num_parts >= n or work.graph.num_entries == 0:
        if num_parts >= n > 1:
            work.notices.append(
                f"{num_parts:,} parts for {n:,} nodes: every node is a part of its own, {num_parts - n:,} are empty"
            )
        return partition_in_blocks(work.weights if num_parts < n else np.ones(n, np.int64), num_parts)
    if told.refines:
        return function(work, **options)
    assignment: np.ndarray = work.time(name_method(method), lambda: function(work, **options))
    return work.search(make_nets(work.graph), assignment) if work.refine else assignment
