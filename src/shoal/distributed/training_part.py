"""A rank's part of the inductive training graph: training nodes and the edges between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from shoal.distributed.boundary import keep_columns, thin_halo
from shoal.distributed.cover import count_before
from shoal.distributed.halo import HaloPlan
from shoal.distributed.ledger import INPUT, Ledger
from shoal.distributed.operator import exchange_rows
from shoal.distributed.transport import Transport
from shoal.graph import MASKS
from shoal.kernels.entry_weights import sum_rows
from shoal.kernels.gather import gather_csr_rows
from shoal.partitioning.part import Part


def take_training_part(part: Part, transport: Transport, ledger: Ledger) -> Part:
    """The same rank's part of `graph.train_graph("inductive")`, partitioned as `part` is; a collective call.

    Nodes keep their numbers in the whole graph. The ranks exchange which halo nodes are training nodes, which of them
    are still in a halo, and then the degrees in the training graph.
    """
    if part.train_mask is None:
        return part
    plan = HaloPlan(part, transport, ledger)
    train = part.train_mask
    rows = np.flatnonzero(train)
    flags = torch.from_numpy(train.astype(np.float32))[:, None]
    in_halo = exchange_rows(flags, plan, INPUT)[part.num_local :, 0].numpy() > 0
    indptr, indices, local_weight = _take_rows(part.local_indptr, part.local_indices, part.local_weight, rows)
    if local_weight is not None:
        local_weight = local_weight[train[indices]]
    local = keep_columns(indptr, indices, train)
    halo_indptr, halo_indices, halo_weight = _take_rows(
        part.halo_indptr, part.halo_indices, part.halo_weight, rows
    )
    is_read = np.zeros(part.num_halo, np.bool_)
    is_read[halo_indices] = True
    kept = is_read & in_halo
    columns = np.concatenate([train, np.ones(part.num_halo, np.bool_)])
    labels: dict[str, Any] = {
        key: None if (value := getattr(part, key)) is None else value[rows] for key in ("y", *MASKS)
    }
    owned = replace(
        part,
        n_id=part.n_id[rows],
        send_rows=count_before(train)[:-1].astype(part.send_rows.dtype)[part.send_rows],
        local_indptr=local[0],
        local_indices=local[1],
        halo_indptr=halo_indptr,
        halo_indices=halo_indices,
        local_weight=local_weight,
        halo_weight=halo_weight,
        degree=part.degree[columns],
        has_loop=None if part.has_loop is None else part.has_loop[columns],
        x=None if part.x is None else part.x[rows],
        **labels,
        checked=True,
    )
    found = thin_halo(owned, kept, _tell_owners(plan, kept))
    degree = (np.diff(found.local_indptr) + np.diff(found.halo_indptr)).astype(np.int64)
    if found.local_weight is not None and found.halo_weight is not None:
        degree = sum_rows(found.local_indptr, found.local_weight)
        degree = degree + sum_rows(found.halo_indptr, found.halo_weight)
    degrees = exchange_rows(torch.from_numpy(degree)[:, None], HaloPlan(found, transport, ledger), INPUT)
    total = int(transport.gather(np.array([len(rows)]))[:, 0].sum())
    return replace(found, degree=degrees[:, 0].numpy(), num_global_nodes=total, checked=True)


def _take_rows(
    indptr: np.ndarray, indices: np.ndarray, weights: np.ndarray | None, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    taken = gather_csr_rows(indptr, indices, indices if weights is None else weights, rows)
    return taken[0], taken[1], None if weights is None else taken[2]


def _tell_owners(plan: HaloPlan, kept: np.ndarray) -> np.ndarray:
    """Send the list of `kept` halo rows to their owners; returns which of this rank's rows to send are kept, one bool each."""
    exchange = plan.start_backward(1, torch.float32, INPUT)
    exchange.outgoing[:, 0] = torch.from_numpy(kept.astype(np.float32))
    for peer, first, last in plan.halo_spans:
        exchange.send(peer, first, last)
    return exchange.wait()[:, 0].numpy() > 0
