"""Quality: what a partition costs, counted exactly: volume, messages, balance, boundary, memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from shoal.graph import Graph
from shoal.kernels.jit import kernel
from shoal.partitioning.cover import count_covers
from shoal.partitioning.cut import list_members


@dataclass(frozen=True)
class Quality:
    """Figures of a partition. Volumes are rows sent in one exchange, as one layer needs them.

    Attributes:
        total_volume: Σ_j (λ_j − 1) = the halo rows of all parts.
        messages: ordered pairs of parts that exchange anything; `max_messages_sent` and `…_received` of one part.
        edge_balance, node_balance: the heaviest part over the average, by entries of its rows and by rows.
        weight_balance: the same by entries + 1 for each row, what `balance="edges"` keeps within the imbalance.
        boundary_nodes: rows that some other part needs; `max_boundary` in one part.
        mean_halo_ratio, max_halo_ratio: halo rows per local row (BNS calls it boundary-to-inner).
        mean_memory_rows, max_memory_rows: `3·n_local + n_halo`, BNS's memory of a SAGE layer in rows; times
            4 bytes and the width it is bytes.
        cover_volume: rows and sums sent in one exchange by minimum covers; `max_cover_send` and `…_receive` of one part.
            None where they were not counted.
        remote_volume, remote_messages: what crosses hosts, where parts are mapped to hosts; None otherwise.
        relative: figures as multiples of random partitioning's; None where random has 0.
        random: random partitioning's figures themselves.
        parts: arrays with one number per part.
    """

    num_parts: int
    total_volume: int
    mean_volume: float
    max_send_volume: int
    max_receive_volume: int
    messages: int
    mean_messages: float
    max_messages_sent: int
    max_messages_received: int
    edge_balance: float
    node_balance: float
    weight_balance: float
    boundary_nodes: int
    max_boundary: int
    mean_halo_ratio: float
    max_halo_ratio: float
    mean_memory_rows: float
    max_memory_rows: int
    empty_parts: int
    cover_volume: int | None = None
    max_cover_send: int | None = None
    max_cover_receive: int | None = None
    remote_volume: int | None = None
    remote_messages: int | None = None
    relative: dict[str, float | None] | None = None
    random: dict[str, float] | None = None
    parts: dict[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """All figures as plain values for JSON."""
        figures = asdict(self)
        figures["parts"] = {name: values.tolist() for name, values in self.parts.items()}
        return figures


def measure_quality(
    graph: Graph,
    assignment: np.ndarray,
    num_parts: int,
    parts_per_host: int | None = None,
    cover_threads: int | None = None,
) -> Quality:
    """Count everything in one pass over the rows, part by part; covers only if `cover_threads` is given.

    O(entries + nodes) time; two integers per node and per part, no table of parts × nodes or parts × parts. Covers take
    up to √nodes passes more, mostly a few, and a table of parts × parts.
    """
    nodes, offsets = list_members(assignment, num_parts)
    counted = {
        name: np.zeros(num_parts, np.int64)
        for name in ("entries", "sent", "received", "messages_sent", "messages_received", "boundary")
    }
    remote = np.zeros(2, np.int64)
    _count(
        graph.indptr,
        graph.indices,
        assignment,
        nodes,
        offsets,
        *counted.values(),
        parts_per_host or 1,
        remote,
    )
    covers: dict[str, Any] = {}
    if cover_threads is not None:
        items = count_covers(graph, assignment, num_parts, cover_threads)
        covers = {
            "cover_volume": int(items.sum()),
            "max_cover_send": int(items.sum(1).max()),
            "max_cover_receive": int(items.sum(0).max()),
        }
    size = np.diff(offsets)
    halo_ratio = counted["received"] / np.maximum(size, 1)
    memory = 3 * size + counted["received"]
    total = int(counted["sent"].sum())
    messages = int(counted["messages_sent"].sum())
    return Quality(
        num_parts=num_parts,
        total_volume=total,
        mean_volume=total / num_parts,
        max_send_volume=int(counted["sent"].max()),
        max_receive_volume=int(counted["received"].max()),
        messages=messages,
        mean_messages=messages / num_parts,
        max_messages_sent=int(counted["messages_sent"].max()),
        max_messages_received=int(counted["messages_received"].max()),
        edge_balance=_balance(counted["entries"]),
        node_balance=_balance(size),
        weight_balance=_balance(counted["entries"] + size),
        boundary_nodes=int(counted["boundary"].sum()),
        max_boundary=int(counted["boundary"].max()),
        mean_halo_ratio=float(halo_ratio.mean()),
        max_halo_ratio=float(halo_ratio.max()),
        mean_memory_rows=float(memory.mean()),
        max_memory_rows=int(memory.max()),
        empty_parts=int((size == 0).sum()),
        **covers,
        remote_volume=int(remote[0]) if parts_per_host else None,
        remote_messages=int(remote[1]) if parts_per_host else None,
        parts={"nodes": size, **counted},
    )


def compare_quality(found: Quality, other: Quality) -> dict[str, float | None]:
    """Every figure of `found` as a multiple of `other`'s; None where that is 0 and this is not."""
    ratios: dict[str, float | None] = {}
    for name, base in list_figures(other).items():
        value = getattr(found, name)
        ratios[name] = value / base if base else (1.0 if value == 0 else None)
    return ratios


def list_figures(quality: Quality) -> dict[str, float]:
    """The figures that can be compared, by name."""
    others = ("num_parts", "relative", "random", "parts")
    return {name: value for name, value in vars(quality).items() if name not in others and value is not None}


def _balance(loads: np.ndarray) -> float:
    mean = loads.mean()
    return float(loads.max() / mean) if mean else 1.0


@kernel
def _count(
    indptr,
    indices,
    assignment,
    nodes,
    offsets,
    entries,
    sent,
    received,
    messages_sent,
    messages_received,
    boundary,
    parts_per_host,
    remote,
):
    """A row is in part p's halo once: `reader[j]` is the last part that was seen reading j."""
    reader = np.full(len(assignment), -1, np.int32)
    sender = np.full(len(sent), -1, np.int32)
    for p in range(len(sent)):
        for i in range(offsets[p], offsets[p + 1]):
            v = nodes[i]
            entries[p] += indptr[v + 1] - indptr[v]
            for k in range(indptr[v], indptr[v + 1]):
                j = indices[k]
                q = assignment[j]
                if q == p or reader[j] == p:
                    continue
                boundary[q] += reader[j] == -1
                reader[j] = p
                received[p] += 1
                sent[q] += 1
                is_remote = q // parts_per_host != p // parts_per_host
                remote[0] += is_remote
                if sender[q] != p:
                    sender[q] = p
                    messages_received[p] += 1
                    messages_sent[q] += 1
                    remote[1] += is_remote
