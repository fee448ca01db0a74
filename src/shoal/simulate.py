"""Predicted cost of an epoch across ranks: bytes and messages exactly, seconds by the α-β model.

An exchange takes `max over ranks of (α·messages + β·bytes)`, α the latency of a message and β the time of a byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.distributed.ledger import BACKWARD, FORWARD
from shoal.errors import ShoalError
from shoal.models.attention import GATConv
from shoal.models.convs import OnePassConv
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.models.mixhop import MixHopConv
from shoal.partitioning.part import Part


@dataclass(frozen=True)
class Machine:
    """What communication and computing cost; `shoal doctor` under ranks measures the first two.

    Args:
        latency: α, seconds a message takes however short.
        bandwidth: 1/β, bytes a second that a rank sends and receives.
        rate: multiply-adds a second of a rank, None where only communication is asked for.
    """

    latency: float
    bandwidth: float
    rate: float | None = None


@dataclass(frozen=True)
class LayerExchange:
    """One exchange of an epoch: `width` values for every row, in a layer counted from 1."""

    layer: int
    direction: str
    width: int


@dataclass(frozen=True)
class Prediction:
    """An epoch of training. `communication` is all of it, hidden behind computing or not.

    Attributes:
        num_bytes, num_messages: of all ranks together, exactly what the transport will count.
        seconds: of each exchange, in order.
        reduce: summing the gradients.
        compute: of the slowest rank; 0 where the machine has no rate.
    """

    num_bytes: int
    num_messages: int
    exchanges: tuple[LayerExchange, ...]
    seconds: tuple[float, ...]
    reduce: float
    compute: float

    @property
    def communication(self) -> float:
        return sum(self.seconds)

    @property
    def epoch(self) -> float:
        """Nothing hidden: an upper bound; with all of it hidden an epoch takes `max(compute, communication)`."""
        return self.compute + self.communication + self.reduce


def list_exchanges(model: GNN, *, sparse_features: bool = False) -> list[LayerExchange]:
    """The exchanges of one training step. What the first layer reads of others is exchanged before training."""
    widths: list[tuple[int, int]] = []
    depth = 0
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        conv = layer.linear
        if layer.kind is None:
            continue
        depth += 1
        if isinstance(conv, MixHopConv):
            sums = [sum(conv.widths[power:]) for power in range(len(conv.widths) - 1, 0, -1)]
            if (
                number == 0 and not sparse_features and model.input_dropout == 0
            ):  # it starts from `A x`, which is known
                sums = [sum(conv.widths[power:]) for power in range(len(conv.widths) - 1, 1, -1)]
            widths += [(depth, width) for width in sums]
        elif number > 0:
            f_in, f_out = conv.weight.shape
            if isinstance(conv, OnePassConv):
                f_out = min(f_in, conv.aggregated_width or f_out)
            else:
                assert isinstance(conv, GATConv)
            widths.append((depth, f_out))
    forward = [LayerExchange(layer, FORWARD, width) for layer, width in widths]
    return forward + [LayerExchange(one.layer, BACKWARD, one.width) for one in reversed(forward)]


def count_rows(parts: Sequence[Part]) -> np.ndarray:
    """(P, P): rows that rank q sends to rank r in one exchange."""
    return np.stack([np.diff(part.send_offsets) for part in parts])


def count_broadcast_rows(parts: Sequence[Part]) -> np.ndarray:
    """(P, P): the same for the broadcast exchange: every row of q goes to every r."""
    sizes = np.array([part.num_local for part in parts])
    return np.repeat(sizes[:, None], len(sizes), axis=1) * (1 - np.eye(len(sizes), dtype=np.int64))


def predict_epoch(
    parts: Sequence[Part] | np.ndarray | str | Path,
    model: GNN,
    machine: Machine,
    *,
    item_bytes: int = 4,
    sparse_features: bool | None = None,
) -> Prediction:
    """What an epoch of full-graph training of `model` costs.

    Args:
        parts: the parts, the folder they are stored in, or the (P, P) rows sent from each rank to each.
        item_bytes: bytes of a value on the way: 4, or 2 for bfloat16 messages.
        sparse_features: whether features are sparse; read from the parts where those are given.
    """
    if isinstance(parts, str | Path):
        parts = open_parts(Path(parts))
    rows = parts if isinstance(parts, np.ndarray) else count_rows(parts)
    if rows.ndim != 2 or rows.shape[0] != rows.shape[1]:
        raise ShoalError(f"rows sent have shape {rows.shape}: expected (ranks, ranks)")
    if sparse_features is None:
        sparse_features = not isinstance(parts, np.ndarray) and not isinstance(parts[0].x, np.ndarray)
    exchanges = list_exchanges(model, sparse_features=sparse_features)
    messages = rows > 0
    seconds = []
    for one in exchanges:
        sent = rows if one.direction == FORWARD else rows.T
        busiest = 0.0
        for counts in (sent, sent.T):  # a rank is busy with what it sends and with what it receives
            numbers = machine.latency * (counts > 0).sum(1)
            busiest = max(
                busiest, float((numbers + counts.sum(1) * one.width * item_bytes / machine.bandwidth).max())
            )
        seconds.append(busiest)
    num_ranks = len(rows)
    weights = sum(weight.numel() for weight in model.parameters()) * 4
    reduce = 0.0
    if num_ranks > 1:  # a ring: every rank sends its share of the sum 2 (P - 1) times
        steps = 2 * (num_ranks - 1)
        reduce = steps * (machine.latency + weights / num_ranks / machine.bandwidth)
    compute = 0.0
    if machine.rate is not None and not isinstance(parts, np.ndarray):
        compute = max(count_macs(part, model) for part in parts) * 3 / machine.rate
    return Prediction(
        int(rows.sum()) * item_bytes * sum(one.width for one in exchanges),
        int(messages.sum()) * len(exchanges),
        tuple(exchanges),
        tuple(seconds),
        reduce,
        compute,
    )


def count_macs(part: Part, model: GNN) -> int:
    """Multiply-adds of one forward pass over a part's rows, dense features aggregated beforehand."""
    entries = len(part.local_indices) + len(part.halo_indices)
    total = part.num_local * model.classifier.weight.numel()
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        f_in, f_out = layer.linear.weight.shape
        total += part.num_local * f_in * f_out
        if layer.kind is not None and number > 0:
            total += entries * min(f_in, getattr(layer.linear, "aggregated_width", None) or f_out)
    return total


def open_parts(folder: Path) -> list[Part]:
    """All parts of a folder, memory-mapped."""
    from shoal.partitioning.stored import open_part, read_manifest

    return [open_part(folder, rank) for rank in range(int(read_manifest(folder)["num_parts"]))]
