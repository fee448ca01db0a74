"""The methods of partition_graph: what each does in which order, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np

from shoal.checks import check_number
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.partitioning.hypergraph import MAX_PINS, TOOLS, find_tool, improve_partition
from shoal.partitioning.metis import partition_by_metis
from shoal.partitioning.nets import Nets, count_rows, count_spread, make_nets
from shoal.partitioning.refine import price_partition, refine_assignment
from shoal.partitioning.simple import partition_at_random, partition_in_blocks, partition_stream
from shoal.partitioning.stochastic import count_nets, mean_batch_volume, sample_nets, weigh_entries
from shoal.sampling.layered import LayeredSampler
from shoal.sampling.registry import make_sampler

_VOLUME_WORK = 500_000_000  # what METIS's volume objective does in one or two minutes
_TRIES, _FEW_ENTRIES = 8, 2_000_000  # METIS's partitions that `stochastic` chooses from, and up to which size
_FRESH, _NUM_FRESH = 1 << 40, 200  # batches that judge what `stochastic` found
_NEAR = 1.1  # a start that sends at most so many times the rows of the better one is searched too
_SLACK = 0.03  # more rows than before that the local search may send for a lower peak, never more than METIS


def weigh_nodes(graph: Graph, balance: str) -> np.ndarray:
    """What a node weighs: the entries of its row in A + I, or 1."""
    if balance == "nodes":
        return np.ones(graph.num_nodes, np.int64)
    return np.asarray(graph.degree, np.int64) + 1


class Work:
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

        def judge(*found: np.ndarray) -> list[tuple[float, np.ndarray]]:
            """Each with the rows it sends in batches of which no net was made."""
            rows = lambda one: mean_batch_volume(sampler, one, _FRESH, _NUM_FRESH)  # noqa: E731
            return self.time("judging", lambda: [(rows(one), one) for one in found])

        least = itemgetter(0)
        rows, best = min(judge(*weighted, self.time("metis", self.run_metis)), key=least)
        cycled = self.cycle(nets, best, count_rows(nets, best, self.num_parts))
        if cycled is not best:
            rows, best = min([(rows, best), *judge(cycled)], key=least)
        if not refine:
            return best
        search = {"message_price": 0.0, "peak_price": 0.0, "heat": 1.0, "sweeps": 6}
        rows, best = min([(rows, best), *judge(self.run_refine(nets, best, **search))], key=least)
        self.notices.append(f"a batch of the {sampler.name} sampler sends {rows:,.1f} rows on average")
        return best
