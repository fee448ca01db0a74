"""Testing how fast ranks compute, all at the same time: dense layers, and products with an adjacency."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from shoal.distributed.transport import Transport
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply
from shoal.models.layers import Layer
from shoal.models.mlp import Dense

_ROWS, _DEGREE, _WIDTH = 32768, 8, 128  # more rows than caches hold
_ROUNDS = 5


def probe_rates(transport: Transport) -> tuple[float, float]:
    """(dense, sparse): multiply-adds a second of the slowest rank while all compute.

    Dense: forward and backward of a layer with its ReLU, norm and dropout, counted as three products. Sparse: a random pattern.
    """
    transport.phase = "the test of computing"
    h = torch.rand(_ROWS, _WIDTH, requires_grad=True)
    layer, nodes = Layer(Dense(_WIDTH, _WIDTH), _WIDTH, "layer", 0.1), torch.arange(_ROWS)
    generator = np.random.default_rng(0)
    indptr = torch.arange(0, _ROWS * _DEGREE + 1, _DEGREE)
    indices = torch.from_numpy(generator.integers(0, _ROWS, _ROWS * _DEGREE, np.int32))
    pattern, out = Adjacency(indptr, indices, _ROWS), torch.empty(_ROWS, _WIDTH)
    dense = _time_all(transport, lambda: layer.finish(layer.linear(None, h), nodes, 1).sum().backward())
    sparse = _time_all(transport, lambda: multiply(pattern, h.detach(), out))
    return 3 * _ROWS * _WIDTH**2 / dense, _ROWS * _DEGREE * _WIDTH / sparse


def _time_all(transport: Transport, work: Callable[[], object]) -> float:
    """Seconds of the slowest rank, the median of some rounds after one that compiles."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        transport.barrier()
        started = time.perf_counter()
        work()
        seconds.append(float(transport.gather(np.array([time.perf_counter() - started])).max()))
    return statistics.median(seconds[1:])
