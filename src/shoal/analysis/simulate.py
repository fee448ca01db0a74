"""Predicted cost of an epoch of full-graph training across ranks: bytes and messages exactly (with a boundary rate their mean),
seconds by the α-β model (`links`), memory of every rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from shoal.analysis.links import (
    hide_behind,
    time_broadcasts,
    time_fixed,
    time_messages,
    time_norms,
    time_sum,
)
from shoal.analysis.machine import Machine as Machine
from shoal.analysis.prediction import LayerExchange, Load
from shoal.analysis.prediction import Prediction as Prediction
from shoal.analysis.rank_memory import count_received, estimate_parts, model_ranks
from shoal.distributed.batch_norm import list_sums
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.ledger import BACKWARD, FORWARD, INPUT
from shoal.errors import ShoalError
from shoal.models.gnn import GNN
from shoal.partitioning.part import Part

_COUNT_BYTES, _PREDICTED_BYTES = 8, 4  # of a degree of reversed edges; of a predicted probability


def measure_load(parts: Sequence[Part], method: ExchangeMethod, overlaps: set[bool]) -> Load:
    """Rows and entries that ranks hold and send, from the parts of a graph or of a batch; `overlaps` are the kinds of exchange."""
    entries = np.array([[len(part.local_indices), len(part.halo_indices)] for part in parts])
    return Load(
        {linear: method.expect_rows(parts, linear=linear) for linear in overlaps},
        method.count_ids(parts),
        entries * method.expect_entries(parts),
        np.array([[part.num_local, part.num_halo] for part in parts]),
    )


def list_exchanges(
    model: GNN,
    *,
    sparse_features: bool = False,
    samples_input: bool = False,
    fixed: bool = True,
    label_iterations: int = 0,
    item_bytes: int = 4,
) -> list[LayerExchange]:
    """The halo exchanges of one training step: those of the forward pass, then those of gradients in reverse.

    Args:
        samples_input: exchange the features first, which have no gradients.
        fixed: whether the batch is the same in every step; others exchange the first layer's input in every step,
            and degrees if reversed edges are read.
        label_iterations: forward passes before the step, whose predictions a fixed batch exchanges.
    """

    def forward(training: bool) -> list[tuple[LayerExchange, bool]]:
        found = model.list_exchanges(sparse=sparse_features, fixed=fixed, training=training)
        return [(LayerExchange(one.layer, FORWARD, one.width, one.overlaps), one.returns) for one in found]

    steps = forward(True)
    listed = [one for one, _ in steps]
    listed += [replace(one, direction=BACKWARD) for one, returns in reversed(steps) if returns]
    for _ in range(label_iterations):
        spread = [LayerExchange(INPUT, FORWARD, model.num_classes, False, _PREDICTED_BYTES)]
        listed = [*(one for one, _ in forward(False)), *(spread if fixed else ()), *listed]
    if model.directions == "both" and not fixed:
        listed = [LayerExchange(INPUT, BACKWARD, 1, False, _COUNT_BYTES), *listed]
    first = next(model.list_layers())
    if samples_input and first.kind is not None:
        overlaps = model.knows_aggregate(first.linear, sparse_features)
        return [LayerExchange(INPUT, FORWARD, model.in_features, overlaps, item_bytes), *listed]
    return listed


def predict_epoch(
    parts: Sequence[Part] | np.ndarray | str | Path,
    model: GNN,
    machine: Machine,
    *,
    exchange: ExchangeMethod | str = "p2p",
    item_bytes: int = 4,
    sparse_features: bool | None = None,
    label_iterations: int = 0,
    process: int = 0,
) -> Prediction:
    """Predict the cost of an epoch of full-batch training of `model`.

    Args:
        parts: the parts, the folder they are stored in, or the (P, P) rows sent from each rank to each, from which only
            communication is predicted.
        exchange: exchange method, by name or as an object; collective ones are timed by gloo's algorithms.
        item_bytes: bytes of a value of the model; the exchange decides the bytes of a row in a message.
        sparse_features: whether features are sparse; None: as in the parts.
        label_iterations: forward passes before a step, whose predictions replace labels.
        process: bytes of a rank's process before it loads data.
    """
    method = EXCHANGES[exchange]() if isinstance(exchange, str) else exchange
    if isinstance(parts, str | Path):
        parts = open_parts(Path(parts))
    if isinstance(parts, np.ndarray):
        if method.thins:
            raise ShoalError(
                "messages of a boundary rate are predicted from parts: give parts instead of rows"
            )
        if parts.ndim != 2 or parts.shape[0] != parts.shape[1]:
            raise ShoalError(f"rows sent have shape {parts.shape}: expected (ranks, ranks)")
        sent = parts, (parts > 0).astype(float)
        load = Load({True: sent, False: sent}, np.zeros(parts.shape), None, np.zeros((len(parts), 2)))
    elif sparse_features is None:
        sparse_features = not isinstance(parts[0].x, np.ndarray)
    if method.samples_input and sparse_features:
        raise ShoalError("bytes of sparse features are not predicted: leave out sample_input")
    exchanges = list_exchanges(
        model,
        sparse_features=bool(sparse_features),
        samples_input=method.samples_input,
        label_iterations=label_iterations,
        item_bytes=item_bytes,
    )
    if isinstance(parts, np.ndarray):
        return predict_step(
            load, exchanges, model, machine, method, item_bytes, label_iterations=label_iterations
        )
    load = measure_load(parts, method, {one.overlaps for one in exchanges})
    received = count_received(parts, load, exchanges, method)
    held = (parts, model, received, exchanges, method, model.in_features)
    return replace(
        predict_step(load, exchanges, model, machine, method, item_bytes, label_iterations=label_iterations),
        memory=estimate_parts(*held, sparse=bool(sparse_features), process=process),
        modelled=model_ranks(parts, model, received),
    )


def predict_step(
    load: Load,
    exchanges: list[LayerExchange],
    model: GNN,
    machine: Machine,
    method: ExchangeMethod,
    item_bytes: int = 4,
    *,
    label_iterations: int,
) -> Prediction:
    """Predict the cost of a step with this load.

    The fixed cost of messages overlaps with computing only where every rank has a core of its own. Batch norm makes ranks
    wait for the slowest in every layer: computing is that of the slowest rank in each product already.
    """
    seconds, exposed, fixed, compute = [], [], [], 0.0
    num_bytes, num_messages = float(load.ids.sum()), float((load.ids > 0).sum())
    known: dict[tuple[bool, int], np.ndarray] = {}
    for one in exchanges:
        moved, chance = load.rows[one.overlaps]
        coded = one.item_bytes is None
        row = (
            method.row_bytes(one.width, item_bytes) if one.item_bytes is None else one.width * one.item_bytes
        )
        num_bytes += float(moved.sum()) * row
        num_messages += float(chance.sum())
        least = np.zeros(len(moved))
        if method.is_collective:
            sent = (moved if one.direction == FORWARD else moved.T) * row
            took = time_broadcasts(sent, one.direction, machine)
        else:  # forward and backward take the same
            least = time_fixed(chance, machine)
            if (one.overlaps, row) not in known:
                known[one.overlaps, row] = np.maximum(time_messages(moved * row, machine), least)
            took = known[one.overlaps, row]
        hidden = np.zeros(len(moved))
        if load.entries is not None and (one.layer != INPUT or one.overlaps):
            products = [
                machine.time_product(load.entries[:, side], load.held[:, side], one.width, item_bytes)
                for side in (0, 1)
            ]
            compute += machine.find_slowest(products[0] + products[1])
            if one.overlaps and not method.is_collective:
                hidden = products[0]
        if method.is_coded and coded and machine.code_rate is not None:
            coded_rows = (moved.sum(0) + moved.sum(1)) / 2
            compute += machine.find_slowest(coded_rows * one.width / machine.code_rate)
        seconds.append(float(took.max()))
        fixed.append(float(least.max()) if machine.sharing > 1 else 0.0)
        exposed.append(max(float((took - hidden).max()), fixed[-1], 0.0))
    compute += time_dense(model, load.held[:, 0], machine)
    if method.is_stale:
        exposed = [max(pair) for pair in zip(hide_behind(compute, seconds), fixed)]
    sampling = (machine.batch_seconds or 0.0) if method.thins else 0.0
    if machine.sharing > 1:  # lists of kept rows are sent during the previous epoch
        sampling += float(time_messages(load.ids, machine).max())
    norm_sums = list_sums(model, label_iterations)
    norms = time_norms(norm_sums, len(load.held), machine)
    return Prediction(
        round(num_bytes),
        round(num_messages),
        tuple(exchanges),
        tuple(seconds),
        tuple(exposed),
        time_sum(model, len(load.held), machine) + norms,
        compute,
        sampling=sampling,
        norm_sums=norm_sums,
        norms=norms,
    )


def time_dense(model: GNN, rows: np.ndarray, machine: Machine) -> float:
    """Seconds of a step's dense products over the `rows` of every rank, and of the fixed cost of every layer."""
    rate = machine.dense_rate
    macs = 0.0 if rate is None else machine.find_slowest(rows * count_row_macs(model) / rate)
    return macs + (machine.layer_seconds or 0.0) * len(list(model.list_layers()))


def count_row_macs(model: GNN) -> int:
    """Multiply-adds of a row in a step's dense products: forward, gradients of weights and, after the first layer, of inputs."""
    total = 3 * (0 if model.classifier is None else model.classifier.weight.numel())
    for number, layer in enumerate(model.list_layers()):
        total += (3 if number else 2) * layer.num_weights
    return total


def open_parts(folder: Path, most_mapped: int = 1000) -> list[Part]:
    """All parts of a folder, memory-mapped. More than `most_mapped` are read into memory: a process can map only so many files."""
    from shoal.partitioning.manifest import read_manifest
    from shoal.partitioning.stored import open_part

    manifest = read_manifest(folder)
    count = int(manifest["num_parts"])
    parts = (open_part(folder, rank, manifest=manifest) for rank in range(count))
    return list(parts) if count <= most_mapped else [_read_pattern(part) for part in parts]


def _read_pattern(part: Part) -> Part:
    """The part with its arrays in memory, except features, and without the masks of evaluation."""
    left = {"val_mask", "test_mask"}
    held = ((name, value) for name, value in vars(part).items() if name not in left | {"x"})
    arrays: dict[str, Any] = {name: np.array(value) for name, value in held if isinstance(value, np.ndarray)}
    arrays |= dict.fromkeys(left)
    return replace(part, **arrays, checked=True)
