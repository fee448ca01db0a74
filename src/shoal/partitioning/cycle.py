"""Mt-KaHyPar on nets: from scratch, or a multilevel cycle on a partition, for fewer rows sent (connectivity − 1)."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from shoal.kernels.csr import transpose_csr
from shoal.partitioning.costs import estimate_cycle
from shoal.partitioning.nets import Nets, count_rows
from shoal.partitioning.work import Work

MAX_SECONDS = 180  # estimated CPU seconds up to which a cycle is run

_started: list[Any] = []  # Mt-KaHyPar's pool of threads, made once in a process


def has_mt_kahypar(work: Work) -> bool:
    """Whether Mt-KaHyPar is installed; adds a notice if it is not."""
    try:
        import mtkahypar  # noqa: F401
    except ImportError:
        notice = "no hypergraph partitioner is installed, only METIS and the local search were used: pip install 'shoal[partition]' brings Mt-KaHyPar"
        if notice not in work.notices:
            work.notices.append(notice)
        return False
    return True


def cycle(
    work: Work, nets: Nets, best: np.ndarray, rows: int, *, max_seconds: float = MAX_SECONDS
) -> np.ndarray:
    """`best`, which sends `rows`, or the result of a cycle of Mt-KaHyPar on it if that sends less."""
    if not has_mt_kahypar(work):
        return best
    seconds = estimate_cycle(len(nets.nets), work.num_parts)
    if seconds > max_seconds:
        work.notices.append(
            f"left out Mt-KaHyPar's cycle: {len(nets.nets):,} pins in {work.num_parts:,} parts would take it about {seconds:,.0f} CPU seconds"
        )
        return best
    return MtKaHyPar(work, nets).improve(best, rows)


class MtKaHyPar:
    """Mt-KaHyPar for one call of partition_graph, with its deterministic presets.

    Results of the other presets differ from run to run even with one thread. Nets with a single pin cost nothing in any
    partition and are left out.
    """

    def __init__(self, work: Work, nets: Nets) -> None:
        self.work, self.nets = work, nets

    @cached_property
    def _pins(self) -> tuple[list[list[int]], list[int]]:
        """The pins and the weight of every net with two pins or more, as lists; made at first use."""
        indptr, pins, _ = transpose_csr(self.nets.indptr, self.nets.nets, self.nets.num_nets)
        wanted = np.flatnonzero(np.diff(indptr) > 1)
        return [pins[indptr[j] : indptr[j + 1]].tolist() for j in wanted], self.nets.weight[wanted].tolist()

    def partition(self, preset: str = "DETERMINISTIC", seed: int = 0) -> np.ndarray:
        """A partition from scratch."""
        made, context = self._make(preset, seed)
        found = self.work.time("Mt-KaHyPar", lambda: made.partition(context).get_partition())
        return np.asarray(found, np.int32)

    def improve(self, start: np.ndarray, rows: int, seed: int = 0) -> np.ndarray:
        """`start`, which sends `rows`, or the result of one cycle on it if that sends less and is as balanced."""
        made, context = self._make("DETERMINISTIC", seed)

        def run() -> list[int]:
            partitioned = made.create_partitioned_hypergraph(context, self.work.num_parts, start.tolist())
            partitioned.improve_partition(context, 1)
            parts: list[int] = partitioned.get_partition()
            return parts

        found = np.asarray(self.work.time("Mt-KaHyPar's cycle", run), np.int32)
        heaviest = max(self.work.max_weight, np.bincount(start, self.work.weights).max())
        fits = np.bincount(found, self.work.weights).max() <= heaviest
        return found if fits and count_rows(self.nets, found, self.work.num_parts) < rows else start

    def _make(self, preset: str, seed: int) -> tuple[Any, Any]:
        """(hypergraph, context) of a preset."""
        import mtkahypar

        work = self.work
        if not _started:
            _started.append(mtkahypar.initialize(work.threads))
        mtkahypar.set_seed((work.seed + seed) % 2**31)
        context = _started[0].context_from_preset(getattr(mtkahypar.PresetType, preset))
        context.set_partitioning_parameters(
            work.num_parts, max(work.imbalance, 1e-4), mtkahypar.Objective.KM1
        )
        context.logging = False
        weights = work.weights.tolist()
        sizes = (len(weights), len(self._pins[0]))
        return _started[0].create_hypergraph(context, *sizes, self._pins[0], weights, self._pins[1]), context
