"""Compute rates of ranks, measured on all at the same time: dense layers, sparse products, message encoding, small steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from shoal.distributed.codec import CODECS
from shoal.distributed.transport import LocalTransport, Transport
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.models.mlp import Dense
from shoal.training.trainer import Trainer

_ROWS, _WIDTH = 32768, 128
_SPARSE_ROWS, _ENTRIES = (
    (1024, 4096, 16384, 65536),
    1 << 19,
)  # from operands that fit in caches to ones that do not
_CODED_ROWS = 4096
_FEW_ROWS, _LAYERS = 32, 3  # of a step whose products take almost no time
_ROUNDS, _MIN_SECONDS, _MOST = 5, 0.05, 50  # of a test: least rounds, seconds to reach, most rounds


def probe_rates(transport: Transport) -> dict[str, Any]:
    """The rates of a `Machine`: those of the slowest rank while all compute, as means over rounds.

    - dense: forward and backward of a layer with its ReLU, norm and dropout, counted as three products.
    - sparse: random patterns over operands of several sizes; a product whose rows stay in a cache is several times as fast.
    - code: int8, encoded and decoded.
    - layer seconds: a step with hardly any rows, which is Python, autograd, kernel launches and the optimizer.
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
        "layer_seconds": _probe_step(transport),
    }


def _probe_product(transport: Transport, rows: int) -> float:
    """Multiply-adds a second of sparse products with a dense operand of `rows` rows."""
    degree = _ENTRIES // rows
    indices = np.random.default_rng(0).integers(0, rows, _ENTRIES, np.int32)
    pattern = Adjacency(torch.arange(0, _ENTRIES + 1, degree), torch.from_numpy(indices), rows, checked=True)
    h, out = torch.rand(rows, _WIDTH), torch.empty(rows, _WIDTH)
    return _ENTRIES * _WIDTH / _time_all(transport, lambda: multiply(pattern, h, out))


def _probe_codec(transport: Transport) -> float:
    """Values a second that are encoded and decoded."""
    codec, rows, ids = CODECS["int8"], torch.rand(_CODED_ROWS, _WIDTH), np.arange(_CODED_ROWS)
    coded = torch.empty(_CODED_ROWS, codec.row_bytes(_WIDTH), dtype=torch.uint8)

    def work() -> None:
        codec.encode(rows, ids, 0, coded)
        codec.decode(coded, rows)

    return rows.numel() / _time_all(transport, work)


def _probe_step(transport: Transport) -> float:
    """Seconds a layer of a training step on a tiny graph."""
    ring = np.stack([np.arange(_FEW_ROWS), np.roll(np.arange(_FEW_ROWS), 1)])
    x, y = np.ones((_FEW_ROWS, 8), np.float32), np.arange(_FEW_ROWS) % 2
    graph = Graph.from_edge_index(ring, _FEW_ROWS, directed=False, x=x, y=y).with_split(seed=0)
    trainer = Trainer(GNN("gcn", 8, 8, 2, num_layers=_LAYERS), graph, transport=LocalTransport())
    return _time_all(transport, trainer.train_epoch) / _LAYERS


def _time_all(transport: Transport, work: Callable[[], object]) -> float:
    """Mean seconds of the slowest rank, after one round that compiles and one that sets the number of rounds."""
    work()
    started = time.perf_counter()
    work()
    trial = float(transport.gather(np.array([time.perf_counter() - started])).max())
    rounds = int(np.clip(_MIN_SECONDS / max(trial, 1e-9), _ROUNDS, _MOST))
    transport.barrier()
    started = time.perf_counter()
    for _ in range(rounds):
        work()
    return float(transport.gather(np.array([time.perf_counter() - started])).max()) / rounds
