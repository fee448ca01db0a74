"""Norms: inclusion probabilities of nodes and edges, and the factors that make batches unbiased estimates.

With p_v and p_uv the probabilities that a batch holds node v and entry (v, u), and T training nodes:

    edge_norm(v, u) = p_v / p_uv      E[ Σ_u edge_norm·a_vu·h_u | v drawn ] = Σ_u a_vu·h_u
    node_norm(v)    = 1 / (T · p_v)   E[ Σ_v node_norm·loss_v ] = (1/T) Σ_v loss_v

If the sampler knows p_v and p_uv, they are used. Otherwise they are estimated from the counts C_v and C_uv in N batches,
which are drawn before training and have numbers that training never reaches. C_v / C_uv overestimates p_v / p_uv (Jensen),
so the factors are

    edge_norm(v, u) = (C_v + 1) / (C_uv + 1)      node_norm(v) = (N + 1) / (T · (C_v + 1))

Given C_v, C_uv is Binomial(C_v, q) with q = p_uv / p_v, and then E[(C_v + 1) / (C_uv + 1)] = (1 - (1 - q)^(C_v + 1)) / q:
too small by the probability that C_v + 1 batches with v all miss u, which falls exponentially in the count. The same holds
for the loss with p_v and N. No function of binomial counts estimates 1 / q without bias: its mean is a polynomial in q.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.errors import ShoalError
from shoal.files import flush_tree
from shoal.home import home_folder
from shoal.kernels.jit import kernel
from shoal.lock import building
from shoal.threads import available_cores

if TYPE_CHECKING:
    from shoal.sampling.base import Sampler

FIRST_COUNTED_BATCH = 1 << 48
_FORMAT = 2
_NAMED = 5
_MOST_MISSED = 0.02  # share of entries never counted, by which aggregation is too small
Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Norms:
    """The factors of a sampler's batches.

    Attributes:
        node_norm: factor on every node's loss, float32 (num_nodes,).
        edge_norm: factor on every entry's weight, float32 (num_entries,).
        num_batches: batches counted; 0 if the probabilities are exact.
        notices: nodes that were never drawn, named.
    """

    node_norm: np.ndarray
    edge_norm: np.ndarray
    num_batches: int
    notices: tuple[str, ...] = ()


def make_norms(
    sampler: Sampler,
    coverage: int,
    *,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> Norms:
    """The norms of a sampler: exact if it has a closed form, else from counts, which are cached."""
    exact = sampler.inclusion_probabilities()
    if exact is not None:
        return norms_from_probabilities(sampler, *exact)
    num_batches = int(np.ceil(coverage * sampler.graph.num_nodes / sampler.batch_size))
    folder = cache_folder() / cache_key(sampler, num_batches)
    counts = _read_counts(folder)
    if counts is None:
        counts = count_batches(sampler, num_batches, num_threads=num_threads, progress=progress)
        _write_counts(folder, counts, sampler, num_batches)
    return norms_from_counts(sampler, *counts, num_batches)


def norms_from_probabilities(sampler: Sampler, p_node: np.ndarray, p_entry: np.ndarray) -> Norms:
    """The factors of known inclusion probabilities (num_nodes,) and (num_entries,)."""
    rows = np.repeat(np.arange(sampler.graph.num_nodes), sampler.graph.degree)
    never = np.flatnonzero(p_node <= 0)
    tiny = np.finfo(np.float32).tiny
    edge_norm = p_node[rows] / np.maximum(p_entry, tiny)
    norms = _finish_norms(sampler, np.maximum(p_node, tiny), np.where(p_entry > 0, edge_norm, 1), never, 0)
    lost = int(np.count_nonzero(p_entry <= 0))
    if lost:
        said = f"{lost:,} of {len(p_entry):,} entries are never drawn by this sampler: aggregation misses their share"
        norms = replace(norms, notices=(*norms.notices, said))
    return norms


def norms_from_counts(
    sampler: Sampler, node_counts: np.ndarray, entry_counts: np.ndarray, num_batches: int
) -> Norms:
    """The factors estimated from counts, (C_v + 1) / (C_uv + 1) and (N + 1) / (T · (C_v + 1))."""
    p_node = (node_counts + 1.0) / (num_batches + 1)
    edge_norm = np.repeat(node_counts + 1.0, sampler.graph.degree) / (entry_counts + 1.0)
    norms = _finish_norms(sampler, p_node, edge_norm, np.flatnonzero(node_counts == 0), num_batches)
    missed = 1 - np.count_nonzero(entry_counts) / max(len(entry_counts), 1)
    if missed > _MOST_MISSED:
        said = f"{missed:.0%} of entries were never drawn in {num_batches:,} batches: aggregation is about that much too small; raise coverage"
        norms = replace(norms, notices=(*norms.notices, said))
    return norms


def _finish_norms(
    sampler: Sampler, p_node: np.ndarray, edge_norm: np.ndarray, never: np.ndarray, num_batches: int
) -> Norms:
    graph = sampler.graph
    num_training = graph.num_nodes if graph.train_mask is None else int(graph.train_mask.sum())
    notices: tuple[str, ...] = ()
    if len(never):
        named = ", ".join(str(v) for v in graph.global_ids(never[:_NAMED]))
        more = ", …" if len(never) > _NAMED else ""
        drawn = f"in {num_batches:,} batches" if num_batches else "by this sampler"
        notices = (f"{len(never):,} of {graph.num_nodes:,} nodes were never drawn {drawn}: {named}{more}",)
    return Norms(
        (1 / (num_training * p_node)).astype(np.float32), edge_norm.astype(np.float32), num_batches, notices
    )


def count_batches(
    sampler: Sampler,
    num_batches: int,
    *,
    num_threads: int | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """C_v (num_nodes,) and C_uv (num_entries,) over `num_batches` batches, int32.

    The result does not depend on the number of threads. `progress(done, total, seconds_left)` is called after each batch.
    """
    node_counts = np.zeros(sampler.graph.num_nodes, np.int32)
    entry_counts = np.zeros(sampler.graph.num_entries, np.int32)
    lock = threading.Lock()
    started = time.perf_counter()

    def count(k: int) -> None:
        nodes = sampler.draw_nodes(k)
        entries = sampler.extract_drawn(nodes, with_entries=True)[2]
        with lock:
            _add_ones(node_counts, nodes)
            _add_ones(entry_counts, entries)

    with ThreadPoolExecutor(num_threads or available_cores(), "shoal-norms") as pool:
        jobs = [pool.submit(count, FIRST_COUNTED_BATCH + k) for k in range(num_batches)]
        try:
            for done, job in enumerate(as_completed(jobs), 1):
                job.result()
                if progress is not None:
                    left = (time.perf_counter() - started) / done * (num_batches - done)
                    progress(done, num_batches, left)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return node_counts, entry_counts


@kernel
def _add_ones(counts, places):
    for i in range(len(places)):
        counts[np.uint64(places[i])] += 1


# -- the cache: one folder per (graph, sampler settings, seed) ---------------------------------------------


def cache_folder() -> Path:
    """`norms` in Shoal's home."""
    return home_folder() / "norms"


def cache_key(sampler: Sampler, num_batches: int) -> str:
    """Identifies the counts: topology and split, sampler, all its settings and seed, number of batches."""
    described = json.dumps(_describe(sampler, num_batches), sort_keys=True, default=int)
    return hashlib.sha256(described.encode()).hexdigest()[:32]


def _describe(sampler: Sampler, num_batches: int) -> dict[str, Any]:
    settings = {name: value for name, value in sampler.settings.items() if name != "coverage"}
    for name, value in settings.items():
        if isinstance(value, np.ndarray):
            settings[name] = hashlib.sha256(np.ascontiguousarray(value).data).hexdigest()
    return {
        "format": _FORMAT,
        "graph": sampler.graph.checksum,
        "sampler": sampler.name,
        "settings": settings,
        "num_batches": num_batches,
    }


def _read_counts(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    if not (folder / "meta.json").is_file():
        return None
    try:
        nodes = np.load(folder / "nodes.npy", allow_pickle=False)
        entries = np.load(folder / "entries.npy", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ShoalError(f"{folder} holds a damaged normalisation ({error}): delete the folder") from None
    return nodes, entries


def _write_counts(
    folder: Path, counts: tuple[np.ndarray, np.ndarray], sampler: Sampler, num_batches: int
) -> None:
    """Write the counts to the cache: under another name, then renamed. On a full disk nothing is cached."""
    with suppress(OSError, ShoalError), building(folder, wait=True) as scratch:
        fresh = scratch / "new"
        fresh.mkdir()
        for name, array in zip(("nodes.npy", "entries.npy"), counts):
            np.save(fresh / name, array, allow_pickle=False)
        (fresh / "meta.json").write_text(json.dumps(_describe(sampler, num_batches), indent=1, default=int))
        flush_tree(fresh)
        fresh.rename(folder)
