"""Kernels that cut one rank's rows out of a graph: members, halo, local and halo pattern, send lists."""

from __future__ import annotations

import numpy as np

from shoal.kernels.csr import index_dtype
from shoal.kernels.jit import kernel


def list_members(assignment: np.ndarray, num_parts: int) -> tuple[np.ndarray, np.ndarray]:
    """(nodes, offsets): part q owns the increasing `nodes[offsets[q]:offsets[q + 1]]`. A counting sort."""
    offsets = np.zeros(num_parts + 1, np.int64)
    np.cumsum(np.bincount(assignment, minlength=num_parts), out=offsets[1:])
    nodes = np.empty(len(assignment), np.int64)
    _place_members(assignment, offsets[:-1].copy(), nodes)
    return nodes, offsets


def find_halo(
    indptr: np.ndarray,
    indices: np.ndarray,
    assignment: np.ndarray,
    nodes: np.ndarray,
    rank: int,
    num_parts: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(halo_id, halo_offsets): the foreign nodes that the rows `nodes` read, by owner, then by id.

    Cost: the rows' entries and one bit per node of the graph.
    """
    seen = np.zeros(len(indptr) // 8 + 1, np.uint8)
    found = np.empty(_count_foreign(indptr, indices, assignment, nodes, rank, seen), np.int64)
    seen[:] = 0
    _take_foreign(indptr, indices, assignment, nodes, rank, seen, found)
    owners = assignment[found]
    order = np.lexsort((found, owners))
    offsets = np.zeros(num_parts + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=num_parts), out=offsets[1:])
    return found[order], offsets


def split_rows(
    indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray, halo_id: np.ndarray, place: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The rows `nodes` as two patterns, (local_indptr, local_indices, halo_indptr, halo_indices).

    `place` is a scratch array with one integer per node of the graph, of any content.
    """
    place[nodes] = np.arange(len(nodes))
    place[halo_id] = -1 - np.arange(len(halo_id))
    local_indptr, halo_indptr = np.zeros(len(nodes) + 1, np.int64), np.zeros(len(nodes) + 1, np.int64)
    _count_columns(indptr, indices, nodes, place, local_indptr, halo_indptr)
    local_indices = np.empty(local_indptr[-1], index_dtype(len(nodes)))
    halo_indices = np.empty(halo_indptr[-1], index_dtype(len(halo_id)))
    _fill_columns(indptr, indices, nodes, place, local_indptr, local_indices, halo_indptr, halo_indices)
    return local_indptr, local_indices, halo_indptr, halo_indices


def find_receivers(
    indptr: np.ndarray,
    indices: np.ndarray,
    assignment: np.ndarray,
    nodes: np.ndarray,
    rank: int,
    num_parts: int,
    directed: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """(sent, send_offsets): which of this rank's nodes each other rank reads, by rank, then by id.

    In an undirected graph the rank's own rows show which ranks read them; a directed graph is searched as a whole.
    """
    rows = np.arange(len(indptr) - 1) if directed else nodes
    pairs = np.empty(_count_pairs(indptr, indices, assignment, rows, rank, directed), np.int64)
    _take_pairs(indptr, indices, assignment, rows, rank, directed, pairs)
    pairs = np.unique(pairs)
    n = len(indptr) - 1
    offsets = np.zeros(num_parts + 1, np.int64)
    np.cumsum(np.bincount(pairs // n, minlength=num_parts), out=offsets[1:])
    return pairs % n, offsets


def mark_loops(indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Which of `nodes` have themselves among their (sorted) columns."""
    marks = np.zeros(len(nodes), np.bool_)
    _mark_loops(indptr, indices, nodes, marks)
    return marks


@kernel
def _place_members(assignment, cursor, nodes):
    for v in range(len(assignment)):
        q = assignment[v]
        nodes[cursor[q]] = v
        cursor[q] += 1


@kernel
def _count_foreign(indptr, indices, assignment, nodes, rank, seen):
    count = 0
    for i in range(len(nodes)):
        v = nodes[i]
        for k in range(indptr[v], indptr[v + 1]):
            j = indices[k]
            if assignment[j] != rank and not (seen[j >> 3] >> (j & 7)) & 1:
                seen[j >> 3] |= np.uint8(1 << (j & 7))
                count += 1
    return count


@kernel
def _take_foreign(indptr, indices, assignment, nodes, rank, seen, found):
    count = 0
    for i in range(len(nodes)):
        v = nodes[i]
        for k in range(indptr[v], indptr[v + 1]):
            j = indices[k]
            if assignment[j] != rank and not (seen[j >> 3] >> (j & 7)) & 1:
                seen[j >> 3] |= np.uint8(1 << (j & 7))
                found[count] = j
                count += 1


@kernel
def _count_columns(indptr, indices, nodes, place, local_indptr, halo_indptr):
    for i in range(len(nodes)):
        v = nodes[i]
        local = 0
        for k in range(indptr[v], indptr[v + 1]):
            local += place[indices[k]] >= 0
        local_indptr[i + 1] = local_indptr[i] + local
        halo_indptr[i + 1] = halo_indptr[i] + (indptr[v + 1] - indptr[v]) - local


@kernel
def _fill_columns(indptr, indices, nodes, place, local_indptr, local_indices, halo_indptr, halo_indices):
    for i in range(len(nodes)):
        v = nodes[i]
        a, b = local_indptr[i], halo_indptr[i]
        for k in range(indptr[v], indptr[v + 1]):
            p = place[indices[k]]
            if p >= 0:
                local_indices[a] = p
                a += 1
            else:
                halo_indices[b] = -1 - p
                b += 1
        local_indices[local_indptr[i] : a].sort()
        halo_indices[halo_indptr[i] : b].sort()


@kernel
def _count_pairs(indptr, indices, assignment, rows, rank, directed):
    count = 0
    for i in range(len(rows)):
        v = rows[i]
        if directed and assignment[v] == rank:
            continue
        for k in range(indptr[v], indptr[v + 1]):
            other = assignment[indices[k]]
            count += (other == rank) if directed else (other != rank)
    return count


@kernel
def _take_pairs(indptr, indices, assignment, rows, rank, directed, pairs):
    """Pairs (receiver, node) as receiver · n + node."""
    n = len(indptr) - 1
    count = 0
    for i in range(len(rows)):
        v = rows[i]
        if directed and assignment[v] == rank:
            continue
        for k in range(indptr[v], indptr[v + 1]):
            j = indices[k]
            if directed and assignment[j] == rank:
                pairs[count] = np.int64(assignment[v]) * n + j
                count += 1
            elif not directed and assignment[j] != rank:
                pairs[count] = np.int64(assignment[j]) * n + v
                count += 1


@kernel
def _mark_loops(indptr, indices, nodes, marks):
    for i in range(len(nodes)):
        v = nodes[i]
        row = indices[indptr[v] : indptr[v + 1]]
        at = np.searchsorted(row, v)
        marks[i] = at < len(row) and row[at] == v
