"""Seconds of messages by the α-β model: exchanges between two, broadcasts, sums of gradients, and what computing hides.

An exchange takes `max over ranks of (α·messages + β·bytes)`, α the latency of a message and β the time of a byte; more
between ranks that are all equally busy, if it was measured how much.
"""

from __future__ import annotations

import numpy as np

from shoal.analysis.machine import Machine
from shoal.distributed.ledger import FORWARD
from shoal.models.gnn import GNN


def hide_behind(compute: float, seconds: list[float]) -> list[float]:
    """What is exposed of each exchange where all of them have as long as an epoch computes."""
    exposed = []
    for one in seconds:
        exposed.append(max(one - compute, 0.0))
        compute = max(compute - one, 0.0)
    return exposed


def time_messages(sent: np.ndarray, machine: Machine) -> np.ndarray:
    """(P,): seconds of each rank, by the (P, P) bytes it sends to each; it is busy with what it sends or receives."""
    alone = machine.latency * (sent > 0) + sent / machine.bandwidth
    if len(machine.crowd) < 2:
        return np.maximum(alone.sum(1), alone.sum(0))
    crowd = machine.time_message(sent)
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
