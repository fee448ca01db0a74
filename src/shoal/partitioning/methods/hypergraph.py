"""The method `hypergraph`: fewest rows sent, with three levels of effort."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, NamedTuple

import numpy as np

from shoal.partitioning import costs
from shoal.partitioning.cycle import MtKaHyPar, has_mt_kahypar
from shoal.partitioning.methods.metis import MAX_ENTRIES, run_metis
from shoal.partitioning.methods.random import partition_at_random
from shoal.partitioning.nets import Nets, count_pins, count_rows, make_nets
from shoal.partitioning.refine import price_partition
from shoal.partitioning.work import EFFORTS, PARTITION_METHODS, Work, traits
from shoal.settings import Choices
from shoal.wording import count

_NEAR = 1.1  # starts that send at most this multiple of the best start's rows are searched too
_SLACK = 0.03  # share of rows that the local search may add for a lower peak, within the limit
_PEAK_PRICE = 10.0  # of a row above the peaks, where a part sends more than random's busiest
_FULLER = 0.05  # additional imbalance that is allowed in between then
_SWEEPS, _COOL, _FEW = 12, 3, 2  # of the local search: hot ones, those at its end, and the fewest hot ones


class Effort(NamedTuple):
    """The steps of an effort.

    Attributes:
        seeds: seeds of METIS.
        volume: whether METIS starts by volume too.
        presets: (preset, seed) of Mt-KaHyPar from scratch.
        cycles: cycles of Mt-KaHyPar on the best start, as long as they help.
        searches: starts that are searched locally.
        room: share of rows that may be added to the best start's, if a part would otherwise send more than the busiest part
            of a random partition.
        max_seconds: estimated CPU seconds above which a step is left out or shortened.
    """

    seeds: int
    volume: bool
    presets: tuple[tuple[str, int], ...]
    cycles: int
    searches: int
    room: float
    max_seconds: float


_FIRST = ("DETERMINISTIC", 0)
EFFORTS_MADE = dict(
    zip(
        EFFORTS,
        (
            Effort(1, False, (), 0, 1, 0.03, 60),
            Effort(1, True, (_FIRST,), 1, 2, 0.03, 180),
            Effort(3, True, (_FIRST, ("DETERMINISTIC_QUALITY", 0), ("DETERMINISTIC", 1)), 3, 3, 0, np.inf),
        ),
        strict=True,
    )
)


@PARTITION_METHODS.named("hypergraph")
@traits(
    entry_bytes=150,
    node_bytes=300,
    pair_bytes=4,
    needs={"pymetis": "shoal[partition]"},
    max_entries=MAX_ENTRIES,
    preference=1,
    refines=True,
)
def assign_by_hypergraph(
    work: Work,
    *,
    effort: Annotated[
        str,
        Choices(EFFORTS),
        "fast: METIS by cut; default: steps of up to a few minutes each; best: every start",
    ] = "default",
) -> np.ndarray:
    """Fewest rows sent: METIS by cut and by volume, Mt-KaHyPar from scratch and on the best, local search.

    The best result is returned. It sends no more rows than the best start; 3 % more are allowed if a part would otherwise
    send more than the busiest part of a random partition, and effort is not `best`. Steps that would take many minutes are
    left out with a notice, unless effort is `best`.
    """
    nets, tried = make_nets(work.graph), EFFORTS_MADE[effort]
    seconds = estimate_seconds(work, nets, tried, bool(tried.presets) and has_mt_kahypar(work))
    work.progress(f"effort {effort}: about {count(round(seconds), 'CPU second')}")
    return search_hypergraph(work, nets, tried)


def search_hypergraph(work: Work, nets: Nets, tried: Effort) -> np.ndarray:
    """The partition that an effort finds."""
    partitioner = MtKaHyPar(work, nets) if tried.presets and has_mt_kahypar(work) else None
    starts = _run_metis(work, nets, tried)
    if partitioner is not None:
        starts = _run_mt_kahypar(work, nets, tried, partitioner, starts)
    rows = [count_rows(nets, start, work.num_parts) for start in starts]
    order = sorted(range(len(starts)), key=rows.__getitem__)
    limit = rows[order[0]]
    if not work.refine:
        return starts[order[0]]
    near = [starts[i] for i in order if rows[i] <= _NEAR * limit][: tried.searches]
    sweeps = _count_sweeps(work, nets, tried)
    found = [work.search(nets, one, sweeps=sweeps, slack=_SLACK, max_rows=limit) for one in near]
    chosen = _choose(work, nets, [*found, starts[order[0]]], limit)
    return _lower_peak(work, nets, chosen, int((1 + tried.room) * limit), sweeps)


def estimate_seconds(work: Work, nets: Nets, tried: Effort, with_mt_kahypar: bool) -> float:
    """CPU seconds of an effort, from the pins and parts alone; steps that will be left out do not count."""
    num_pins, parts, directed = len(nets.nets), work.num_parts, work.graph.directed
    steps = [costs.estimate_cut(nets, parts, directed=directed)] * tried.seeds
    if tried.volume:
        steps += [costs.estimate_volume(nets, parts, directed=directed)] * tried.seeds
    if with_mt_kahypar:
        steps += [costs.estimate_anew(num_pins, parts, preset) for preset, _ in tried.presets]
        steps += [costs.estimate_cycle(num_pins, parts)] * tried.cycles
    search = costs.estimate_sweep(nets, parts) * (_count_sweeps(work, nets, tried) + _COOL)
    return sum(one for one in steps if one <= tried.max_seconds) + search * tried.searches * work.refine


def _count_sweeps(work: Work, nets: Nets, tried: Effort) -> int:
    """Hot sweeps of a local search: fewer where all of them would take too long."""
    sweep = costs.estimate_sweep(nets, work.num_parts)
    return int(np.clip(tried.max_seconds / 2 / sweep - _COOL, _FEW, _SWEEPS))


def _run_metis(work: Work, nets: Nets, tried: Effort) -> list[np.ndarray]:
    """METIS's partitions; those by volume only within the effort's time limit."""
    seeds = range(work.seed, work.seed + tried.seeds)
    starts: list[np.ndarray] = work.time("metis", lambda: [run_metis(work, seed=seed) for seed in seeds])
    if not tried.volume:
        return starts
    directed = work.graph.directed
    seconds = costs.estimate_volume(nets, work.num_parts, directed=directed, cut=starts[0])
    if _is_allowed(work, tried, "METIS's volume objective", seconds):
        starts += work.time(
            "metis-volume", lambda: [run_metis(work, volume=True, seed=seed) for seed in seeds]
        )
    return starts


def _run_mt_kahypar(
    work: Work, nets: Nets, tried: Effort, partitioner: MtKaHyPar, starts: list[np.ndarray]
) -> list[np.ndarray]:
    """`starts`, those of Mt-KaHyPar from scratch, and its cycles on the best of them all.

    Its results are dropped if their heaviest part exceeds both METIS's and the limit.
    """
    num_pins, parts = len(nets.nets), work.num_parts
    heaviest = max(work.max_weight, *(np.bincount(one, work.weights).max() for one in starts))
    starts = list(starts)
    for preset, seed in tried.presets:
        if _is_allowed(work, tried, "Mt-KaHyPar from scratch", costs.estimate_anew(num_pins, parts, preset)):
            found = partitioner.partition(preset, seed)
            if np.bincount(found, work.weights).max() <= heaviest:
                starts.append(found)
    if not _is_allowed(work, tried, "Mt-KaHyPar's cycle", costs.estimate_cycle(num_pins, parts)):
        return starts
    rows = [count_rows(nets, start, parts) for start in starts]
    best, least = starts[rows.index(min(rows))], min(rows)
    for number in range(tried.cycles):
        found = partitioner.improve(best, least, number)
        if found is best:
            break
        starts.append(found)
        best, least = found, count_rows(nets, found, parts)
    return starts


def _is_allowed(work: Work, tried: Effort, step: str, seconds: float) -> bool:
    """Whether a step is within the effort's time limit; adds a notice if it is not."""
    if seconds <= tried.max_seconds:
        return True
    work.notices.append(
        f"left out {step}, which would take about {count(round(seconds), 'CPU second')}: effort 'best' includes it"
    )
    return False


def _choose(work: Work, nets: Nets, found: list[np.ndarray], limit: int) -> np.ndarray:
    """Of the partitions that send at most `limit` rows, the best by balance, then by peak above random's, then by price."""
    peak = _find_random_peak(work, nets)

    def judge(one: np.ndarray) -> tuple[float, float, float]:
        arguments = (work.weights, work.num_parts, work.max_weight, limit)
        excess, price = price_partition(nets, one, *arguments)
        return excess, max(0, _find_peak(work, nets, one) - peak), price

    chosen = min((one for one in found if count_rows(nets, one, work.num_parts) <= limit), key=judge)
    note_heaviest(work, chosen)
    return chosen


def note_heaviest(work: Work, assignment: np.ndarray) -> None:
    """Add a notice if a part is heavier than allowed."""
    heaviest = np.bincount(assignment, work.weights).max()
    if heaviest > max(work.max_weight, work.weights.max()):
        work.notices.append(
            f"a part weighs {heaviest:,.0f} where {work.max_weight:,.0f} are allowed: METIS did not balance it, and balancing it would send more rows"
        )


def _lower_peak(work: Work, nets: Nets, chosen: np.ndarray, max_rows: int, sweeps: int) -> np.ndarray:
    """`chosen`, or a partition with a lower peak if a part of `chosen` sends more than random's busiest; at most `max_rows`.

    Hubs are heavy and full parts have no room for them. So a first search may overfill parts, and a second one restores
    the balance.
    """
    peak = _find_peak(work, nets, chosen)
    rows = count_rows(nets, chosen, work.num_parts)
    if peak <= _find_random_peak(work, nets) or rows >= max_rows:
        return chosen
    settings = {"sweeps": sweeps, "slack": _SLACK, "max_rows": max_rows, "peak_price": _PEAK_PRICE}
    half = {**settings, "max_rows": (rows + max_rows) // 2}
    fuller = replace(work, imbalance=work.imbalance + _FULLER).search(nets, chosen, **half)
    found = work.search(nets, fuller, **settings)
    sent = count_rows(nets, found, work.num_parts)
    before, after = (np.bincount(one, work.weights).max() for one in (chosen, found))
    is_balanced = after <= max(work.max_weight, before)
    if not is_balanced or sent > max_rows or _find_peak(work, nets, found) >= peak:
        return chosen
    if sent > rows:
        work.notices.append(
            f"{sent / rows - 1:.1%} more rows are sent, so that the busiest part sends {_find_peak(work, nets, found):,} instead of {peak:,}: effort 'best' sends the fewest"
        )
    return found


def _find_random_peak(work: Work, nets: Nets) -> int:
    return _find_peak(work, nets, partition_at_random(work.graph.num_nodes, work.num_parts, work.seed))


def _find_peak(work: Work, nets: Nets, assignment: np.ndarray) -> int:
    """Rows that the busiest part sends."""
    _, loads = count_pins(nets, assignment, work.weights, work.num_parts, with_messages=False)
    return int(loads.send.max())
