"""Testing how fast ranks compute, all at the same time: dense layers, products with an adjacency, coding of messages."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from shoal.distributed.codec import CODECS
from shoal.distributed.transport import Transport
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply
from shoal.models.layers import Layer
from shoal.models.mlp import Dense

_ROWS, _WIDTH = 32768, 128
_SPARSE_ROWS, _ENTRIES = (1024, 4096, 16384, 65536), 1 << 19  # from what caches hold to more than they do
_CODED_ROWS = 4096
_ROUNDS = 5


def probe_rates(transport: Transport) -> dict[str, Any]:
    """The rates of a `Machine`: those of the slowest rank while all compute.

    Dense: forward and backward of a layer with its ReLU, norm and dropout, counted as three products. Sparse: random patterns over
    matrices of several sizes, since a product whose rows stay in a cache is several times as fast. Code: int8, written and read.
    """
    transport.phase = "the test of computing"
    h = torch.rand(_ROWS, _WIDTH, requires_grad=True)
    layer, nodes = Layer(Dense(_WIDTH, _WIDTH), _WIDTH, "layer", 0.1), torch.arange(_ROWS)
    dense = _time_all(transport, lambda: layer.finish(layer.linear(None, h), nodes, 1).sum().backward())
    sparse = [(4.0 * rows * _WIDTH, _probe_product(transport, rows)) for rows in _SPARSE_ROWS]
    return {
        "dense_rate": 3 * _ROWS * _WIDTH**2 / dense,
        "sparse_rate": sparse[-1][1],
        "sparse_rates": tuple(sparse),
        "code_rate": _probe_codec(transport),
    }


def _probe_product(transport: Transport, rows: int) -> float:
    """Multiply-adds a second of products that read a matrix of so many rows."""
    degree = _ENTRIES // rows
    indices = np.random.default_rng(0).integers(0, rows, _ENTRIES, np.int32)
    pattern = Adjacency(torch.arange(0, _ENTRIES + 1, degree), torch.from_numpy(indices), rows, checked=True)
    h, out = torch.rand(rows, _WIDTH), torch.empty(rows, _WIDTH)
    return _ENTRIES * _WIDTH / _time_all(transport, lambda: multiply(pattern, h, out))


def _probe_codec(transport: Transport) -> float:
    """Values a second that are written and read."""
    codec, rows, ids = CODECS["int8"], torch.rand(_CODED_ROWS, _WIDTH), np.arange(_CODED_ROWS)
    coded = torch.empty(_CODED_ROWS, codec.row_bytes(_WIDTH), dtype=torch.uint8)

    def work() -> None:
        codec.encode(rows, ids, 0, coded)
        codec.decode(coded, rows)

    return rows.numel() / _time_all(transport, work)


def _time_all(transport: Transport, work: Callable[[], object]) -> float:
    """Seconds of the slowest rank, the median of some rounds after one that compiles."""
    seconds = []
    for _ in range(_ROUNDS + 1):
        transport.barrier()
        started = time.perf_counter()
        work()
        seconds.append(float(transport.gather(np.array([time.perf_counter() - started])).max()))
    return statistics.median(seconds[1:])
