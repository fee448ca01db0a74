"""Mt-KaHyPar, or KaHyPar where only that is installed, on nets: fewest rows sent (connectivity − 1)."""

from __future__ import annotations

import tempfile
from importlib import import_module
from typing import Any

import numpy as np

from shoal.kernels.csr import transpose_csr
from shoal.partitioning.nets import Nets

TOOLS = {"mtkahypar": "Mt-KaHyPar", "kahypar": "KaHyPar"}  # in order of preference
# pins · log2(parts) / 4 up to which the tool takes about a minute
MAX_PINS = {"mtkahypar": 600_000, "kahypar": 150_000}
# KaHyPar has no presets: direct k-way partitioning of communities, without flows and repeated cycles.
_KAHYPAR = """\
mode=direct
objective=km1
vcycles=0
p-detect-communities=true
p-louvain-edge-weight=hybrid
c-type=ml_style
c-s=1
c-t=160
c-rating-score=heavy_edge
c-rating-use-communities=true
c-rating-acceptance-criterion=best_prefer_unmatched
c-rating-heavy_node_penalty=no_penalty
c-fixed-vertex-acceptance-criterion=fixed_vertex_allowed
i-mode=recursive
i-technique=multi
i-algo=pool
i-runs=4
i-bp-algorithm=worst_fit
i-c-type=ml_style
i-c-s=1
i-c-t=150
i-c-rating-score=heavy_edge
i-c-rating-use-communities=true
i-c-rating-acceptance-criterion=best_prefer_unmatched
i-c-rating-heavy_node_penalty=no_penalty
i-c-fixed-vertex-acceptance-criterion=fixed_vertex_allowed
i-r-type=twoway_fm
i-r-runs=-1
i-r-fm-stop=simple
i-r-fm-stop-i=50
r-type=kway_fm_km1
r-runs=-1
r-fm-stop=adaptive_opt
r-fm-stop-alpha=1
r-fm-stop-i=350
"""

_started: dict[int, Any] = {}


def find_tool() -> str | None:
    """The name of the first tool that can be imported."""
    for name in TOOLS:
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    return None


def improve_partition(
    tool: str,
    nets: Nets,
    weights: np.ndarray,
    num_parts: int,
    imbalance: float,
    seed: int,
    threads: int,
    start: np.ndarray,
) -> np.ndarray:
    """Vertices in parts so that `Σ_j (λ_j − 1)` is small: a multilevel cycle on `start` (KaHyPar: from nothing).

    Nets with a single pin cost nothing in any partition and are left out.
    """
    indptr, pins, _ = transpose_csr(nets.indptr, nets.nets, nets.num_nets)
    wanted = np.flatnonzero(np.diff(indptr) > 1)
    lists = [pins[indptr[j] : indptr[j + 1]].tolist() for j in wanted]
    costs = nets.weight[wanted].tolist()
    imbalance, seed = max(imbalance, 1e-4), seed % 2**31
    if tool == "kahypar":
        return _run_kahypar(lists, costs, weights, num_parts, imbalance, seed)
    return _run_mtkahypar(lists, costs, weights, num_parts, imbalance, seed, threads, start)


def _run_mtkahypar(
    lists: list[list[int]],
    costs: list[int],
    weights: np.ndarray,
    num_parts: int,
    imbalance: float,
    seed: int,
    threads: int,
    start: np.ndarray,
) -> np.ndarray:
    """The deterministic preset: the others differ from run to run even with one thread."""
    import mtkahypar

    if not _started:  # its pool of threads is made once in a process
        _started[threads] = mtkahypar.initialize(threads)
    pool = next(iter(_started.values()))
    mtkahypar.set_seed(seed)
    context = pool.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(num_parts, imbalance, mtkahypar.Objective.KM1)
    context.logging = False
    hypergraph = pool.create_hypergraph(context, len(weights), len(lists), lists, weights.tolist(), costs)
    partitioned = hypergraph.create_partitioned_hypergraph(context, num_parts, start.tolist())
    partitioned.improve_partition(context, 1)
    return np.asarray(partitioned.get_partition(), np.int32)


def _run_kahypar(
    lists: list[list[int]],
    costs: list[int],
    weights: np.ndarray,
    num_parts: int,
    imbalance: float,
    seed: int,
) -> np.ndarray:
    """From nothing: its Python module takes no partition to start from, and one thread."""
    import kahypar

    context = kahypar.Context()
    with tempfile.NamedTemporaryFile("w", suffix=".ini") as file:
        file.write(_KAHYPAR)
        file.flush()
        context.loadINIconfiguration(file.name)
    context.setK(num_parts)
    context.setEpsilon(imbalance)
    context.setSeed(seed)
    context.suppressOutput(True)
    offsets = np.concatenate([[0], np.cumsum([len(pins) for pins in lists])])
    hypergraph = kahypar.Hypergraph(
        len(weights),
        len(lists),
        offsets.tolist(),
        [pin for pins in lists for pin in pins],
        num_parts,
        costs,
        weights.tolist(),
    )
    kahypar.partition(hypergraph, context)
    return np.array([hypergraph.blockID(v) for v in range(len(weights))], np.int32)
