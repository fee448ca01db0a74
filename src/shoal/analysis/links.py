"""Seconds of messages by the α-β model: point-to-point exchanges, broadcasts, all-reduce, and overlap with computing.

An exchange takes `max over ranks of (α·messages + β·bytes)`, α being the latency of a message and β the time of a byte.
Contention between busy ranks adds to it, if it was measured (`Machine.crowd`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.analysis.machine import Machine
from shoal.distributed.ledger import FORWARD
from shoal.models.gnn import GNN

_LOSS_BYTES = 16


def hide_behind(compute: float, seconds: list[float]) -> list[float]:
    """Exposed seconds of each exchange, where all of them overlap with the computing of an epoch."""
    exposed = []
    for one in seconds:
        exposed.append(max(one - compute, 0.0))
        compute = max(compute - one, 0.0)
    return exposed


def time_messages(sent: np.ndarray, machine: Machine) -> np.ndarray:
    """(P,): seconds of each rank, from the (P, P) bytes sent: those of its sends or of its receives, the longer."""
    alone = machine.latency * (sent > 0) + sent / machine.bandwidth
    if len(machine.crowd) < 2:
        return np.maximum(alone.sum(1), alone.sum(0))
    crowd = machine.time_message(sent)
    return np.maximum(_time_links(sent, crowd, alone), _time_links(sent.T, crowd.T, alone.T))


def _time_links(sent: np.ndarray, crowd: np.ndarray, alone: np.ndarray) -> np.ndarray:
    """(P,): seconds of each rank's link, from the seconds of its messages with contention (`crowd`) and without (`alone`).

    With contention, messages wait for busy links at their other end, which leaves gaps on this link. Messages to less
    busy links fill the gaps. So a link that is busier than its peers takes as long as without contention.
    """
    own, other = np.maximum(sent.sum(1), 1), sent.sum(0)
    waiting = (sent * np.minimum(other / own[:, None], 1)).sum(1) / own
    least = alone.sum(1)
    gaps = waiting * np.maximum(crowd.sum(1) - least, 0)
    return np.asarray(least + np.maximum(gaps - (1 - waiting) * least, 0))


def time_broadcasts(sent: np.ndarray, direction: str, machine: Machine) -> np.ndarray:
    """(P,): seconds to broadcast every rank's rows, one rank after the other, or to reduce their gradients (backward).

    Gloo broadcasts along a binomial tree, in which a rank's messages to its children share its link. It reduces by a
    ring, from which the root then gathers the pieces.
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

    After it has received, rank v sends to v + 2^i for every 2^i > v, all at once.
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
    """Seconds of a step's all-reduces: the loss, for which ranks wait for each other, and the gradients."""
    weights = sum(weight.numel() for weight in model.parameters()) * 4
    loss = machine.time_sum(_LOSS_BYTES, num_ranks) if machine.sums else 0.0
    return loss + machine.time_sum(weights, num_ranks)


def time_norms(norm_sums: Sequence[int], num_ranks: int, machine: Machine) -> float:
    """Seconds of batch norm's all-reduces in a step, from the bytes of each; a layer waits for them, so nothing overlaps."""
    return float(sum(machine.time_sum(size, num_ranks) for size in norm_sums))


def time_fixed(messages: np.ndarray, machine: Machine) -> np.ndarray:
    """(P,): fixed seconds of each rank's messages in an exchange, from the (P, P) messages sent; 0 if unknown."""
    return np.asarray(np.maximum(messages.sum(1), messages.sum(0)) * (machine.message_seconds or 0.0))
