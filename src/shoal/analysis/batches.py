"""Predicted cost of an epoch of mini-batches across ranks: batches that all ranks share, or every rank's own."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shoal.aggregation import AGGREGATIONS
from shoal.analysis.links import time_messages, time_sum
from shoal.analysis.machine import Machine
from shoal.analysis.prediction import LayerExchange, Prediction, add_steps
from shoal.analysis.rank_memory import count_received, estimate_replicas, estimate_shared, model_ranks
from shoal.analysis.simulate import count_row_macs, list_exchanges, measure_load, predict_step
from shoal.batch import Batch
from shoal.distributed.batch_cover import cover_batch
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.ledger import FORWARD, INPUT
from shoal.distributed.minibatch import cut_batch
from shoal.distributed.moving import MovingSampler
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.models.gnn import GNN
from shoal.partitioning.part import Part, split_graph
from shoal.sampling.base import Sampler
from shoal.sampling.dealt import DealtSampler

DRAWN = 64  # batches drawn to estimate the cost of a rank's own batches
DEALS = 8  # of clusters, over which the mean of the features that move is taken


def predict_shared(
    parts: Sequence[Part],
    sampler: Sampler,
    model: GNN,
    machine: Machine,
    *,
    exchange: ExchangeMethod | str = "p2p",
    item_bytes: int = 4,
    sparse_features: bool = False,
    label_iterations: int = 0,
    num_batches: int | None = None,
    process: int = 0,
) -> Prediction:
    """Predict an epoch of mini-batches that all ranks share (VLDB'22 §4.3.3). Bytes are exactly those of the first epoch.

    Args:
        parts: of the whole graph that `sampler` draws from.
        num_batches: batches to draw, from which the epoch is extrapolated; None for all.
        process: bytes of a rank's process before it loads data.
    """
    sampler.require_shareable()
    method = EXCHANGES[exchange]() if isinstance(exchange, str) else exchange
    if method.thins or method.is_stale or not method.serves_batches:
        raise ShoalError(
            f"exchange {method.name} with these settings does not support mini-batches: leave out the sampler"
        )
    graph, num_ranks = sampler.graph, len(parts)
    owner = find_owners(parts)
    may_cover = method.covers(model.kinds)
    method = method.settle(parts)
    exchanges = list_exchanges(
        model, sparse_features=sparse_features, fixed=False, label_iterations=label_iterations
    )
    overlaps = {one.overlaps for one in exchanges}
    steps, received = [], np.zeros(num_ranks, np.int64)
    largest = np.zeros((num_ranks, 3), np.int64)
    count = min(num_batches or sampler.num_batches, sampler.num_batches)
    covers = may_cover and method.covers(["sum"])
    cutting = _Cutting(parts, sampler, owner, covers=covers, scales=_scales(model))
    cutting.measure(0)  # compiles and fills caches
    for k in range(count):
        nodes, owners, sampling = cutting.measure(k)
        indptr, indices, _ = sampler.extract_drawn(nodes)
        batch = Graph(indptr, indices, directed=graph.directed, checked=True)
        shares = split_graph(batch, owners, num_ranks)
        load = measure_load(shares, method, overlaps)
        assert load.entries is not None
        received = np.maximum(received, count_received(shares, load, exchanges, method))
        sizes = np.concatenate([load.held, load.entries.sum(1, keepdims=True)], axis=1)
        largest = np.maximum(largest, sizes.astype(np.int64))
        step = predict_step(
            load, exchanges, model, machine, method, item_bytes, label_iterations=label_iterations
        )
        sampling = machine.sharing * sampling + (machine.batch_seconds or 0.0)
        steps.append(replace(step, sampling=sampling))
    return replace(
        add_steps(steps, sampler.num_batches / count),
        memory=estimate_shared(parts, model, graph, largest, model.in_features, process=process),
        modelled=model_ranks(parts, model, received),
    )


class _Cutting:
    """Times what a rank does to take its share of a batch: that of the rank with most rows."""

    def __init__(
        self, parts: Sequence[Part], sampler: Sampler, owner: np.ndarray, *, covers: bool, scales: bool
    ) -> None:
        self.parts, self.sampler, self.owner = parts, sampler, owner
        self.covers, self.scales = covers, scales
        self.place = np.full(sampler.graph.num_nodes, -1, np.int32)

    def measure(self, k: int) -> tuple[np.ndarray, np.ndarray, float]:
        """(nodes of batch k, their ranks, seconds of drawing it and of cutting the largest share)."""
        graph = self.sampler.graph
        started = time.perf_counter()
        nodes = self.sampler.draw_nodes(k)
        owners = self.owner[graph.global_ids(nodes)]
        drawing = time.perf_counter() - started
        part = self.parts[int(np.bincount(owners, minlength=1).argmax())]
        started = time.perf_counter()
        share, _ = cut_batch(
            part, graph, nodes, owners, self.place, halo_degrees=self.scales and not self.covers
        )
        if self.covers:
            cover_batch(share, graph, nodes, owners, self.place)
        return nodes, owners, drawing + time.perf_counter() - started


def _scales(model: GNN) -> bool:
    """Whether aggregations depend on the degrees of neighbours."""
    return any(AGGREGATIONS[kind].scales_columns for kind in model.kinds)


def predict_replicas(
    sampler: Sampler,
    model: GNN,
    machine: Machine,
    num_ranks: int,
    *,
    item_bytes: int = 4,
    sparse_features: bool = False,
    label_iterations: int = 0,
    sampling_threads: int = 0,
    num_batches: int | None = None,
    process: int = 0,
    moves_features: bool = False,
) -> Prediction:
    """Predict an epoch of data-parallel training: every rank holds the graph and draws its own batches (JPDC'21 §8).

    Only gradients are exchanged, and features that move; batch norm's statistics are those of a rank's own batch. A step takes as long as the slowest rank's batch.

    Args:
        sampling_threads: threads that prefetch batches, so that sampling overlaps with computing.
        num_batches: batches to draw and time; None for those of an epoch, at most 64.
        moves_features: features move with the clusters of a `DealtSampler`, as a `MovingSampler`'s do: bytes, messages
            and seconds are means over deals.
    """
    if isinstance(sampler, DealtSampler) and sampler.num_ranks != num_ranks:
        raise ShoalError(
            f"the sampler deals clusters to {sampler.num_ranks} ranks: give num_ranks={sampler.num_ranks}"
        )
    is_own = sampler.is_for_one_rank  # an epoch of this rank's batches, which stand for those of the others
    num_steps = sampler.num_batches if is_own else -(-sampler.num_batches // num_ranks)
    exchanges = list_exchanges(
        model, sparse_features=sparse_features, fixed=False, label_iterations=label_iterations
    )
    count = min(num_batches or DRAWN, num_steps if is_own else num_steps * num_ranks)
    seconds, sampling, largest = np.zeros(count), np.zeros(count), (0, 0, 0)
    _draw(sampler, 0)  # compiles and fills caches
    for k in range(count):
        started = time.perf_counter()
        batch = _draw(sampler, k)
        sampling[k] = time.perf_counter() - started
        for one in exchanges:
            if one.layer:
                block = batch.block(one.layer - 1)
                sizes = np.array([block.num_edges]), np.array([block.num_columns])
                seconds[k] += machine.time_product(*sizes, one.width, item_bytes)[0]
        seconds[k] += _time_layers(model, batch.nodes_per_layer, machine)
        size = batch.num_outputs, batch.num_nodes - batch.num_outputs, batch.num_edges
        largest = max(largest, size, key=sum)
    turns = [seconds[np.arange(s * num_ranks, (s + 1) * num_ranks) % count] for s in range(num_steps)]
    slowest = [machine.find_slowest(turn) for turn in turns]
    drawing = float(sampling.mean()) * num_steps * machine.sharing
    compute = float(np.sum(slowest))
    if sampling_threads:
        drawing = max(drawing / sampling_threads - compute, 0.0)
    width, moved = model.in_features, _Moves(0, 0, (), ())
    if moves_features or isinstance(sampler, MovingSampler):
        moved = _predict_moves(sampler, machine)
    return Prediction(
        num_bytes=moved.num_bytes,
        num_messages=moved.num_messages,
        exchanges=moved.exchanges,
        seconds=moved.seconds,
        exposed=moved.seconds,
        reduce=num_steps * time_sum(model, num_ranks, machine),
        compute=compute if machine.dense_rate or machine.sparse_rate else 0.0,
        steps=num_steps,
        sampling=drawing,
        memory=estimate_replicas(sampler.graph, model, largest, width, num_ranks, process),
    )


def _draw(sampler: Sampler, number: int) -> Batch:
    """A batch with its features."""
    batch = sampler.sample(number)
    _ = batch.x if sampler.graph.num_features else None
    return batch


class _Moves(NamedTuple):
    num_bytes: int
    num_messages: int
    exchanges: tuple[LayerExchange, ...]
    seconds: tuple[float, ...]


def _predict_moves(sampler: Sampler, machine: Machine) -> _Moves:
    """What ranks send of features in an epoch, as the mean over deals; steps wait for it."""
    x = sampler.graph.find_features(np.arange(0))[0] if sampler.graph.num_features else None
    if not isinstance(sampler, DealtSampler) or not isinstance(x, np.ndarray):
        raise ShoalError(
            "only dense features move, with the clusters of a DealtSampler: leave out moves_features"
        )
    moved = [x.itemsize * x.shape[1] * sampler.count_moved(deal) for deal in range(1, DEALS + 1)]
    epochs = DEALS * sampler.reshuffle_every
    return _Moves(
        round(sum(one.sum() for one in moved) / epochs),
        round(sum(np.count_nonzero(one) for one in moved) / epochs),
        (LayerExchange(INPUT, FORWARD, x.shape[1], False, x.itemsize),),
        (sum(float(time_messages(one, machine).max()) for one in moved) / epochs,),
    )


def _time_layers(model: GNN, nodes: list[int], machine: Machine) -> float:
    """Seconds of a step's dense products, from the numbers of nodes in every layer; blocks may shrink."""
    rows = float(np.mean(nodes)) if len(nodes) > 2 else nodes[-1]
    macs = 0.0 if machine.dense_rate is None else rows * count_row_macs(model) / machine.dense_rate
    return macs + (machine.layer_seconds or 0.0) * len(list(model.list_layers()))


def find_owners(parts: Sequence[Part]) -> np.ndarray:
    """The rank of every node of the graph, int32 (n,)."""
    owner = np.zeros(parts[0].num_global_nodes, np.int32)
    for part in parts:
        owner[part.n_id] = part.rank
    return owner
