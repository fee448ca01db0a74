"""Costs of an epoch over all ranks: bytes and messages by exchange and peer, and time by kind."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.distributed.ledger import BACKWARD, IDS, KINDS, Ledger
from shoal.distributed.transport import Transport
from shoal.partitioning.part import Part


def summarize_costs(
    ledger: Ledger, transport: Transport, epoch: int, seconds: float, *, peers: bool = False
) -> tuple[dict[str, Any], float]:
    """An epoch's record over all ranks, and the seconds of the slowest rank; resets the ledger.

    `time` is the mean over ranks and `slowest` the maximum, by kind. `hidden` is the mean time in which messages overlapped
    with computing. With `peers` the record has what each rank sent to each.
    """
    spent = ledger.take()
    exchanges = sorted(spent.exchanges, key=lambda one: (one[0], one[1] != IDS, one[1] == BACKWARD))
    table = np.zeros((len(exchanges), transport.size if peers else 1, 2))
    for (layer, way, peer), entry in spent.sent.items():
        table[exchanges.index((layer, way)), peer if peers else 0] += entry
    spans = np.array([spent.seconds[kind] for kind in KINDS])
    transport.phase = f"the costs of epoch {epoch}"
    everyone = transport.gather(np.concatenate([table.ravel(), spans, [spent.hidden, seconds]]))
    by_peer = everyone[:, : table.size].reshape(transport.size, *table.shape).astype(int)
    counts = by_peer.sum((0, 2)).tolist()
    spans, hidden, total = everyone[:, table.size : -2], everyone[:, -2], everyone[:, -1]
    times = {"compute": total - spans.sum(1)} | dict(zip(KINDS, spans.T))
    record: dict[str, Any] = {
        "seconds": float(total.max()),
        "bytes": sum(entry[0] for entry in counts),
        "messages": sum(entry[1] for entry in counts),
        "exchanges": [
            {"layer": layer, "direction": way, "bytes": entry[0], "messages": entry[1]}
            for (layer, way), entry in zip(exchanges, counts)
            if entry[1]
        ],
        "time": {name: float(value.mean()) for name, value in times.items()},
        "slowest": {name: float(value.max()) for name, value in times.items()},
        "hidden": float(hidden.mean()),
    }
    if peers:
        record["peers"] = [
            [int(rank), int(peer), *exchanges[exchange], *by_peer[rank, exchange, peer].tolist()]
            for rank, exchange, peer in np.argwhere(by_peer[..., 1])
        ]
    return record, float(total.max())


def model_memory(part: Part, halo_rows: int, input_widths: list[int], first_width: int) -> int:
    """BNS-GCN's memory model of a rank's step: bytes of `(3·n_local + n_halo)·d` values over the layers' inputs.

    Sparse features are counted as they are stored, for local and halo rows. Their product with the first layer's weight,
    of `first_width` columns, is aggregated in their place.
    """
    rows = 3 * part.num_local + halo_rows
    if isinstance(part.x, np.ndarray) or part.x is None or not input_widths:
        return 4 * sum(input_widths) * rows
    stored = part.x.data.nbytes + part.x.indices.nbytes + part.x.indptr.nbytes
    each = stored / max(part.num_local, 1)
    return int(stored + halo_rows * each) + 4 * (
        first_width * (rows - part.num_local) + sum(input_widths[1:]) * rows
    )
