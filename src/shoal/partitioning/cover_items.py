"""Items of a partition: every cut entry is carried by its row or by its column, as in a minimum cover or in a local search.

An entry (v, u) with v in part q and u in part p is carried by column u, which p then sends to q as a row, or by row v, for
which p then sends a sum. A column that carries entries of q is an item from p to q; so is a row that carries entries in
columns of p. Every choice of carriers has at least as many items as a minimum cover of each pair of parts.

In an undirected graph the blocks of two parts are each other's transpose and have the same cover: node u has one net, and
one of its items is sent twice, as column u to q and as the sum for row u from q. In a directed graph node v has net v for its
row and net n + v for its column.
"""  # fmt: skip

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shoal.graph import Graph
from shoal.kernels.csr import index_dtype, mirror_permutation, transpose_csr
from shoal.kernels.jit import kernel
from shoal.partitioning.cover import keep_columns, match_columns
from shoal.partitioning.cut import list_members
from shoal.partitioning.nets import Counts, Loads, Nets, add_pin, make_counts


class Entries(NamedTuple):
    """Every entry, listed at both of its ends: node v's are `indptr[v]` … `indptr[v + 1]`; from `split[v]` on, v is the column."""

    indptr: np.ndarray
    split: np.ndarray
    other: np.ndarray  # the node at the other end
    number: np.ndarray  # of the entry, the same at both ends
    shift: int  # from a node's row net to its column net


class Items(NamedTuple):
    """A choice for every entry and what it costs.

    Attributes:
        carrier: by the entry's number, the net that carries it; -1 where both ends are in one part.
        counts: count(net, part), the entries that a net carries to or from a part: an item where it is not 0.
        loads: items that each part sends and receives, and its weight.
    """

    carrier: np.ndarray
    counts: Counts
    loads: Loads


def list_entries(graph: Graph) -> Entries:
    """The entries of a graph from both ends."""
    indptr, indices, n = graph.indptr, graph.indices, graph.num_nodes
    if not graph.directed:
        mirror = mirror_permutation(indptr, indices)
        assert mirror is not None  # the pattern of an undirected graph is symmetric
        number = np.minimum(mirror, np.arange(len(indices), dtype=mirror.dtype))
        return Entries(indptr, indptr[1:], indices, number, 0)
    back_indptr, back, origin = transpose_csr(indptr, indices, n)
    both = indptr + back_indptr
    other = np.empty(2 * len(indices), index_dtype(n))
    number = np.empty(2 * len(indices), index_dtype(len(indices)))
    _join(indptr, indices, back_indptr, back, origin, both, other, number)
    return Entries(both, both[:-1] + np.diff(indptr), other, number, n)


def make_items(entries: Entries, assignment: np.ndarray, weights: np.ndarray, num_parts: int) -> Items:
    """Items of a partition by minimum covers."""
    pins = entries.split - entries.indptr[:-1]
    if entries.shift:
        pins = np.concatenate([pins, entries.indptr[1:] - entries.split])
    loads = Loads(
        np.zeros(num_parts, np.int64),
        np.zeros(num_parts, np.int64),
        np.bincount(assignment, weights, minlength=num_parts).astype(np.int64),
        np.zeros((0, 0), np.int32),
    )
    num_entries = len(entries.number) // (2 if entries.shift else 1)
    carrier = np.full(num_entries, -1, index_dtype(2 * len(entries.split)))
    items = Items(carrier, make_counts(pins, num_parts), loads)
    cover_again(items, entries, assignment, num_parts)
    return items


def cover_again(items: Items, entries: Entries, assignment: np.ndarray, num_parts: int) -> int:
    """Assign the entries to the nets of minimum covers; returns the number of items sent, as `count_covers` counts them."""
    nodes, offsets = list_members(assignment, num_parts)
    place, slot = np.full(len(assignment), -1, np.int64), np.full(num_parts, -1, np.int64)
    items.carrier[:] = -1
    for q in range(num_parts):
        own = nodes[offsets[q] : offsets[q + 1]]
        indptr, columns, number, rows, halo = _gather(entries, assignment, own, q, place, slot)
        match = match_columns(indptr, columns, len(halo))
        back_indptr, back_rows, _ = transpose_csr(indptr, columns, len(halo))
        keep = keep_columns(indptr, columns, back_indptr, back_rows, match)
        _give(indptr, columns, number, rows, halo, keep, entries.shift, items.carrier)
    for counted in (items.counts.size, items.counts.counts, items.counts.spread, *items.loads[:2]):
        counted[:] = 0
    _count_items(entries, assignment, items)
    return int(items.loads.send.sum())


def mix_nets(entries: Entries, carrier: np.ndarray, num_nodes: int) -> Nets:
    """The mixed hypergraph: nets are every node's row and column; pins are the node and the other ends of carried entries.

    Entries inside a part, which nothing carries, are pins of the net with more entries. `Σ (λ − 1)` of the partition with
    these carriers is the number of its items; of any other partition it is at least its cover.
    """  # fmt: skip
    num_nets = max(num_nodes, 2 * entries.shift)
    indptr, nets = _list_pins(entries, carrier, num_nets)
    owner = np.arange(num_nets) % num_nodes
    weight = np.full(num_nets, 1 if entries.shift else 2, np.int32)
    return Nets(indptr, nets, owner.astype(index_dtype(num_nodes)), weight)


@kernel
def _join(indptr, indices, back_indptr, back, origin, both, other, number):
    for v in range(len(indptr) - 1):
        t = both[v]
        for k in range(indptr[v], indptr[v + 1]):
            other[t], number[t] = indices[k], k
            t += 1
        for k in range(back_indptr[v], back_indptr[v + 1]):
            other[t], number[t] = back[k], origin[k]
            t += 1


@kernel
def _gather(entries, assignment, nodes, q, place, slot):
    """Entries of part q in halo columns, as a pattern of (row, owner) by columns; undirected, of owners before q only.

    Returns indptr, columns, the entries' numbers, the node of every row, the node of every column. `place` and `slot`
    have one -1 per node and per part, and are reset before returning.
    """
    last = len(slot) if entries.shift else q
    num_entries, num_rows, num_columns = 0, 0, 0
    for i in range(len(nodes)):
        v = nodes[i]
        for k in range(entries.indptr[v], entries.split[v]):
            u = entries.other[k]
            p = assignment[u]
            if p < last and p != q:
                num_entries += 1
                num_rows += slot[p] != v
                slot[p] = v
                if place[u] < 0:
                    place[u] = num_columns
                    num_columns += 1
    slot[:] = -1
    indptr = np.zeros(num_rows + 2, np.int64)
    rows, halo = np.empty(num_rows, np.int64), np.empty(num_columns, np.int64)
    columns = np.empty(num_entries, entries.other.dtype)
    number = np.empty(num_entries, entries.number.dtype)
    size = 0
    for i in range(len(nodes)):
        v = nodes[i]
        first = size
        for k in range(entries.indptr[v], entries.split[v]):
            p = assignment[entries.other[k]]
            if p < last and p != q:
                if slot[p] < first:
                    slot[p] = size
                    rows[size] = v
                    size += 1
                indptr[slot[p] + 2] += 1
        for g in range(first, size):
            indptr[g + 2] += indptr[g + 1]
        for k in range(entries.indptr[v], entries.split[v]):
            u = entries.other[k]
            p = assignment[u]
            if p < last and p != q:
                t = indptr[slot[p] + 1]
                indptr[slot[p] + 1] += 1
                columns[t], number[t], halo[place[u]] = place[u], entries.number[k], u
    slot[:] = -1
    for u in halo:
        place[u] = -1
    return indptr[:-1], columns, number, rows, halo


@kernel
def _give(indptr, columns, number, rows, halo, keep, shift, carrier):
    for r in range(len(indptr) - 1):
        for k in range(indptr[r], indptr[r + 1]):
            carrier[number[k]] = halo[columns[k]] + shift if keep[columns[k]] else rows[r]


@kernel
def _count_items(entries, assignment, items):
    for v in range(len(assignment)):
        for k in range(entries.indptr[v], entries.indptr[v + 1]):
            as_column = k >= entries.split[v]
            net = v + entries.shift if as_column else v
            if items.carrier[entries.number[k]] == net:
                c = assignment[entries.other[k]]
                if add_pin(items.counts, net, c):
                    load_item(
                        items.loads.send, items.loads.receive, entries.shift, as_column, assignment[v], c, 1
                    )


@kernel
def load_item(send, receive, shift, as_column, a, c, count):
    """Count an item of a net of part a with part c: a column is sent from a to c, a sum from c to a; undirected, both."""
    if shift == 0 or as_column:
        send[a] += count
        receive[c] += count
    if shift == 0 or not as_column:
        send[c] += count
        receive[a] += count


@kernel
def _list_pins(entries, carrier, num_nets):
    """The nets of every node, each once: its own, and those that carry its entries to it."""
    n, shift = len(entries.split), entries.shift
    indptr = np.zeros(n + 1, np.int64)
    nets = np.empty(len(entries.other) + num_nets, np.int64)
    size = 0
    for v in range(n):
        nets[size] = v
        size += 1
        if shift:
            nets[size] = v + shift
            size += 1
        for k in range(entries.indptr[v], entries.indptr[v + 1]):
            w = entries.other[k]
            if w == v:
                continue
            as_column = k >= entries.split[v]
            own, others = (v + shift, w) if as_column else (v, w + shift)
            net = carrier[entries.number[k]]
            if net < 0:
                net = own if _count_entries(entries, own) > _count_entries(entries, others) else others
            if net == others:
                nets[size] = net
                size += 1
        indptr[v + 1] = size
    return indptr, nets[:size].copy()


@kernel
def _count_entries(entries, net):
    """Entries of a net, plus a fraction by the net's number: it breaks ties between two nets, the same at both ends."""
    n = len(entries.split)
    v = net - entries.shift if net >= n else net
    if entries.shift == 0:
        size = entries.indptr[v + 1] - entries.indptr[v]
    elif net >= n:
        size = entries.indptr[v + 1] - entries.split[v]
    else:
        size = entries.split[v] - entries.indptr[v]
    return size + net / (2.0 * n + 1)
