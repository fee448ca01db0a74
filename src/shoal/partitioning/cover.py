"""Minimum vertex covers of a part's halo entries: which rows to send as rows, which in partial sums.

For a receiver q and an owner p, the entries with rows in q and columns in p form a bipartite graph. A vertex cover of it
is a way to send less than every column: a covered column is sent as a row, and for a covered row the owner sends the sum
of its other columns. The smallest cover is as large as a maximum matching (König).
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from shoal.graph import Graph
from shoal.kernels.csr import index_dtype, transpose_csr
from shoal.kernels.jit import kernel
from shoal.partitioning.cut import find_halo, list_members, split_rows


def cover_halo(halo_indptr: np.ndarray, halo_indices: np.ndarray, halo_offsets: np.ndarray) -> np.ndarray:
    """Which halo rows a part receives as rows, bool (num_halo,), in a minimum cover for each owner.

    The others are received in sums: one from each owner for every local row with an entry in a row that is not kept. All
    minimum covers of a pair of parts have the same size. This one keeps the most rows, so that owners sum least.

    Args:
        halo_indptr, halo_indices: the pattern (num_local × num_halo), columns increasing in each row.
        halo_offsets: (P + 1,), offsets of the halo rows of each owner.
    """
    num_halo = int(halo_offsets[-1])
    owner = np.repeat(np.arange(len(halo_offsets) - 1, dtype=np.int32), np.diff(halo_offsets))
    indptr = _split_by_owner(halo_indptr, halo_indices, owner)
    match = match_columns(indptr, halo_indices, num_halo)
    back_indptr, back_indices, _ = transpose_csr(indptr, halo_indices, num_halo)
    return np.asarray(keep_columns(indptr, halo_indices, back_indptr, back_indices, match))


class Cover(NamedTuple):
    """The items of a cover, in the order of both sender and receiver: for each peer the rows, then the sums.

    Attributes:
        offsets: int64 (P + 1,), offsets of the items of each peer.
        indptr, indices: the pattern (readers × items) of the items that each reading row adds up.
        entries: for each entry of this pattern the original entry, -1 for that of a sum.
        is_row: bool (items,), which items are rows.
        source: (items,), the column of a row, the reading row of a sum.
        sum_indptr, sum_entries: for each sum, in the order of items, the entries that it adds.
    """

    offsets: np.ndarray
    indptr: np.ndarray
    indices: np.ndarray
    entries: np.ndarray
    is_row: np.ndarray
    source: np.ndarray
    sum_indptr: np.ndarray
    sum_entries: np.ndarray


def list_cover(indptr: np.ndarray, indices: np.ndarray, offsets: np.ndarray, keep: np.ndarray) -> Cover:
    """The items of a pattern (readers × columns) whose columns `keep` are sent as rows.

    Args:
        indptr, indices: the pattern; in every row the columns of a peer are consecutive.
        offsets: (P + 1,), offsets of the columns of each peer.
    """
    num_parts = len(offsets) - 1
    owner = np.repeat(np.arange(num_parts, dtype=np.int32), np.diff(offsets))
    rows = np.bincount(owner[keep], minlength=num_parts)
    sums = np.asarray(_count_sums(indptr, indices, owner, keep, num_parts))
    first = np.zeros(num_parts + 1, np.int64)
    np.cumsum(rows + sums, out=first[1:])
    number = np.full(len(keep), -1, np.int64)
    number[keep] = np.arange(int(rows.sum())) + np.repeat(first[:-1] - (np.cumsum(rows) - rows), rows)
    is_row, source = np.zeros(first[-1], np.bool_), np.zeros(first[-1], np.int64)
    is_row[number[keep]], source[number[keep]] = True, np.flatnonzero(keep)
    item_indptr, item_indices = np.zeros_like(indptr), np.empty(len(indices), indices.dtype)
    entries, lengths = np.full(len(indices), -1, np.int64), np.zeros(first[-1], np.int64)
    found = (item_indptr, item_indices, entries, lengths, source)
    count = _number_entries(indptr, indices, owner, number, first[:-1] + rows, *found)
    sum_indptr = np.zeros(int(sums.sum()) + 1, np.int64)
    np.cumsum(lengths[~is_row], out=sum_indptr[1:])
    place = np.zeros(first[-1], np.int64)
    place[~is_row] = sum_indptr[:-1]
    sum_entries = np.empty(sum_indptr[-1], np.int64)
    _list_sums(indptr, indices, owner, number, first[:-1] + rows, place, sum_entries)
    return Cover(
        first, item_indptr, item_indices[:count], entries[:count], is_row, source, sum_indptr, sum_entries
    )


def count_items(
    halo_indptr: np.ndarray, halo_indices: np.ndarray, halo_offsets: np.ndarray, keep: np.ndarray
) -> np.ndarray:
    """(P,): rows and sums that a part receives from each owner."""
    num_parts = len(halo_offsets) - 1
    owner = np.repeat(np.arange(num_parts, dtype=np.int32), np.diff(halo_offsets))
    return np.bincount(owner[keep], minlength=num_parts) + np.asarray(
        _count_sums(halo_indptr, halo_indices, owner, keep, num_parts)
    )


def count_covers(graph: Graph, assignment: np.ndarray, num_parts: int, threads: int = 1) -> np.ndarray:
    """(P, P): items, rows or sums, that rank q sends to rank r in one exchange by minimum covers."""
    nodes, offsets = list_members(assignment, num_parts)

    def count(ranks: range) -> list[np.ndarray]:
        place = np.empty(graph.num_nodes, index_dtype(graph.num_nodes))
        found = []
        for rank in ranks:
            own = nodes[offsets[rank] : offsets[rank + 1]]
            halo_id, halo_offsets = find_halo(graph.indptr, graph.indices, assignment, own, rank, num_parts)
            _, _, indptr, indices = split_rows(graph.indptr, graph.indices, own, halo_id, place)
            keep = cover_halo(indptr, indices, halo_offsets)
            found.append(count_items(indptr, indices, halo_offsets, keep))
        return found

    sent = np.zeros((num_parts, num_parts), np.int64)
    shares = [range(first, num_parts, threads) for first in range(min(threads, num_parts))]
    with ThreadPoolExecutor(len(shares)) as pool:
        for ranks, received in zip(shares, pool.map(count, shares)):
            sent[:, ranks] = np.stack(received, axis=1)
    return sent


@kernel
def _split_by_owner(indptr, indices, owner):
    """Offsets of the entries of every (row, owner): rows are cut where the owner changes, empty ones left out."""
    count = 0
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            count += k == indptr[r] or owner[indices[k]] != owner[indices[k - 1]]
    starts = np.empty(count + 1, np.int64)
    count = 0
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            if k == indptr[r] or owner[indices[k]] != owner[indices[k - 1]]:
                starts[count] = k
                count += 1
    starts[count] = len(indices)
    return starts


@kernel
def match_columns(indptr, columns, num_columns):
    """A maximum matching by Hopcroft and Karp: the row matched to every column, -1 for none."""
    num_rows = len(indptr) - 1
    of_row = np.full(num_rows, -1, np.int64)
    of_column = np.full(num_columns, -1, np.int64)
    for r in range(num_rows):  # rows with one column first: they have no choice
        if indptr[r + 1] - indptr[r] == 1 and of_column[columns[indptr[r]]] < 0:
            of_row[r], of_column[columns[indptr[r]]] = columns[indptr[r]], r
    for r in range(num_rows):
        if of_row[r] < 0:
            for k in range(indptr[r], indptr[r + 1]):
                if of_column[columns[k]] < 0:
                    of_row[r], of_column[columns[k]] = columns[k], r
                    break
    level = np.empty(num_rows, np.int64)
    queue = np.empty(num_rows, np.int64)
    at = np.empty(num_rows, np.int64)
    path = np.empty(num_rows + 1, np.int64)
    while True:
        size = 0
        for r in range(num_rows):
            level[r] = -1
            at[r] = indptr[r]
            if of_row[r] < 0:
                level[r] = 0
                queue[size] = r
                size += 1
        free = size
        i, found, limit = 0, False, np.int64(1) << 62
        while i < size:
            r = queue[i]
            i += 1
            if level[r] >= limit:
                break
            for k in range(indptr[r], indptr[r + 1]):
                other = of_column[columns[k]]
                if other < 0:
                    found, limit = True, level[r] + 1
                elif level[other] < 0:
                    level[other] = level[r] + 1
                    queue[size] = other
                    size += 1
        if not found:
            return of_column
        for f in range(free):
            path[0], depth = queue[f], 0
            while depth >= 0:
                r = path[depth]
                if at[r] == indptr[r + 1]:
                    level[r] = -1
                    depth -= 1
                    if depth >= 0:
                        at[path[depth]] += 1
                    continue
                other = of_column[columns[at[r]]]
                if other < 0:
                    for d in range(depth, -1, -1):
                        row = path[d]
                        column = columns[at[row]]
                        of_row[row], of_column[column] = column, row
                    break
                if level[other] == level[r] + 1:
                    depth += 1
                    path[depth] = other
                else:
                    at[r] += 1


@kernel
def keep_columns(indptr, columns, back_indptr, back_rows, match):
    """König's cover: a column is in it unless an alternating path leads there from a column without a match."""
    keep = np.ones(len(match), np.bool_)
    of_row = np.full(len(indptr) - 1, -1, np.int64)
    for c in range(len(match)):
        if match[c] >= 0:
            of_row[match[c]] = c
    seen = np.zeros(len(indptr) - 1, np.bool_)
    queue = np.empty(len(match), np.int64)
    size = 0
    for c in range(len(match)):
        if match[c] < 0:
            keep[c] = False
            queue[size] = c
            size += 1
    i = 0
    while i < size:
        c = queue[i]
        i += 1
        for k in range(back_indptr[c], back_indptr[c + 1]):
            r = back_rows[k]
            if not seen[r]:
                seen[r] = True
                other = of_row[r]
                if keep[other]:
                    keep[other] = False
                    queue[size] = other
                    size += 1
    return keep


@kernel
def _count_sums(indptr, indices, owner, keep, num_parts):
    sums = np.zeros(num_parts, np.int64)
    for r in range(len(indptr) - 1):
        last = -1
        for k in range(indptr[r], indptr[r + 1]):
            if not keep[indices[k]] and owner[indices[k]] != last:
                last = owner[indices[k]]
                sums[last] += 1
    return sums


@kernel
def _number_entries(
    indptr, indices, owner, number, next_sum, item_indptr, item_indices, entries, lengths, source
):
    """Every row's items: the kept rows it reads, and from each owner the sum of the others, numbered as they come."""
    cursor = next_sum.copy()
    count = 0
    for r in range(len(indptr) - 1):
        k = indptr[r]
        while k < indptr[r + 1]:
            p = owner[indices[k]]
            left = 0
            while k < indptr[r + 1] and owner[indices[k]] == p:
                if number[indices[k]] >= 0:
                    item_indices[count] = number[indices[k]]
                    entries[count] = k
                    count += 1
                else:
                    left += 1
                k += 1
            if left:
                item_indices[count] = cursor[p]
                lengths[cursor[p]] = left
                source[cursor[p]] = r
                cursor[p] += 1
                count += 1
        item_indptr[r + 1] = count
    return count


@kernel
def _list_sums(indptr, indices, owner, number, next_sum, place, entries):
    cursor = next_sum.copy()
    for r in range(len(indptr) - 1):
        k = indptr[r]
        while k < indptr[r + 1]:
            p = owner[indices[k]]
            at = -1
            while k < indptr[r + 1] and owner[indices[k]] == p:
                if number[indices[k]] < 0:
                    if at < 0:
                        at = place[cursor[p]]
                        cursor[p] += 1
                    entries[at] = k
                    at += 1
                k += 1
