"""The halo's input features, dense or sparse, exchanged once before training."""

from __future__ import annotations

import torch
from torch import Tensor

from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import FORWARD, INPUT
from shoal.distributed.operator import exchange_rows
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.patterns import count_up, select_rows


def widen_features(x: Tensor | Adjacency, plan: HaloPlan) -> Tensor | Adjacency:
    """`x` of the local rows followed by that of the halo rows."""
    if isinstance(x, Tensor):
        return exchange_rows(x, plan, INPUT)
    counts = exchange_rows(x.indptr.diff()[:, None], plan, INPUT)[:, 0]
    indptr = count_up(counts)
    pieces = [
        _exchange_entries(x, entries, indptr, plan)
        for entries in (x.indices, x.values)
        if entries is not None
    ]
    return Adjacency(
        indptr, pieces[0], x.num_columns, values=pieces[1] if len(pieces) > 1 else None, checked=True
    )


def _exchange_entries(x: Adjacency, entries: Tensor, indptr: Tensor, plan: HaloPlan) -> Tensor:
    """Columns or values of sparse rows: those of the local rows, followed by those of the halo rows."""
    first = x.num_rows
    out = torch.empty(int(indptr[-1]), dtype=entries.dtype)
    bounds = {q: (int(indptr[first + a]), int(indptr[first + b])) for q, a, b in plan.halo_spans}
    plan.transport.phase = "the exchange of features"
    exchange = plan.transport.start({q: out[a:b] for q, (a, b) in bounds.items() if b > a})
    sent = []
    for q, a, b in plan.send_spans:
        taken = entries[select_rows(x.indptr, plan.send_rows[a:b])[1]]
        if len(taken):
            sent.append(taken)
            exchange.send(q, taken)
            plan.ledger.count(INPUT, FORWARD, q, taken.nbytes)
    out[: x.num_entries] = entries
    for _ in exchange.arrivals():
        pass
    exchange.finish()
    return out
