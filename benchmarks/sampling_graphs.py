"""Graphs that `bench_sampling.py` draws batches of."""

from __future__ import annotations

import numpy as np

import shoal
from shoal.kernels.build import build_csr


def make_skewed(scale: int, degree: int) -> shoal.Graph:
    graph = shoal.load("kronecker", scale=scale, degree=degree, num_features=0, seed=1)
    return shoal.Graph(graph.indptr, graph.indices, name=f"2^{scale} nodes, degree {degree}, skewed")


def make_even(scale: int, degree: int) -> shoal.Graph:
    """Random edges: a sample has the same size whatever the graph's, so only memory latency grows."""
    n = 1 << scale
    rng = np.random.default_rng(0)
    dtype = np.int32
    chunks = [
        (rng.integers(0, n, 1 << 22, dtype), rng.integers(0, n, 1 << 22, dtype))
        for _ in range(max(1, n * degree // 2 >> 22))
    ]
    indptr, indices, _ = build_csr(chunks, n, n, symmetrize=True)
    return shoal.Graph(indptr, indices, name=f"2^{scale} nodes")


def load_ppi() -> shoal.Graph:
    return shoal.load("ppi")
