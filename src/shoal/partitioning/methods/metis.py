"""The method `metis`: fewest edges between parts; and METIS itself, with the graph cleaned for it."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.build import build_csr
from shoal.kernels.csr import count_diagonal
from shoal.kernels.jit import kernel
from shoal.partitioning.work import PARTITION_METHODS, Work, traits

MAX_ENTRIES = 2**31 - 1

_one_at_a_time = threading.Lock()  # stdout is redirected for the whole process


@PARTITION_METHODS.named("metis")
@traits(
    entry_bytes=60,
    node_bytes=150,
    needs={"pymetis": "shoal[partition]"},
    max_entries=MAX_ENTRIES,
    preference=2,
)
def assign_by_metis(work: Work) -> np.ndarray:
    """METIS, fewest edges between parts; an arc and its reverse are an edge of weight 2."""
    return run_metis(work)


def run_metis(work: Work, *, volume: bool = False, seed: int | None = None) -> np.ndarray:
    """METIS with the settings of a call of partition_graph, its seed among them unless one is given."""
    seed = work.seed if seed is None else seed
    return partition_by_metis(work.graph, work.weights, work.num_parts, work.imbalance, seed, volume=volume)


def partition_by_metis(
    graph: Graph,
    weights: np.ndarray,
    num_parts: int,
    imbalance: float,
    seed: int,
    *,
    volume: bool = False,
    entry_weights: np.ndarray | None = None,
) -> np.ndarray:
    """The part of every node by METIS, few edges between parts (`volume`: few rows to send).

    METIS wants an undirected pattern without loops: arcs count as edges, an arc and its reverse as one edge of
    weight 2. `entry_weights` gives every entry of an undirected graph's pattern a weight instead.
    """
    import pymetis

    indptr, indices, arcs = clean_for_metis(graph)
    if entry_weights is not None:
        arcs = entry_weights
    if len(indices) > MAX_ENTRIES:
        raise ShoalError(
            f"the graph has {len(indices):,} entries and METIS takes {MAX_ENTRIES:,}: use method 'streaming'"
        )
    seed = (seed + 1) % 2**31 if seed else 0  # its generator draws the same for 0 and 1
    options = pymetis.Options(seed=seed, ufactor=max(1, int(imbalance * 1000)))
    if volume:
        options._set(pymetis.OptionKey.OBJTYPE, pymetis.ObjType.VOL)
    adjacency = pymetis.CSRAdjacency(indptr.astype(np.int32), indices.astype(np.int32, copy=False))
    settings = {
        "vweights": _shrink_weights(weights),
        "eweights": None if arcs is None or volume else arcs.astype(np.int32),
        "recursive": False,
        "options": options,
    }
    with _silence_output():
        _, parts = pymetis.part_graph(num_parts, adjacency=adjacency, **settings)
    return np.asarray(parts, np.int32)


@contextmanager
def _silence_output() -> Iterator[None]:
    """Drop the output of C code: with many parts METIS prints "Cannot bisect", and bisects in another way.

    METIS holds the GIL, so no other Python thread prints meanwhile.
    """
    flush = ctypes.CDLL(None).fflush
    with _one_at_a_time:
        sys.stdout.flush()
        flush(None)
        try:
            kept = os.dup(1)
        except OSError:  # a process without a standard output
            yield
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 1)
            yield
        finally:
            flush(None)
            os.dup2(kept, 1)
            os.close(kept)
            os.close(nowhere)


def _shrink_weights(weights: np.ndarray) -> np.ndarray:
    """The weights as METIS's 32-bit integers; scaled down if their sum would not fit, but at least 1."""
    factor = -(-int(weights.sum()) // (MAX_ENTRIES - len(weights)))
    return np.maximum(weights // max(factor, 1), 1).astype(np.int32)


def clean_for_metis(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """(indptr, indices, weights) without loops and with every reverse edge; weights are None if all are the same."""
    if not graph.directed and count_diagonal(graph.indptr, graph.indices) == 0:
        return graph.indptr, graph.indices, None
    rows = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.degree)
    keep = rows != graph.indices
    n = graph.num_nodes
    if not graph.directed:
        return *build_csr([(rows[keep], graph.indices[keep])], n, n)[:2], None
    indptr, indices, _ = build_csr([(rows[keep], graph.indices[keep])], n, n, symmetrize=True)
    arcs = np.ones(len(indices), np.int32)
    _count_arcs(graph.indptr, graph.indices, indptr, indices, arcs)
    return indptr, indices, arcs


@kernel
def _count_arcs(indptr, indices, both_indptr, both_indices, arcs):
    """2 where both directions are arcs of the directed pattern."""
    for v in range(len(indptr) - 1):
        for k in range(both_indptr[v], both_indptr[v + 1]):
            u = both_indices[k]
            row_v = indices[indptr[v] : indptr[v + 1]]
            row_u = indices[indptr[u] : indptr[u + 1]]
            at_u = np.searchsorted(row_v, u)
            at_v = np.searchsorted(row_u, v)
            there = at_u < len(row_v) and row_v[at_u] == u
            back = at_v < len(row_u) and row_u[at_v] == v
            arcs[k] = 2 if there and back else 1
