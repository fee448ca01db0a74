"""The method `cover`: fewest rows and sums sent by minimum covers, with as much effort as is asked for."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from shoal.partitioning import costs
from shoal.partitioning.cover_items import Entries, list_entries, make_items, mix_nets
from shoal.partitioning.cover_search import search_covers
from shoal.partitioning.cycle import cycle
from shoal.partitioning.methods.hypergraph import assign_by_hypergraph, note_heaviest
from shoal.partitioning.methods.metis import run_metis
from shoal.partitioning.nets import make_nets
from shoal.partitioning.work import EFFORTS, PARTITION_METHODS, Work, traits
from shoal.settings import Choices


class Effort(NamedTuple):
    """What is tried.

    Attributes:
        seeds: seeds of METIS by cut.
        volume: CPU seconds, as estimated, that METIS by volume may take, or four times those by cut.
        hypergraph: whether what `hypergraph` finds is a start too.
        cycle: CPU seconds, as estimated, that a cycle of Mt-KaHyPar may take.
        rounds: cycles, each with a local search after it, as long as they help; one search without them.
        sweeps: of a local search.
    """

    seeds: int
    volume: float
    hypergraph: bool
    cycle: float
    rounds: int
    sweeps: int


_EFFORTS = {
    "fast": Effort(1, 0.0, False, 0.0, 1, 12),
    "default": Effort(1, 2.0, False, 7.5, 2, 30),
    "best": Effort(4, np.inf, True, np.inf, 4, 100),
}


@PARTITION_METHODS.named("cover")
@traits(
    entry_bytes=200,
    node_bytes=400,
    pair_bytes=4,
    needs={"pymetis": "shoal[partition]"},
    preference=0,
    refines=True,
    for_covers=True,
)
def assign_by_cover(
    work: Work,
    *,
    effort: Annotated[
        str, Choices(EFFORTS), "METIS by cut and a short search, with short steps of others, or every start"
    ] = "default",
) -> np.ndarray:
    """Fewest rows and sums sent by minimum covers: METIS, Mt-KaHyPar on the mixed hypergraph of the covers, local search.

    The start with the least cover is improved in turns: a cycle of Mt-KaHyPar on its mixed hypergraph, then a local search that
    keeps covers while it moves nodes. What raises the cover is dropped. Steps are left out by pins and parts, not by the clock.
    """  # fmt: skip
    tried, entries = _EFFORTS[effort], list_entries(work.graph)
    best, least = _start(work, entries, tried)
    num_pins = len(entries.other) // 2 + work.graph.num_nodes
    with_cycles = costs.estimate_cycle(num_pins, work.num_parts) <= tried.cycle
    for number in range(tried.rounds if with_cycles else 1):
        before = least
        if with_cycles:
            found = _cycle(work, entries, best, least)
            best, least = min((best, least), (found, _count(work, entries, found)), key=lambda one: one[1])
        if not work.refine:
            break
        found = _search(work, entries, best, tried.sweeps, number)
        best, least = min((found, _count(work, entries, found)), (best, least), key=lambda one: one[1])
        if least >= before:
            break
    note_heaviest(work, best)
    return best


def _start(work: Work, entries: Entries, tried: Effort) -> tuple[np.ndarray, int]:
    """The start with the least cover, and its size."""
    seeds = range(work.seed, work.seed + tried.seeds)
    starts = work.time("metis", lambda: [run_metis(work, seed=seed) for seed in seeds])
    if tried.volume:
        nets, directed = make_nets(work.graph), work.graph.directed
        allowed = max(tried.volume, 4 * costs.estimate_cut(nets, work.num_parts, directed=directed))
        if costs.estimate_volume(nets, work.num_parts, directed=directed, cut=starts[0]) <= allowed:
            starts.append(work.time("metis-volume", lambda: run_metis(work, volume=True)))
        del nets
    if tried.hypergraph:
        starts.append(assign_by_hypergraph(work))
    sizes = [_count(work, entries, start) for start in starts]
    return starts[sizes.index(min(sizes))], min(sizes)


def _count(work: Work, entries: Entries, assignment: np.ndarray) -> int:
    """The size of the cover."""
    return int(make_items(entries, assignment, work.weights, work.num_parts).loads.send.sum())


def _cycle(work: Work, entries: Entries, best: np.ndarray, least: int) -> np.ndarray:
    """Mt-KaHyPar on the mixed hypergraph of the covers, whose `Σ (λ − 1)` is at least the cover of what it finds."""
    carrier = make_items(entries, best, work.weights, work.num_parts).carrier
    return cycle(work, mix_nets(entries, carrier, work.graph.num_nodes), best, least, max_seconds=np.inf)


def _search(work: Work, entries: Entries, start: np.ndarray, sweeps: int, number: int) -> np.ndarray:
    """The local search, hotter where nodes have many neighbours, cooler from time to time."""
    heat = min(1.0, 0.2 + work.graph.num_entries / work.graph.num_nodes / 20) / (1 + number)
    arguments = (entries, start, work.weights, work.num_parts, work.max_weight)
    seed = work.seed + number
    found: np.ndarray = work.time(
        "local search", lambda: search_covers(*arguments, sweeps=sweeps, seed=seed, heat=heat)
    )
    return found
