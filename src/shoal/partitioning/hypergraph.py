"""Mt-KaHyPar on nets: fewest rows sent (connectivity − 1), deterministic in the seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.errors import missing_extra
from shoal.kernels.csr import transpose_csr
from shoal.partitioning.nets import Nets

_started: dict[int, Any] = {}


def find_mtkahypar() -> Any:
    """The module, or the error that names the extra."""
    try:
        import mtkahypar
    except ImportError:
        raise missing_extra("mtkahypar", "partition", "hypergraph partitioning") from None
    return mtkahypar


def partition_nets(
    nets: Nets,
    weights: np.ndarray,
    num_parts: int,
    imbalance: float,
    seed: int,
    threads: int,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """Vertices in parts so that `Σ_j (λ_j − 1)` is small; with `start`, one multilevel cycle on that partition.

    Nets with a single pin cost nothing in any partition and are left out. The deterministic preset is used: the
    others differ from run to run even with one thread.
    """
    mtkahypar = find_mtkahypar()
    indptr, pins, _ = transpose_csr(nets.indptr, nets.nets, nets.num_nets)
    wanted = np.flatnonzero(np.diff(indptr) > 1)
    lists = [pins[indptr[j] : indptr[j + 1]].tolist() for j in wanted]
    if not _started:  # its pool of threads is made once in a process
        _started[threads] = mtkahypar.initialize(threads)
    pool = next(iter(_started.values()))
    mtkahypar.set_seed(seed % 2**31)
    context = pool.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(num_parts, max(imbalance, 1e-4), mtkahypar.Objective.KM1)
    context.logging = False
    hypergraph = pool.create_hypergraph(
        context, len(weights), len(lists), lists, weights.tolist(), [1] * len(lists)
    )
    del lists
    if start is None:
        partitioned = hypergraph.partition(context)
    else:
        partitioned = hypergraph.create_partitioned_hypergraph(context, num_parts, start.tolist())
        partitioned.improve_partition(context, 1)
    return np.asarray(partitioned.get_partition(), np.int32)
