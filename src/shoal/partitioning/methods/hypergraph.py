"""The method `hypergraph`: fewest rows sent."""

from __future__ import annotations

import numpy as np

from shoal.partitioning.cycle import cycle
from shoal.partitioning.methods.metis import run_metis
from shoal.partitioning.nets import Nets, count_rows, count_spread, make_nets
from shoal.partitioning.refine import price_partition
from shoal.partitioning.work import PARTITION_METHODS, Work, traits

_VOLUME_WORK = 500_000_000  # what METIS's volume objective does in one or two minutes
_NEAR = 1.1  # a start that sends at most so many times the rows of the better one is searched too
_SLACK = 0.03  # more rows than before that the local search may send for a lower peak, never more than METIS


@PARTITION_METHODS.named("hypergraph")
@traits(
    entry_bytes=150,
    node_bytes=300,
    pair_bytes=4,
    needs={"pymetis": "shoal[partition]"},
    preference=1,
    refines=True,
)
def assign_by_hypergraph(work: Work) -> np.ndarray:
    """Fewest rows sent: METIS by cut and by volume, a multilevel cycle of Mt-KaHyPar on the better one, local search.

    Steps that would take many minutes are left out with a notice. The best of what is found is taken; no result
    sends more rows than either of METIS's partitions: those of the better one are the limit.
    """
    nets = make_nets(work.graph)
    starts = [work.time("metis", lambda: run_metis(work))]
    if _is_volume_cheap(work, nets, starts[0]):
        starts.append(work.time("metis-volume", lambda: run_metis(work, volume=True)))
    else:
        work.notices.append(
            f"left out METIS's volume objective, which would take many minutes at {work.graph.num_entries:,} entries in {work.num_parts:,} parts"
        )
    rows = [count_rows(nets, start, work.num_parts) for start in starts]
    limit = min(rows)
    best = cycle(work, nets, starts[rows.index(limit)], limit)
    if not work.refine:
        return best
    near = [s for s, r in zip(starts, rows) if limit < r <= _NEAR * limit]
    found = [work.search(nets, one, slack=_SLACK, max_rows=limit) for one in (best, *near)]
    kept = [one for one in found if count_rows(nets, one, work.num_parts) <= limit]
    judge = (work.weights, work.num_parts, work.max_weight, limit)
    chosen = min(kept, key=lambda one: price_partition(nets, one, *judge))
    heaviest = np.bincount(chosen, work.weights).max()
    if heaviest > max(work.max_weight, work.weights.max()):
        work.notices.append(
            f"a part weighs {heaviest:,.0f} where {work.max_weight:,.0f} are allowed: METIS left it so, and mending it would send more rows"
        )
    return chosen


def _is_volume_cheap(work: Work, nets: Nets, cut: np.ndarray) -> bool:
    """Whether METIS's volume objective takes a minute or two at most, from its partition `cut` by edges.

    It keeps the parts that every node touches: the time measured grows with Σ_j pins_j · λ_j, and faster where
    parts are many for the degree.
    """
    pins = np.bincount(nets.nets, minlength=nets.num_nets)
    touched = float((pins * count_spread(nets, cut, work.num_parts)).sum())
    touched *= 2 if work.graph.directed else 1  # METIS reads arcs both ways
    return touched * max(1.0, work.num_parts / pins.mean()) ** 0.5 <= _VOLUME_WORK
