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
from shoal.partitioning.hypergraph import MAX_PINS, TOOLS, find_tool, improve_partition
from shoal.partitioning.metis import partition_by_metis
from shoal.partitioning.nets import Nets, count_rows, count_spread, make_nets
from shoal.partitioning.part import MAX_PARTS, Part, check_assignment, split_graph
from shoal.partitioning.quality import Quality, compare_quality, list_figures, measure_quality
from shoal.partitioning.refine import price_partition, refine_assignment
from shoal.partitioning.simple import partition_at_random, partition_in_blocks, partition_stream
from shoal.partitioning.stochastic import count_nets, mean_batch_volume, sample_nets, weigh_entries
from shoal.sampling.layered import LayeredSampler
from shoal.sampling.registry import make_sampler
from shoal.threads import available_cores

METHODS = ("auto", "random", "block", "metis", "metis-volume", "hypergraph", "stochastic", "streaming")
BALANCES = ("edges", "nodes")
_VOLUME_WORK = 500_000_000  # what METIS's volume objective does in one or two minutes
_TRIES, _FEW_ENTRIES = 8, 2_000_000  # METIS's partitions that `stochastic` chooses from, and up to which size
_FRESH, _NUM_FRESH = 1 << 40, 200  # batches that judge what `stochastic` found
_NEAR = 1.1  # a start that sends at most so many times the rows of the better one is searched too
_SLACK = 0.03  # more rows than before that the local search may send for a lower peak, never more than METIS


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
    work = _Work(graph, num_parts, imbalance, seed, threads or available_cores(), balance, progress, notices)
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


def weigh_nodes(graph: Graph, balance: str) -> np.ndarray:
    """What a node weighs: the entries of its row in A + I, or 1."""
    if balance == "nodes":
        return np.ones(graph.num_nodes, np.int64)
    return np.asarray(graph.degree, np.int64) + 1


class _Work:
    """One call of partition_graph: its settings, and what each step took."""

    def __init__(
        self,
        graph: Graph,
        num_parts: int,
        imbalance: float,
        seed: int,
        threads: int,
        balance: str,
        progress: Callable[[str], None],
        notices: list[str],
    ) -> None:
        self.graph, self.num_parts, self.imbalance = graph, num_parts, imbalance
        self.seed, self.threads = seed, threads
        self.progress, self.notices = progress, notices
        self.weights = weigh_nodes(graph, balance)
        self.max_weight = (1 + imbalance) * -(-int(self.weights.sum()) // num_parts)
        self.seconds: dict[str, float] = {}

    def run(self, method: str, refine: bool | None, options: dict[str, Any]) -> np.ndarray:
        n, num_parts = self.graph.num_nodes, self.num_parts
        heavy = int((self.weights > self.max_weight).sum())
        if heavy and num_parts > 1 and method != "random":
            self.notices.append(
                f"{heavy:,} rows alone are heavier than a part may be ({self.max_weight:,.0f}): their parts exceed the imbalance"
            )
        if num_parts == 1 or num_parts >= n or self.graph.num_entries == 0:
            if num_parts >= n > 1:
                self.notices.append(
                    f"{num_parts:,} parts for {n:,} nodes: every node is a part of its own, {num_parts - n:,} are empty"
                )
            return partition_in_blocks(self.weights if num_parts < n else np.ones(n, np.int64), num_parts)
        simple = {
            "random": lambda: partition_at_random(n, num_parts, self.seed),
            "block": lambda: partition_in_blocks(self.weights, num_parts),
            "streaming": lambda: partition_stream(self.graph, self.weights, num_parts, self.max_weight),
            "metis": self.run_metis,
            "metis-volume": lambda: self.run_metis(volume=True),
        }
        if method == "stochastic":
            return self.run_stochastic(refine is not False, **options)
        if method == "hypergraph":
            return self.run_hypergraph(refine is not False)
        assignment = self.time(method, simple[method])
        return self.run_refine(make_nets(self.graph), assignment) if refine else assignment

    def time(self, step: str, run: Callable[[], Any]) -> Any:
        self.progress(step)
        began = time.perf_counter()
        result = run()
        self.seconds[step] = self.seconds.get(step, 0.0) + time.perf_counter() - began
        return result

    def run_metis(self, volume: bool = False) -> np.ndarray:
        return partition_by_metis(
            self.graph, self.weights, self.num_parts, self.imbalance, self.seed, volume=volume
        )

    def run_refine(self, nets: Nets, assignment: np.ndarray, **settings: Any) -> np.ndarray:
        arguments = (nets, assignment, self.weights, self.num_parts, self.max_weight)
        settings = {"seed": self.seed, **settings}
        refined: np.ndarray = self.time("local search", lambda: refine_assignment(*arguments, **settings))
        return refined

    def run_hypergraph(self, refine: bool) -> np.ndarray:
        """METIS by cut and by volume, a multilevel cycle on the better one, local search; the best of what that gives.

        No result sends more rows than either of METIS's partitions: those of the better one are the limit.
        """
        nets = make_nets(self.graph)
        starts = [self.time("metis", self.run_metis)]
        if self.is_volume_cheap(nets, starts[0]):
            starts.append(self.time("metis-volume", lambda: self.run_metis(volume=True)))
        else:
            self.notices.append(
                f"left out METIS's volume objective, which would take many minutes at {self.graph.num_entries:,} entries in {self.num_parts:,} parts"
            )
        rows = [count_rows(nets, start, self.num_parts) for start in starts]
        limit = min(rows)
        best = self.cycle(nets, starts[rows.index(limit)], limit)
        if not refine:
            return best
        near = [s for s, r in zip(starts, rows) if limit < r <= _NEAR * limit]
        found = [self.run_refine(nets, one, slack=_SLACK, max_rows=limit) for one in (best, *near)]
        kept = [one for one in found if count_rows(nets, one, self.num_parts) <= limit]
        judge = (self.weights, self.num_parts, self.max_weight, limit)
        chosen = min(kept, key=lambda one: price_partition(nets, one, *judge))
        heaviest = np.bincount(chosen, self.weights).max()
        if heaviest > max(self.max_weight, self.weights.max()):
            self.notices.append(
                f"a part weighs {heaviest:,.0f} where {self.max_weight:,.0f} are allowed: METIS left it so, and mending it would send more rows"
            )
        return chosen

    def is_volume_cheap(self, nets: Nets, cut: np.ndarray) -> bool:
        """Whether METIS's volume objective takes a minute or two at most, from its partition `cut` by edges.

        It keeps the parts that every node touches: the time measured grows with Σ_j pins_j · λ_j, and faster where
        parts are many for the degree.
        """
        pins = np.bincount(nets.nets, minlength=nets.num_nets)
        touched = float((pins * count_spread(nets, cut, self.num_parts)).sum())
        touched *= 2 if self.graph.directed else 1  # METIS reads arcs both ways
        return touched * max(1.0, self.num_parts / pins.mean()) ** 0.5 <= _VOLUME_WORK

    def cycle(self, nets: Nets, best: np.ndarray, rows: int) -> np.ndarray:
        """`best`, which sends `rows`, or what a hypergraph partitioner makes of it where that sends less."""
        tool = find_tool()
        if tool is None:
            self.notices.append(
                "no hypergraph partitioner is installed, only METIS and the local search were used: pip install 'shoal[partition]' brings Mt-KaHyPar"
            )
            return best
        if len(nets.nets) * np.log2(self.num_parts) / 4 > MAX_PINS[tool]:
            self.notices.append(
                f"left out {TOOLS[tool]}: {len(nets.nets):,} pins in {self.num_parts:,} parts would take it many minutes"
            )
            return best
        settings = (tool, nets, self.weights, self.num_parts, self.imbalance, self.seed, self.threads)
        cycled = self.time(TOOLS[tool], lambda: improve_partition(*settings, start=best))
        heaviest = max(self.max_weight, np.bincount(best, self.weights).max())
        fits = np.bincount(cycled, self.weights).max() <= heaviest
        return cycled if fits and count_rows(nets, cycled, self.num_parts) < rows else best

    def run_stochastic(
        self,
        refine: bool,
        sampler: Any = "node",
        theta: float = 0.1,
        delta: float = 0.5,
        **settings: Any,
    ) -> np.ndarray:
        check_number("theta", theta, 1e-6, 1e6)
        check_number("delta", delta, 1e-9, 1)
        if isinstance(sampler, str):
            sampler = make_sampler(sampler, self.graph, seed=self.seed, **settings)
        elif settings:
            raise ShoalError(f"the sampler is made already: it takes no {next(iter(settings))!r}")
        if isinstance(sampler, LayeredSampler):
            raise ShoalError(
                f"the {sampler.name} sampler draws a pattern for every layer and not a subgraph: stochastic nets take a subgraph sampler, such as 'node' or 'random-walk'"
            )
        if sampler.graph is not self.graph:
            raise ShoalError(
                "the sampler draws from another graph: give one of the whole graph (transductive)"
            )
        needed = count_nets(self.num_parts, theta, delta)
        nets, seen, drawn = self.time("sampling nets", lambda: sample_nets(sampler, needed))
        if drawn.sum() < needed:
            self.notices.append(f"stopped at {drawn.sum():,} nets: theta and delta ask for {needed:,}")
        whole, entry_weights = weigh_entries(self.graph, sampler, seen)

        def cut(seed: int) -> np.ndarray:
            arguments = (whole, self.weights, self.num_parts, self.imbalance, seed)
            return partition_by_metis(*arguments, entry_weights=entry_weights)

        tries = _TRIES if self.graph.num_entries <= _FEW_ENTRIES else 1
        weighted = self.time("metis", lambda: [cut(self.seed + i) for i in range(tries)])

        def pick(*found: np.ndarray) -> np.ndarray:
            """The one that sends least in batches of which no net was made."""
            judge = lambda one: mean_batch_volume(sampler, one, _FRESH, _NUM_FRESH)  # noqa: E731
            return self.time("judging", lambda: min(found, key=judge))

        best = pick(*weighted, self.time("metis", self.run_metis))
        best = pick(best, self.cycle(nets, best, count_rows(nets, best, self.num_parts)))
        if not refine:
            return best
        search = {"message_price": 0.0, "peak_price": 0.0, "heat": 1.0, "sweeps": 6}
        best = pick(best, self.run_refine(nets, best, **search))
        rows = mean_batch_volume(sampler, best, _FRESH, _NUM_FRESH)
        self.notices.append(f"a batch of the {sampler.name} sampler sends {rows:,.1f} rows on average")
        return best
