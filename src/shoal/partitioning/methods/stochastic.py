"""The method `stochastic`: fewest rows sent by sampled mini-batches."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any

import numpy as np

from shoal.errors import ShoalError
from shoal.partitioning.batch_nets import count_nets, mean_batch_volume, sample_nets, weigh_entries
from shoal.partitioning.cycle import cycle
from shoal.partitioning.methods.metis import MAX_ENTRIES, partition_by_metis, run_metis
from shoal.partitioning.nets import count_rows
from shoal.partitioning.work import PARTITION_METHODS, Work, traits
from shoal.sampling.base import Sampler, make_sampler
from shoal.sampling.layered import LayeredSampler
from shoal.settings import Range

_TRIES, _FEW_ENTRIES = 8, 2_000_000  # partitions by METIS to choose from, for graphs of up to so many entries
_FRESH, _NUM_FRESH = 1 << 40, 200  # first and number of the held-out batches that compare partitions
_SEARCH = {"message_price": 0.0, "peak_price": 0.0, "heat": 1.0, "sweeps": 6}


@PARTITION_METHODS.named("stochastic")
@traits(
    entry_bytes=1000,
    node_bytes=400,
    needs={"pymetis": "shoal[partition]"},
    max_entries=MAX_ENTRIES,
    refines=True,
)
def assign_for_batches(
    work: Work,
    *,
    sampler: Annotated[
        str | Sampler, "the sampler whose mini-batches are trained: its name, or a Sampler"
    ] = "node",
    theta: Annotated[
        float, Range(1e-6, 1e6), "largest error of the estimated mean spread; smaller needs more nets"
    ] = 0.1,
    delta: Annotated[float, Range(1e-9, 1), "probability of a larger error"] = 0.5,
    **settings: Any,
) -> np.ndarray:
    """Fewest rows sent by sampled mini-batches: METIS, a multilevel cycle and local search on nets of batches.

    `settings` are those of the sampler. Of the results of all steps, the one that sends the fewest rows in held-out
    batches is kept.
    """  # fmt: skip
    drawn_from = _make_sampler(work, sampler, settings)
    needed = count_nets(work.num_parts, theta, delta)
    nets, seen, drawn = work.time("sampling nets", lambda: sample_nets(drawn_from, needed))
    if drawn.sum() < needed:
        work.notices.append(f"stopped at {drawn.sum():,} nets: theta and delta ask for {needed:,}")
    whole, entry_weights = weigh_entries(work.graph, drawn_from, seen)

    def cut(seed: int) -> np.ndarray:
        arguments = (whole, work.weights, work.num_parts, work.imbalance, seed)
        return partition_by_metis(*arguments, entry_weights=entry_weights)

    tries = _TRIES if work.graph.num_entries <= _FEW_ENTRIES else 1
    weighted = work.time("metis", lambda: [cut(work.seed + i) for i in range(tries)])

    def judge(*found: np.ndarray) -> list[tuple[float, np.ndarray]]:
        """Each partition with the mean rows that it sends in held-out batches."""
        rows = lambda one: mean_batch_volume(drawn_from, one, _FRESH, _NUM_FRESH)  # noqa: E731
        judged: list[tuple[float, np.ndarray]] = work.time(
            "judging", lambda: [(rows(one), one) for one in found]
        )
        return judged

    least = itemgetter(0)
    rows, best = min(judge(*weighted, work.time("metis", lambda: run_metis(work))), key=least)
    cycled = cycle(work, nets, best, count_rows(nets, best, work.num_parts))
    if cycled is not best:
        rows, best = min([(rows, best), *judge(cycled)], key=least)
    if not work.refine:
        return best
    rows, best = min([(rows, best), *judge(work.search(nets, best, **_SEARCH))], key=least)
    work.notices.append(f"a batch of the {drawn_from.name} sampler sends {rows:,.1f} rows on average")
    return best


def _make_sampler(work: Work, sampler: str | Sampler, settings: dict[str, Any]) -> Sampler:
    """A sampler of subgraphs of the whole graph."""
    if isinstance(sampler, str):
        sampler = make_sampler(sampler, work.graph, seed=work.seed, **settings)
    elif settings:
        raise ShoalError(
            f"sampler is a Sampler, which takes no {next(iter(settings))!r}: leave it out, or give the sampler's name"
        )
    if isinstance(sampler, LayeredSampler):
        raise ShoalError(
            f"the {sampler.name} sampler draws a bipartite block for every layer and no subgraph: stochastic nets take a subgraph sampler, such as 'node' or 'random-walk'"
        )
    if sampler.graph is not work.graph:
        raise ShoalError("the sampler draws from another graph: give one of the whole graph (transductive)")
    return sampler
