"""Compute rates of ranks, measured on all at the same time: dense layers, sparse products, message encoding, small steps.

Steps of few rows give the fixed costs of a layer, of a message and of a new batch.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from shoal.analysis.machine import interpolate
from shoal.distributed.codec import CODECS
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.distributed.ledger import SAMPLING
from shoal.distributed.transport import LocalTransport, Transport
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.models.mlp import Dense
from shoal.partitioning.part import make_part
from shoal.sampling.full import FullSampler
from shoal.training.trainer import Trainer

_ROWS, _WIDTH = 32768, 128
_SPARSE_ROWS, _ENTRIES = (
    (1024, 4096, 16384, 65536),
    1 << 19,
)  # from operands that fit in caches to ones that do not
_CODED_ROWS = 4096
_FEW_ROWS, _LAYERS = 32, 3  # of a rank in a step whose products take almost no time
_PEERS = 16  # ranks after each one that it exchanges rows with in such a step; as many before it
_STEPS = 24  # of a test of small steps; the first quarter compiles and settles
_SUMMED = np.array([16, 1 << 10])  # bytes of the loss and of a small model's gradients
_ROUNDS, _MIN_SECONDS, _MOST = 5, 0.05, 50  # of a test: least rounds, seconds to reach, most rounds


def probe_rates(transport: Transport, sums: Sequence[tuple[float, float]] = ()) -> dict[str, Any]:
    """The rates of a `Machine`: those of the slowest rank while all compute, as means over rounds.

    - dense: forward and backward of a layer with its ReLU, norm and dropout, counted as three products.
    - sparse: random patterns over operands of several sizes; a product whose rows stay in a cache is several times as fast.
    - code: int8, encoded and decoded.
    - fixed seconds of layers, messages and batches: `probe_steps`.
    - cores and ranks of the fullest host.

    Args:
        sums: measured all-reduces (`probe_network`), which are part of a step's fixed cost.
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
        **probe_steps(transport, sums),
        **count_cores(transport),
    }


def probe_steps(transport: Transport, sums: Sequence[tuple[float, float]] = ()) -> dict[str, float | None]:
    """Fixed seconds of training steps, from steps on a few rows a rank.

    - layer seconds: a step of every rank alone, which is Python, autograd, kernel launches and the optimizer.
    - message seconds: what a step on parts takes beyond that and beyond its two all-reduces, by message.
    - batch seconds: what a step on a batch that ranks share takes beyond a step on parts, besides drawing it.
    """
    transport.phase = "the test of small steps"
    size, model = transport.size, partial(GNN, "gcn", 8, 8, 2, num_layers=_LAYERS)
    alone = Trainer(model(), _make_ring(1), transport=LocalTransport())
    local = _time_all(transport, alone.train_epoch)
    graph = _make_ring(size)
    part = make_part(graph, np.arange(graph.num_nodes) // _FEW_ROWS, size, transport.rank)
    known = local + (float(interpolate(_SUMMED, sums).sum()) if sums else 0.0)
    message, exchanging = None, 0.0  # seconds of a message and of an exchange
    if size > 1:
        exchange = PointToPoint(cover=False)
        whole, _ = _time_steps(Trainer(model(), part, transport=transport, exchange=exchange))
        exchanging = max(whole - known, 0.0) / (2 * (_LAYERS - 1))
        message = exchanging / int(np.count_nonzero(np.diff(part.halo_offsets)))
    batches = Trainer(
        model(), part, _WholeBatches(graph), transport=transport, exchange=PointToPoint(cover=False)
    )
    shared, drawing = _time_steps(batches)
    rest = shared - drawing - known - (2 * _LAYERS - 1) * exchanging
    return {"layer_seconds": local / _LAYERS, "message_seconds": message, "batch_seconds": max(rest, 0.0)}


def count_cores(transport: Transport) -> dict[str, int]:
    """Cores of the host where most ranks share a core, and the ranks on it; ranks may be pinned to some of its cores."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    transport.phase = "the count of cores"
    hosts: dict[str, list[set[str]]] = {}
    for said in transport.gather_texts(f"{socket.gethostname()} {','.join(map(str, cores))}"):
        name, _, listed = said.rpartition(" ")
        hosts.setdefault(name, []).append(set(listed.split(",")))
    found = [(len(set().union(*ranks)), len(ranks)) for ranks in hosts.values()]
    fullest = max(found, key=lambda host: host[1] / host[0])
    return {"cores": fullest[0], "host_ranks": fullest[1]}


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


class _WholeBatches(FullSampler):
    """Batches of all nodes that ranks draw and cut in every step."""

    draws_subgraphs = True


def _make_ring(num_ranks: int) -> Graph:
    """A ring of few rows for every rank, and an edge between the first rows of near ranks."""
    nodes = np.arange(num_ranks * _FEW_ROWS)
    first = nodes[::_FEW_ROWS]
    ends = [np.stack([nodes, nodes // _FEW_ROWS * _FEW_ROWS + (nodes + 1) % _FEW_ROWS])]
    ends += [np.stack([first, np.roll(first, step)]) for step in range(1, min(num_ranks - 1, _PEERS) + 1)]
    x, y = np.ones((len(nodes), 8), np.float32), nodes % 2
    graph = Graph.from_edge_index(np.concatenate(ends, axis=1), len(nodes), directed=False, x=x, y=y)
    return graph.with_split(seed=0)


def _time_steps(trainer: Trainer) -> tuple[float, float]:
    """Median seconds of an epoch of one step, and those of it in which batches were drawn; of the slowest rank."""
    records = [trainer.train_epoch() for _ in range(_STEPS)][_STEPS // 4 :]
    drawing = [one["slowest"][SAMPLING] for one in records]
    return statistics.median(one["seconds"] for one in records), statistics.median(drawing)


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
