"""The method `cover`: fewest rows and sums sent by minimum covers, with three levels of effort."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from shoal.partitioning import costs
from shoal.partitioning.cover_items import Entries, list_entries, make_items, mix_nets
from shoal.partitioning.cover_search import search_covers
from shoal.partitioning.cycle import MtKaHyPar, cycle, has_mt_kahypar
from shoal.partitioning.methods import hypergraph
from shoal.partitioning.methods.kaminpar import has_kaminpar, run_kaminpar
from shoal.partitioning.methods.metis import MAX_ENTRIES, run_metis
from shoal.partitioning.nets import Nets, make_nets
from shoal.partitioning.work import EFFORTS, PARTITION_METHODS, Work, traits
from shoal.settings import Choices
from shoal.wording import count


class Effort(NamedTuple):
    """The steps of an effort. Seconds are estimated CPU seconds.

    Attributes:
        seeds: seeds of METIS by cut and of KaMinPar; all but the first only if they take up to `short` seconds each.
        short: seconds up to which a start or a cycle is always made; METIS by volume also up to four times METIS by cut.
        others: whether the results of the default effort and of `hypergraph` are starts too.
        anew: whether Mt-KaHyPar from scratch is a start.
        volumes: how many times the seconds of METIS by volume a cycle of Mt-KaHyPar may take.
        rounds: cycles, each followed by a local search, as long as they help; one if a cycle is not short.
        sweeps: of a local search, fewer where they would take longer than `search` seconds.
        searches: starts that are improved, those with the least covers.
    """

    seeds: int
    short: float
    others: bool
    anew: bool
    volumes: float
    rounds: int
    sweeps: int
    search: float
    searches: int


_EFFORTS = dict(
    zip(
        EFFORTS,
        (
            Effort(1, 0.0, False, False, 0.0, 1, 12, 30, 1),
            Effort(2, 3.0, False, False, 2.0, 2, 30, 90, 1),
            Effort(4, np.inf, True, True, np.inf, 4, 100, np.inf, 3),
        ),
        strict=True,
    )
)
_CYCLES = 2.5  # a cycle is short up to this multiple of a short start's seconds
_FEW = 4  # the fewest sweeps of a search


@PARTITION_METHODS.named("cover")
@traits(
    entry_bytes=200,
    node_bytes=400,
    pair_bytes=4,
    needs={"pymetis": "shoal[partition]"},
    max_entries=MAX_ENTRIES,
    preference=0,
    refines=True,
    for_covers=True,
)
def assign_by_cover(
    work: Work,
    *,
    effort: Annotated[
        str,
        Choices(EFFORTS),
        "fast: METIS by cut and a short search; default: more starts with short steps; best: every start",
    ] = "default",
) -> np.ndarray:
    """Fewest rows and sums sent by minimum covers: METIS, Mt-KaHyPar on the mixed hypergraph of the covers, local search.

    The start with the least cover (effort `best`: each of three) is improved in turns, by a cycle of Mt-KaHyPar on its mixed
    hypergraph and by a local search that updates covers as it moves nodes. Results with a larger cover are dropped. Which
    steps are left out depends on pins and parts, not on the clock.
    """  # fmt: skip
    tried = _EFFORTS[effort]
    best = _search_starts(work, *_begin(work, effort), tried.searches)
    hypergraph.note_heaviest(work, best)
    return best


def _begin(work: Work, effort: str) -> tuple[Entries, list[np.ndarray], tuple[int, int]]:
    """Entries, starts, and the limits of cycles and sweeps; the nets are freed on return."""
    tried, nets = _EFFORTS[effort], make_nets(work.graph)
    work.progress(f"effort {effort}: about {count(round(estimate_seconds(work, nets, tried)), 'CPU second')}")
    entries = list_entries(work.graph)
    return entries, *_start_within(work, nets, entries, tried)


def _start_within(
    work: Work, nets: Nets, entries: Entries, tried: Effort
) -> tuple[list[np.ndarray], tuple[int, int]]:
    """Starts, and how many cycles and sweeps improve each."""
    starts, volume = _start(work, nets, entries, tried)
    return starts, (_count_cycles(work, tried, volume), _count_sweeps(work, nets, tried))


def _search_starts(
    work: Work, entries: Entries, starts: list[np.ndarray], limits: tuple[int, int], searches: int
) -> np.ndarray:
    """Improve the starts with the least covers; returns the best result."""
    sizes = [_count(work, entries, start) for start in starts]
    order = sorted(range(len(starts)), key=sizes.__getitem__)[:searches]
    found = [_improve(work, entries, starts[i], sizes[i], *limits) for i in order]
    return min(found, key=lambda one: one[1])[0]


def _improve(
    work: Work, entries: Entries, best: np.ndarray, least: int, rounds: int, sweeps: int
) -> tuple[np.ndarray, int]:
    """Improve a partition with a cover of `least` by cycles and searches, as long as they help; returns it and its cover."""
    for number in range(max(rounds, 1)):
        before = least
        if rounds:
            found = _cycle(work, entries, best, least)
            best, least = min((best, least), (found, _count(work, entries, found)), key=lambda one: one[1])
        if not work.refine:
            break
        found = _search(work, entries, best, sweeps, number)
        best, least = min((found, _count(work, entries, found)), (best, least), key=lambda one: one[1])
        if least >= before:
            break
    return best, least


def estimate_seconds(work: Work, nets: Nets, tried: Effort) -> float:
    """CPU seconds of an effort, from the pins and parts alone."""
    cut, volume = _estimate_metis(work, nets)
    rounds = _count_cycles(work, tried, volume)
    seeds = tried.seeds if cut <= tried.short else 1
    steps = [cut * seeds * (2 if tried.short > 0 and has_kaminpar() else 1)]  # KaMinPar takes about as long
    steps += [volume * _is_volume_made(tried, cut, volume)]
    steps += [costs.estimate_cycle(_count_pins(work), work.num_parts) * rounds * tried.searches]
    if tried.anew:
        steps += [costs.estimate_anew(_count_pins(work), work.num_parts, "DETERMINISTIC")]
    if tried.others:
        steps += [hypergraph.estimate_seconds(work, nets, hypergraph.EFFORTS_MADE["default"], True)]
        steps += [estimate_seconds(work, nets, _EFFORTS["default"])]
    sweeps = _count_sweeps(work, nets, tried) * costs.estimate_sweep(nets, work.num_parts)
    return sum(steps) + sweeps * max(rounds, 1) * tried.searches * work.refine


def _estimate_metis(work: Work, nets: Nets, cut: np.ndarray | None = None) -> tuple[float, float]:
    """Seconds of METIS by cut and by volume."""
    directed = work.graph.directed
    seconds = costs.estimate_cut(nets, work.num_parts, directed=directed)
    return seconds, costs.estimate_volume(nets, work.num_parts, directed=directed, cut=cut)


def _is_volume_made(tried: Effort, cut: float, volume: float) -> bool:
    return tried.short > 0 and volume <= max(tried.short, 4 * cut)


def _count_pins(work: Work) -> int:
    """Pins of the mixed hypergraph."""
    n, entries = work.graph.num_nodes, work.graph.num_entries
    return entries + 2 * n if work.graph.directed else entries // 2 + n


def _count_cycles(work: Work, tried: Effort, volume: float) -> int:
    """Most cycles of Mt-KaHyPar: all if one is short, one if METIS by volume takes long too, otherwise none."""
    seconds = costs.estimate_cycle(_count_pins(work), work.num_parts)
    if seconds <= _CYCLES * tried.short:
        return tried.rounds
    return int(seconds <= tried.volumes * volume)


def _count_sweeps(work: Work, nets: Nets, tried: Effort) -> int:
    """Sweeps of a local search: fewer where all of them would take too long."""
    return int(np.clip(tried.search / costs.estimate_sweep(nets, work.num_parts), _FEW, tried.sweeps))


def _start(work: Work, nets: Nets, entries: Entries, tried: Effort) -> tuple[list[np.ndarray], float]:
    """Partitions to start from, and the seconds that METIS by volume takes or would take.

    Starts by others are dropped if their heaviest part exceeds both METIS's and the limit.
    """
    starts = [work.time("metis", lambda: run_metis(work))]
    cut, volume = _estimate_metis(work, nets, starts[0])
    seeds = [work.seed + i for i in range(tried.seeds if cut <= tried.short else 1)]
    starts += work.time("metis", lambda: [run_metis(work, seed=seed) for seed in seeds[1:]])
    if _is_volume_made(tried, cut, volume):
        starts.append(work.time("metis-volume", lambda: run_metis(work, volume=True)))
    others: list[np.ndarray] = []
    if tried.short > 0 and has_kaminpar():
        others += work.time("KaMinPar", lambda: [run_kaminpar(work, "default", seed) for seed in seeds])
    if tried.anew and has_mt_kahypar(work):
        nothing = np.full(len(entries.number), -1, np.int64)
        others.append(MtKaHyPar(work, mix_nets(entries, nothing, work.graph.num_nodes)).partition())
    heaviest = max(work.max_weight, *(_weigh_heaviest(work, one) for one in starts))
    starts += [one for one in others if _weigh_heaviest(work, one) <= heaviest]
    if tried.others:
        plain = _EFFORTS["default"]
        starts.append(
            _search_starts(work, entries, *_start_within(work, nets, entries, plain), plain.searches)
        )
        starts.append(hypergraph.search_hypergraph(work, nets, hypergraph.EFFORTS_MADE["default"]))
    return starts, volume


def _weigh_heaviest(work: Work, assignment: np.ndarray) -> float:
    return float(np.bincount(assignment, work.weights).max())


def _count(work: Work, entries: Entries, assignment: np.ndarray) -> int:
    """The size of the cover."""
    return int(make_items(entries, assignment, work.weights, work.num_parts).loads.send.sum())


def _cycle(work: Work, entries: Entries, best: np.ndarray, least: int) -> np.ndarray:
    """Mt-KaHyPar on the mixed hypergraph of the covers, whose `Σ (λ − 1)` is at least the cover of its result."""
    carrier = make_items(entries, best, work.weights, work.num_parts).carrier
    return cycle(work, mix_nets(entries, carrier, work.graph.num_nodes), best, least, max_seconds=np.inf)


def _search(work: Work, entries: Entries, start: np.ndarray, sweeps: int, number: int) -> np.ndarray:
    """The local search; its temperature rises with the mean degree and falls with every round."""
    heat = min(1.0, 0.2 + work.graph.num_entries / work.graph.num_nodes / 20) / (1 + number)
    arguments = (entries, start, work.weights, work.num_parts, work.max_weight)
    seed = work.seed + number
    found: np.ndarray = work.time(
        "local search", lambda: search_covers(*arguments, sweeps=sweeps, seed=seed, heat=heat)
    )
    return found
