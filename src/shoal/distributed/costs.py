"""What an epoch cost all ranks together: bytes and messages by exchange and peer, and where the time went."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.distributed.ledger import BACKWARD, IDS, KINDS, Ledger
from shoal.distributed.transport import Transport


def summarize_costs(
    ledger: Ledger, transport: Transport, epoch: int, seconds: float, *, peers: bool = False
) -> tuple[dict[str, Any], float]:
    """An epoch's record of all ranks, and the seconds of the slowest. The ledger starts again at zero.

    `time` is the mean rank's, `slowest` the slowest's, kind by kind. With `peers`, what each rank sent to each.
    """
    spent = ledger.take()
    exchanges = sorted(spent.exchanges, key=lambda one: (one[0], one[1] != IDS, one[1] == BACKWARD))
    table = np.zeros((len(exchanges), transport.size if peers else 1, 2))
    for (layer, way, peer), entry in spent.sent.items():
        table[exchanges.index((layer, way)), peer if peers else 0] += entry
    spans = np.array([spent.seconds[kind] for kind in KINDS])
    transport.phase = f"the costs of epoch {epoch}"
    everyone = transport.gather(np.concatenate([table.ravel(), spans, [seconds]]))
    by_peer = everyone[:, : table.size].reshape(transport.size, *table.shape).astype(int)
    counts = by_peer.sum((0, 2)).tolist()
    spans, total = everyone[:, table.size : -1], everyone[:, -1]
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
    }
    if peers:
        record["peers"] = [
            [int(rank), int(peer), *exchanges[exchange], *by_peer[rank, exchange, peer].tolist()]
            for rank, exchange, peer in np.argwhere(by_peer[..., 1])
        ]
    return record, float(total.max())
