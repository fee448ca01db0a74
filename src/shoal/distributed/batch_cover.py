"""Covers of mini-batches that all ranks share: sender and receiver both compute them from the adjacency, without a message."""

from __future__ import annotations

import numpy as np
import torch

from shoal.batch import as_tensor
from shoal.distributed.cover import Items, identify_items
from shoal.graph import Graph
from shoal.kernels.csr import transpose_csr
from shoal.kernels.jit import kernel
from shoal.kernels.patterns import count_up
from shoal.partitioning.cover import Cover, cover_halo, list_cover
from shoal.partitioning.part import Part


def cover_batch(
    share: Part,
    graph: Graph,
    nodes: np.ndarray,
    owners: np.ndarray,
    place: np.ndarray,
    *,
    edge_norm: np.ndarray | None = None,
    halo_norm: np.ndarray | None = None,
) -> Items:
    """The items of a rank's share of the subgraph that `nodes` induce.

    `cover_halo` finds the same minimum cover on every rank. So an owner computes what each receiver expects, from the
    receiver's rows.

    Args:
        share: from `cut_batch`.
        owners: the rank of each node.
        place: int32 scratch, -1 for every node of the graph; it is reset before returning.
        edge_norm: a factor for each entry of the graph, and `halo_norm` those of the share's halo entries.
    """
    if not graph.directed and edge_norm is None:
        return _cover_mirrored(share)
    own = np.flatnonzero(owners == share.rank)
    foreign = np.argsort(owners, kind="stable")
    foreign = foreign[owners[foreign] != share.rank]
    room = int((graph.indptr[nodes[foreign] + 1] - graph.indptr[nodes[foreign]]).sum())
    indptr, indices = np.zeros(len(foreign) + 1, np.int64), np.empty(room, np.int32)
    values = np.empty(0 if edge_norm is None else room, np.float32)
    given = values if edge_norm is None else edge_norm
    place[nodes[own]] = np.arange(len(own))
    send_rows, send_offsets = np.asarray(share.send_rows), share.send_offsets
    _read_rows(
        graph.indptr, graph.indices, nodes, foreign, owners, place, send_rows, send_offsets, len(own), given,
        indptr, indices, values,
    )  # fmt: skip
    place[nodes[own]] = -1
    indices, values = indices[: indptr[-1]], values[: indptr[-1]]
    ids = np.ascontiguousarray(graph.global_ids(nodes), np.int64)
    return _list_items(share, indptr, indices, ids[foreign], halo_norm, values)


def _cover_mirrored(share: Part) -> Items:
    """In an undirected graph a rank's halo entries, transposed, are the other ranks' entries in its own rows."""
    indptr, local, _ = transpose_csr(share.halo_indptr, share.halo_indices, share.num_halo)
    owner = np.repeat(np.arange(share.num_parts), np.diff(share.halo_offsets))
    indices = _number_sent(
        indptr, local, owner, np.asarray(share.send_rows), share.send_offsets, share.num_local
    )
    return _list_items(share, indptr, indices, share.halo_id)


def _list_items(
    share: Part,
    indptr: np.ndarray,
    indices: np.ndarray,
    readers: np.ndarray,
    halo_norm: np.ndarray | None = None,
    values: np.ndarray | None = None,
) -> Items:
    """Items from this rank's halo entries, and from the pattern (readers × rows sent) of other ranks' entries in its rows."""
    send_rows = np.asarray(share.send_rows)
    received = _cover(share.halo_indptr, share.halo_indices, share.halo_offsets)
    sent = _cover(indptr, indices, share.send_offsets)
    lengths = np.ones(len(sent.source), np.int64)
    lengths[~sent.is_row] = np.diff(sent.sum_indptr)
    send_indptr = count_up(as_tensor(lengths))
    send_indices, is_summed = np.empty(int(send_indptr[-1]), np.int32), np.repeat(~sent.is_row, lengths)
    send_indices[~is_summed] = send_rows[sent.source[sent.is_row]]
    send_indices[is_summed] = send_rows[indices[sent.sum_entries]]
    weights = send_weights = None
    if halo_norm is not None and values is not None:
        weights = np.where(received.entries >= 0, halo_norm[received.entries], np.float32(1))
        send_weights = np.ones(len(send_indices), np.float32)
        send_weights[is_summed] = values[sent.sum_entries]
    return Items(
        identify_items(received, share.halo_id, share.n_id),
        received.offsets,
        as_tensor(received.indptr),
        as_tensor(received.indices),
        identify_items(sent, share.n_id[send_rows], readers, owner=share.rank),
        sent.offsets,
        send_indptr,
        torch.from_numpy(send_indices),
        None if weights is None else torch.from_numpy(weights),
        None if send_weights is None else torch.from_numpy(send_weights),
    )


def _cover(indptr: np.ndarray, indices: np.ndarray, offsets: np.ndarray) -> Cover:
    return list_cover(indptr, indices, offsets, cover_halo(indptr, indices, offsets))


# fmt: off
@kernel
def _read_rows(
    graph_indptr, graph_indices, nodes, rows, owners, place, send_rows, send_offsets, num_local, norms,
    indptr, indices, values,
):
    """Entries of the batch's `rows`, sorted by owner, in columns of this rank, as numbers in the list of rows sent to that owner."""
    number = np.empty(num_local, np.int32)
    last, count = -1, 0
    for i in range(len(rows)):
        q = owners[rows[i]]
        if q != last:
            last = q
            for s in range(send_offsets[q], send_offsets[q + 1]):
                number[send_rows[s]] = s
        u = nodes[rows[i]]
        for k in range(graph_indptr[u], graph_indptr[u + 1]):
            column = place[graph_indices[k]]
            if column >= 0:
                indices[count] = number[column]
                if len(values):
                    values[count] = norms[k]
                count += 1
        indptr[i + 1] = count
# fmt: on


@kernel
def _number_sent(indptr, local, owner, send_rows, send_offsets, num_local):
    """Local rows as numbers in the list of rows sent to the owner of each reading row; reading rows are sorted by owner."""
    number = np.empty(num_local, np.int32)
    indices = np.empty(len(local), np.int32)
    last = -1
    for r in range(len(indptr) - 1):
        if owner[r] != last:
            last = owner[r]
            for s in range(send_offsets[last], send_offsets[last + 1]):
                number[send_rows[s]] = s
        for k in range(indptr[r], indptr[r + 1]):
            indices[k] = number[local[k]]
    return indices
