"""Predicted cost of an epoch across ranks: bytes and messages exactly (with a boundary rate their mean), seconds by the α-β model.

An exchange takes `max over ranks of (α·messages + β·bytes)`, α the latency of a message and β the time of a byte; more
between ranks that are all equally busy, if it was measured how much.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.ledger import BACKWARD, FORWARD, INPUT
from shoal.errors import ShoalError
from shoal.files import parse_json, replace_file
from shoal.models.gnn import GNN
from shoal.partitioning.part import Part


@dataclass(frozen=True)
class Machine:
    """What communication and computing cost; `shoal doctor --save FILE` under ranks measures all of it.

    Args:
        latency: α, seconds a message takes however short, between two ranks.
        bandwidth: 1/β, bytes a second between two ranks.
        crowd: (bytes, seconds) of a message of a rank while every rank sends to every other, for growing messages;
            without it a message takes what it takes between two.
        dense_rate: multiply-adds a second of a rank in dense layers, None where only communication is asked for.
        sparse_rate: multiply-adds a second of a rank in products with the adjacency.
        sparse_rates: (bytes, rate) of the same, for growing matrices whose rows are read; without it all take the one.
        code_rate: values a second that a rank writes and reads as int8 or int4.
        layer_seconds: what a layer of a step takes however few rows it has.
        ranks: how many ranks it was measured with, None where that is not known.
    """

    latency: float
    bandwidth: float
    crowd: tuple[tuple[float, float], ...] = ()
    dense_rate: float | None = None
    sparse_rate: float | None = None
    sparse_rates: tuple[tuple[float, float], ...] = ()
    code_rate: float | None = None
    layer_seconds: float | None = None
    ranks: int | None = None

    def time_product(
        self, entries: np.ndarray, num_rows: np.ndarray, width: int, item_bytes: int
    ) -> np.ndarray:
        """Seconds of products with so many entries over matrices of so many rows; none where no rate is known."""
        if self.sparse_rate is None:
            return np.zeros(len(entries))
        rate: float | np.ndarray = self.sparse_rate
        if self.sparse_rates:
            sizes, rates = np.array(self.sparse_rates).T
            size = np.maximum(num_rows * width * item_bytes, 1)
            rate = np.interp(np.log(size), np.log(sizes), rates)
        return entries * width / rate

    def time_message(self, num_bytes: np.ndarray) -> np.ndarray:
        """Seconds of a rank for each message while all send to all; none for one without bytes."""
        if len(self.crowd) < 2:
            seconds = self.latency + num_bytes / self.bandwidth
        else:
            sizes, times = np.array(self.crowd).T
            slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
            beyond = np.maximum(num_bytes - sizes[-1], 0) * max(slope, 0.0)
            seconds = np.interp(num_bytes, sizes, times) + beyond
        return np.where(num_bytes > 0, seconds, 0.0)

    def save(self, path: Path) -> None:
        """Keep it as JSON."""
        with replace_file(path) as scratch:
            scratch.write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_machine(path: Path) -> Machine:
    """A machine from the file that `shoal doctor --save` wrote, or that was written by hand."""
    names = [field.name for field in fields(Machine)]
    try:
        content = parse_json(path.read_bytes())
        crowd, products = (
            tuple((float(size), float(found)) for size, found in content.pop(name, None) or ())
            for name in ("crowd", "sparse_rates")
        )
        numbers: Any = {name: None if value is None else float(value) for name, value in content.items()}
        ranks = None if numbers.get("ranks") is None else int(numbers["ranks"])
        machine = Machine(**numbers | {"ranks": ranks}, crowd=crowd, sparse_rates=products)
        rates = [machine.bandwidth, machine.dense_rate, machine.sparse_rate, machine.code_rate, ranks]
        rates += [number for pair in products for number in pair]
        least = min(machine.latency, machine.layer_seconds or 0)
        if least >= 0 and all(rate is None or rate > 0 for rate in rates):
            return machine
    except FileNotFoundError:
        raise ShoalError(
            f"{path} does not exist: `shoal doctor --workers 2 --save {path}` writes it"
        ) from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise ShoalError(f"{path} describes no machine: expected JSON with {', '.join(names)}")


@dataclass(frozen=True)
class LayerExchange:
    """One exchange of an epoch: `width` values for every row, in a layer counted from 1.

    `overlaps` if a product with local columns runs meanwhile and partial sums may travel; a softmax needs all columns first.
    """

    layer: int
    direction: str
    width: int
    overlaps: bool = True


@dataclass(frozen=True)
class Prediction:
    """An epoch of training. `communication` is all of it, hidden behind computing or not.

    Attributes:
        num_bytes, num_messages: of all ranks together, exactly what the transport will count; with a boundary rate, its mean.
        seconds: of each exchange, in order.
        exposed: what of each the product with local columns does not hide; of stale ones, what the epoch's computing does not.
        reduce: summing the gradients.
        compute: of the slowest rank; 0 where the machine has no rates.
    """

    num_bytes: int
    num_messages: int
    exchanges: tuple[LayerExchange, ...]
    seconds: tuple[float, ...]
    exposed: tuple[float, ...]
    reduce: float
    compute: float

    @property
    def communication(self) -> float:
        """Seconds of all exchanges, hidden or not."""
        return sum(self.seconds)

    @property
    def epoch(self) -> float:
        """Seconds of an epoch: compute, exposed communication and the sum of gradients."""
        return self.compute + sum(self.exposed) + self.reduce

    def to_dict(self) -> dict[str, Any]:
        """All figures, for JSON; `compute` is None where the machine's rates are unknown."""
        totals = {"communication": self.communication, "epoch": self.epoch}
        return asdict(self) | totals | {"compute": self.compute or None}


def list_exchanges(
    model: GNN, *, sparse_features: bool = False, samples_input: bool = False
) -> list[LayerExchange]:
    """The halo exchanges of one training step: those of the forward pass, and their gradients' in reverse.

    With `samples_input` those of the features first, which have no gradients.
    """
    forward = [
        LayerExchange(one.layer, FORWARD, one.width, one.overlaps)
        for one in model.list_exchanges(sparse=sparse_features)
    ]
    backward = [LayerExchange(one.layer, BACKWARD, one.width, one.overlaps) for one in reversed(forward)]
    first = next(model.list_layers())
    if samples_input and first.kind is not None:
        overlaps = model.knows_aggregate(first.linear, sparse_features)
        return [LayerExchange(INPUT, FORWARD, model.in_features, overlaps), *forward, *backward]
    return forward + backward


def predict_epoch(
    parts: Sequence[Part] | np.ndarray | str | Path,
    model: GNN,
    machine: Machine,
    *,
    exchange: ExchangeMethod | str = "p2p",
    item_bytes: int = 4,
    sparse_features: bool | None = None,
) -> Prediction:
    """What an epoch of full-graph training of `model` costs.

    Args:
        parts: the parts, the folder they are stored in, or the (P, P) rows sent from each rank to each, of which only
            communication is told.
        exchange: how halo rows travel, by name or as an object; collective ones take what gloo's algorithms take.
        item_bytes: bytes of a value of the model; the exchange tells what a row takes on its way.
        sparse_features: whether features are sparse; read from the parts where those are given.
    """
    method = EXCHANGES[exchange]() if isinstance(exchange, str) else exchange
    if isinstance(parts, str | Path):
        parts = open_parts(Path(parts))
    if isinstance(parts, np.ndarray):
        if method.thins:
            raise ShoalError("what a boundary rate sends is predicted from parts: give those instead of rows")
        sums = whole = parts, parts > 0
        ids, entries, held, macs = np.zeros(parts.shape), None, np.zeros((0, 2)), 0
    else:
        sums, whole = method.expect_rows(parts), method.expect_rows(parts, linear=False)
        ids = method.count_ids(parts)
        entries = np.array([[len(part.local_indices), len(part.halo_indices)] for part in parts])
        entries = entries * method.expect_entries(parts)
        held = np.array([[part.num_local, part.num_halo] for part in parts])
        macs = max(count_macs(part, model) for part in parts)
        if sparse_features is None:
            sparse_features = not isinstance(parts[0].x, np.ndarray)
    shape = sums[0].shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ShoalError(f"rows sent have shape {shape}: expected (ranks, ranks)")
    if method.samples_input and sparse_features:
        raise ShoalError("bytes of sparse features are not predicted: leave out sample_input")
    exchanges = list_exchanges(
        model, sparse_features=bool(sparse_features), samples_input=method.samples_input
    )
    seconds, exposed, compute = [], [], 0.0
    num_bytes, num_messages = float(ids.sum()), float((ids > 0).sum())
    for one in exchanges:
        moved, chance = sums if one.overlaps else whole
        row = method.row_bytes(one.width, item_bytes) if one.layer != INPUT else one.width * item_bytes
        sent = (moved if one.direction == FORWARD else moved.T) * row
        num_bytes += float(sent.sum())
        num_messages += float(chance.sum())
        if method.is_collective:
            took = time_broadcasts(sent, one.direction, machine)
        else:
            took = time_messages(sent, machine)
        hidden = np.zeros(len(moved))
        if entries is not None:
            products = [
                machine.time_product(entries[:, side], held[:, side], one.width, item_bytes)
                for side in (0, 1)
            ]
            compute += float((products[0] + products[1]).max())
            if one.overlaps and not method.is_collective:
                hidden = products[0]
        if method.is_coded and machine.code_rate is not None:
            compute += float((moved.sum(0) + moved.sum(1)).max()) / 2 * one.width / machine.code_rate
        seconds.append(float(took.max()))
        exposed.append(float(np.maximum(took - hidden, 0).max()))
    compute += 0.0 if machine.dense_rate is None else macs / machine.dense_rate
    compute += (machine.layer_seconds or 0.0) * len(list(model.list_layers()))
    if method.is_stale:
        exposed = hide_behind(compute, seconds)
    return Prediction(
        round(num_bytes),
        round(num_messages),
        tuple(exchanges),
        tuple(seconds),
        tuple(exposed),
        time_sum(model, shape[0], machine),
        compute,
    )


def hide_behind(compute: float, seconds: list[float]) -> list[float]:
    """What is exposed of each exchange where all of them have as long as an epoch computes."""
    exposed = []
    for one in seconds:
        exposed.append(max(one - compute, 0.0))
        compute = max(compute - one, 0.0)
    return exposed


def time_messages(sent: np.ndarray, machine: Machine) -> np.ndarray:
    """(P,): seconds of each rank, by the (P, P) bytes it sends to each; it is busy with what it sends or receives."""
    crowd = machine.time_message(sent)
    alone = machine.latency * (sent > 0) + sent / machine.bandwidth
    return np.maximum(_time_links(sent, crowd, alone), _time_links(sent.T, crowd.T, alone.T))


def _time_links(sent: np.ndarray, crowd: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """(P,): seconds of each row's link, from those of its messages in a crowd and alone.

    In a crowd messages wait for links at their other end, which leaves gaps on this one. Messages whose other end has less
    to do than this link fill them, as far as they go: a link that is busier than those around it takes what it takes alone.
    """
    own, other = np.maximum(sent.sum(1), 1), sent.sum(0)
    waiting = (sent * np.minimum(other / own[:, None], 1)).sum(1) / own
    least = alone.sum(1)
    gaps = waiting * np.maximum(crowd.sum(1) - least, 0)
    return np.asarray(least + np.maximum(gaps - (1 - waiting) * least, 0))


def time_broadcasts(sent: np.ndarray, direction: str, machine: Machine) -> np.ndarray:
    """(P,): seconds in which every rank's rows go to all, one rank after the other, or are summed there (backward).

    Gloo broadcasts along a binomial tree, a rank's messages to its children sharing its link; it sums by a ring,
    from which the root then gathers the pieces.
    """
    num_ranks = len(sent)
    if num_ranks == 1:
        return np.zeros(1)
    sizes = sent.max(1 if direction == FORWARD else 0)
    if direction == FORWARD:
        hops, copies = measure_tree(num_ranks)
        total = sum(hops * machine.latency + copies * size / machine.bandwidth for size in sizes)
    else:
        steps = num_ranks - 1
        piece = sizes / num_ranks / machine.bandwidth
        total = float((steps * (machine.latency + piece) + machine.latency + steps * piece).sum())
    return np.full(num_ranks, total)


def measure_tree(num_ranks: int) -> tuple[int, int]:
    """(messages in a row, copies sent in a row) until the last rank of a binomial broadcast has everything.

    Rank v sends to v + 2^i for every 2^i > v, all at once once it has received.
    """

    def finish(rank: int) -> tuple[int, int]:
        children = [rank + (1 << i) for i in range(num_ranks.bit_length()) if (1 << i) > rank]
        children = [child for child in children if child < num_ranks]
        if not children:
            return 0, 0
        below = [finish(child) for child in children]
        return 1 + max(hops for hops, _ in below), len(children) + max(copies for _, copies in below)

    return finish(0)


def time_sum(model: GNN, num_ranks: int, machine: Machine) -> float:
    """Summing the gradients by a ring: every rank sends its share of the sum 2 (P - 1) times."""
    weights = sum(weight.numel() for weight in model.parameters()) * 4
    return 2 * (num_ranks - 1) * (machine.latency + weights / num_ranks / machine.bandwidth)


def count_macs(part: Part, model: GNN) -> int:
    """Multiply-adds of a step's dense products over a part's rows: forward, gradients of weights and, behind the
    first layer, of inputs."""
    total = 3 * part.num_local * (0 if model.classifier is None else model.classifier.weight.numel())
    for number, layer in enumerate(model.list_layers()):
        total += (3 if number else 2) * part.num_local * layer.num_weights
    return total


def open_parts(folder: Path) -> list[Part]:
    """All parts of a folder, memory-mapped."""
    from shoal.partitioning.manifest import read_manifest
    from shoal.partitioning.stored import open_part

    return [open_part(folder, rank) for rank in range(int(read_manifest(folder)["num_parts"]))]
