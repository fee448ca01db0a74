"""Mt-KaHyPar on nets: a multilevel cycle on a partition, for fewer rows sent (connectivity − 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.kernels.csr import transpose_csr
from shoal.partitioning.nets import Nets, count_rows
from shoal.partitioning.work import Work

MAX_PINS = 600_000  # pins · log2(parts) / 4 up to which it takes about a minute

_started: list[Any] = []  # its pool of threads, made once in a process


def cycle(work: Work, nets: Nets, best: np.ndarray, rows: int) -> np.ndarray:
    """`best`, which sends `rows`, or what Mt-KaHyPar makes of it where that sends less."""
    try:
        import mtkahypar  # noqa: F401
    except ImportError:
        work.notices.append(
            "no hypergraph partitioner is installed, only METIS and the local search were used: pip install 'shoal[partition]' brings Mt-KaHyPar"
        )
        return best
    if len(nets.nets) * np.log2(work.num_parts) / 4 > MAX_PINS:
        work.notices.append(
            f"left out Mt-KaHyPar: {len(nets.nets):,} pins in {work.num_parts:,} parts would take it many minutes"
        )
        return best
    cycled = work.time("Mt-KaHyPar", lambda: _improve(work, nets, best))
    heaviest = max(work.max_weight, np.bincount(best, work.weights).max())
    fits = np.bincount(cycled, work.weights).max() <= heaviest
    return cycled if fits and count_rows(nets, cycled, work.num_parts) < rows else best


def _improve(work: Work, nets: Nets, start: np.ndarray) -> np.ndarray:
    """One cycle of the deterministic preset: the others differ from run to run even with one thread.

    Nets with a single pin cost nothing in any partition and are left out.
    """
    import mtkahypar

    indptr, pins, _ = transpose_csr(nets.indptr, nets.nets, nets.num_nets)
    wanted = np.flatnonzero(np.diff(indptr) > 1)
    lists = [pins[indptr[j] : indptr[j + 1]].tolist() for j in wanted]
    costs = nets.weight[wanted].tolist()
    if not _started:
        _started.append(mtkahypar.initialize(work.threads))
    mtkahypar.set_seed(work.seed % 2**31)
    context = _started[0].context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(work.num_parts, max(work.imbalance, 1e-4), mtkahypar.Objective.KM1)
    context.logging = False
    weights = work.weights.tolist()
    hypergraph = _started[0].create_hypergraph(context, len(weights), len(lists), lists, weights, costs)
    partitioned = hypergraph.create_partitioned_hypergraph(context, work.num_parts, start.tolist())
    partitioned.improve_partition(context, 1)
    return np.asarray(partitioned.get_partition(), np.int32)
