"""Measurements of a run for its report: a profiled step, memory, statistics of batches and graph, the machine."""

from __future__ import annotations

import os
import platform
import resource
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.analysis.subgraphs import Character, measure_samples
from shoal.files import parse_json
from shoal.graph import Graph
from shoal.memory import given_budget, memory_left
from shoal.runs.folder import MEASURED
from shoal.sampling.base import Sampler
from shoal.sampling.rows import RowSampler
from shoal.sampling.shard import RankSampler

if TYPE_CHECKING:
    from shoal.runs.run import Run

SAMPLES = 8  # batches that are measured
PAIRS = 10_000  # pairs of neighbours from which clustering is estimated: ± 0.005
MOST_ENTRIES = 50_000_000  # larger graphs are not measured
_NODE_BYTES = 48  # memory per node to measure a graph
_SHARES = (0.5, 0.9, 0.99)
_PACKAGES = ("shoal", "torch", "numpy", "numba")


def measure_run(run: Run) -> dict[str, Any]:
    """The measurements that rank 0 writes at the end of a run; all ranks call it. Those of an earlier start are kept.

    `profile`: see `StepProfile`; `peak`: peak memory of each rank in bytes, mapped files included; `samples`: statistics
    of the training graph and of some batches; `machine`: cores, system and versions.
    """
    run.transport.phase = "the memory of ranks"
    peaks = run.transport.gather(np.array([peak_memory()], np.int64))[:, 0].tolist()
    found: dict[str, Any] = {"peak": peaks}
    if not run.writes:
        return found
    earlier = _read_earlier(run)
    before = earlier.get("peak")
    if isinstance(before, list) and len(before) == len(peaks):  # a resumed run may hold less than it did
        found["peak"] = [max(now, one) if isinstance(one, int) else now for now, one in zip(peaks, before)]
    if run.trainer.profile.found is not None:
        found["profile"] = run.trainer.profile.found
    if (samples := _describe_samples(run)) is not None:
        found["samples"] = samples
    found["machine"] = describe_machine(run.transport.size, run.threads)
    return earlier | found


def peak_memory() -> int:
    """Peak memory of this process in bytes, pages of mapped files included."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def describe_machine(ranks: int, threads: int) -> dict[str, Any]:
    """Ranks, threads, cores, system and versions of a run, without the machine's name."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:  # not installed: run from its source
            continue
    return {
        "ranks": ranks,
        "threads": threads,
        "cores": os.cpu_count(),
        "processor": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        **versions,
    }


def _read_earlier(run: Run) -> dict[str, Any]:
    try:
        earlier = parse_json((run.folder / MEASURED).read_bytes())
    except (OSError, ValueError):
        return {}
    return earlier if isinstance(earlier, dict) else {}


def _describe_samples(run: Run) -> dict[str, Any] | None:
    """Statistics of batches and of the graph they are drawn from.

    None for full-batch training, and if the memory budget has no room. If measuring raises, a notice is printed and the
    run continues.
    """
    sampler: Sampler = run.trainer.sampler
    while isinstance(sampler, RankSampler):
        sampler = sampler.source
    is_drawn = run.config.draws and isinstance(sampler.graph, Graph) and not isinstance(sampler, RowSampler)
    if not is_drawn or sampler.graph.num_entries > MOST_ENTRIES:
        return None
    if given_budget() is not None and memory_left() < _NODE_BYTES * sampler.graph.num_nodes:
        return None
    try:
        found = measure_samples(sampler, min(SAMPLES, max(sampler.num_batches, 2)), PAIRS)
    except Exception as error:
        print(f"notice: batches were not measured ({type(error).__name__}: {error})", file=sys.stderr)
        return None
    return {
        "sampler": run.config.sampler.name,
        "batches": sampler.num_batches,
        "coverage": found.coverage,
        "graph": describe_character(found.full),
        "samples": [describe_character(one) for one in found.samples],
    }


def describe_character(one: Character) -> dict[str, Any]:
    """A graph's statistics; `degrees` are points (degree, share of nodes with at least that degree)."""
    levels, counts = np.unique(one.degrees, return_counts=True)
    at_least = counts[::-1].cumsum()[::-1] / max(one.num_nodes, 1)
    positive = np.flatnonzero(levels > 0)
    if len(positive) > 40:  # evenly on a logarithmic axis
        steps = np.geomspace(levels[positive[0]], levels[positive[-1]], 40)
        positive = np.unique(np.searchsorted(levels, steps).clip(positive[0], positive[-1]))
    return {
        "nodes": one.num_nodes,
        "edges": int(one.degrees.sum()),
        "mean_degree": one.mean_degree if one.num_nodes else 0.0,
        "quantiles": [one.quantile(share) for share in _SHARES] if one.num_nodes else [0.0] * len(_SHARES),
        "clustering": one.clustering,
        "assortativity": one.assortativity,
        "degrees": [[int(levels[i]), float(f"{at_least[i]:.5g}")] for i in positive],
    }
