"""Induced subgraphs of one graph, for increasing nodes: most of the time of subgraph sampling."""

from __future__ import annotations

import numpy as np

from shoal.kernels.bits import make_bitmap, popcount, prefetch
from shoal.kernels.csr import index_dtype
from shoal.kernels.jit import kernel

SMALL_GRAPH = 1 << 16
ROWS_AHEAD = 8
INDICES_IN_LINE = 16
_LINES_AHEAD = 8  # of a row; the hardware prefetcher fetches the rest
FILTER_BITS = 1 << 17
_BITS_A_NODE = 16
_ONE = np.uint64(1)
_WORD = np.uint64(63)
_SHIFT = np.uint64(6)


class SubgraphExtractor:
    """Takes induced subgraphs of one graph; owns the buffers, so every thread needs its own.

    Every entry of the chosen rows is looked up once. On a graph of up to `SMALL_GRAPH` nodes the lookup is
    an int32 array of new numbers. On a larger graph a filter drops nearly all entries outside the batch. It has 16 bits
    per node of the batch (16 KiB at least), indexed by the low bits of a node's number, and so stays in the nearest cache
    for any size of graph.
    The remaining entries are looked up in a bitmap of all nodes and renumbered by rank: with increasing nodes the new
    number of v is (first number of its word) + (ones below its bit). All loops store first and advance if the
    entry belongs, so there is no branch to mispredict. They write to a reused buffer, from which the result is copied.

    Cost: the total degree of the nodes; memory: 3n/16 bytes (4n when small) and the largest total degree.
    `shoal.kernels.csr.induce_csr` is the plain version, for nodes in any order; `shoal.kernels.orient` has one for
    skewed graphs, where few of the scanned entries belong to the subgraph.
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray) -> None:
        self.indptr = indptr
        self.indices = indices
        num_nodes = len(indptr) - 1
        self._small = num_nodes <= SMALL_GRAPH
        if self._small:
            self._numbers = np.full(num_nodes, -1, np.int32)
        else:
            self._bitmap = make_bitmap(num_nodes)
            self._filter = NodeFilter(num_nodes)
            self._ranks = np.zeros(len(self._bitmap), np.int32)
        self._found = np.empty(0, indices.dtype)
        self._taken = np.empty(0, index_dtype(len(indices)))

    def extract(
        self, nodes: np.ndarray, *, with_entries: bool = False, values: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(indptr, indices, entries) of the subgraph induced by increasing `nodes`, relabelled 0 … n-1.

        `entries[k]` is the entry of the large graph that entry k came from, None unless asked for; with
        `values`, one for every entry of the large graph, it is that entry's value instead.
        Rows come out sorted. Shapes: (n + 1,) int64, (nnz,) int32, (nnz,).
        """
        rows, total = locate_rows(self.indptr, nodes)
        room = int(total) + 1
        if room > len(self._found):
            self._found = np.empty(room + room // 4, self._found.dtype)
        taken = None
        if with_entries or values is not None:
            dtype = index_dtype(len(self.indices)) if values is None else values.dtype
            if room > len(self._taken) or self._taken.dtype != dtype:
                self._taken = np.empty(room + room // 4, dtype)
            taken = self._taken
        indptr = np.empty(len(nodes) + 1, np.int64)
        last = (indptr, self._found, values, taken)
        if self._small:
            _fill_by_number(rows, self.indices, nodes, self._numbers, *last)
        else:
            sets = (self._filter.take(len(nodes)), self._bitmap, self._ranks)
            _fill_by_rank(rows, self.indices, nodes, *sets, *last)
        size = int(indptr[-1])
        found = self._found[:size].astype(np.int32)
        return indptr, found, None if taken is None else taken[:size].copy()


class NodeFilter:
    """A filter that rejects most nodes outside a batch, with 16 bits per node of the batch: it stays in the nearest cache."""

    def __init__(self, num_nodes: int) -> None:
        self._most_bits = 1 << max(num_nodes - 1, 0).bit_length()
        self._words = np.zeros(FILTER_BITS // 64, np.uint64)

    def take(self, num_nodes: int) -> np.ndarray:
        """An empty filter for a batch of `num_nodes`; its size is a power of two. The caller must leave it empty."""
        wanted = 1 << (_BITS_A_NODE * num_nodes).bit_length()
        bits = max(FILTER_BITS, min(wanted, self._most_bits))
        if bits > 64 * len(self._words):
            self._words = np.zeros(bits // 64, np.uint64)
        return self._words[: bits // 64]


@kernel
def sum_degrees(indptr, nodes):
    """The total degree of the nodes."""
    return locate_rows(indptr, nodes)[1]


@kernel
def locate_rows(indptr, nodes):
    """Where the rows of the nodes begin and end, (nodes, 2), and their total degree."""
    rows = np.empty((len(nodes), 2), np.int64)
    total = 0
    last = len(nodes) - 1
    for i in range(len(nodes)):
        prefetch(indptr, nodes[min(i + 2 * ROWS_AHEAD, last)])
        rows[i, 0], rows[i, 1] = indptr[nodes[i]], indptr[nodes[i] + 1]
        total += rows[i, 1] - rows[i, 0]
    return rows, total


@kernel
def _fill_by_number(rows, indices, nodes, numbers, sub_indptr, found, values, taken):
    for i in range(len(nodes)):
        numbers[nodes[i]] = i
    size = np.uint64(0)
    sub_indptr[0] = 0
    for i in range(len(nodes)):
        for k in range(np.uint64(rows[i, 0]), np.uint64(rows[i, 1])):
            number = numbers[np.uint64(indices[k])]
            found[size] = number
            if taken is not None:
                taken[size] = k if values is None else values[k]
            size += np.uint64(number >= 0)
        sub_indptr[i + 1] = size
    for i in range(len(nodes)):
        numbers[nodes[i]] = -1


@kernel
def _fill_by_rank(rows, indices, nodes, likely, bitmap, ranks, sub_indptr, found, values, taken):
    words = np.uint64(len(likely) - 1)
    for i in range(len(nodes)):
        v = np.uint64(nodes[i])
        likely[(v >> _SHIFT) & words] |= _ONE << (v & _WORD)
        if bitmap[v >> _SHIFT] == 0:
            ranks[v >> _SHIFT] = i
        bitmap[v >> _SHIFT] |= _ONE << (v & _WORD)
    size = np.uint64(0)
    sub_indptr[0] = 0
    last = len(nodes) - 1
    for i in range(len(nodes)):
        coming = min(i + ROWS_AHEAD, last)
        end = min(rows[coming, 1], rows[coming, 0] + _LINES_AHEAD * INDICES_IN_LINE)
        for k in range(rows[coming, 0], end, INDICES_IN_LINE):
            prefetch(indices, k)
        first = size
        for k in range(np.uint64(rows[i, 0]), np.uint64(rows[i, 1])):
            v = np.uint64(indices[k])
            found[size] = v
            if taken is not None:
                taken[size] = k if values is None else values[k]
            size += (likely[(v >> _SHIFT) & words] >> (v & _WORD)) & _ONE
        passed, size = size, first
        for k in range(first, passed):
            v = np.uint64(found[k])
            word = bitmap[v >> _SHIFT]
            below = word & ((_ONE << (v & _WORD)) - _ONE)
            found[size] = ranks[v >> _SHIFT] + np.int64(popcount(below))
            if taken is not None:
                taken[size] = taken[k]
            size += (word >> (v & _WORD)) & _ONE
        sub_indptr[i + 1] = size
    for i in range(len(nodes)):
        bitmap[np.uint64(nodes[i]) >> _SHIFT] = 0
        likely[(np.uint64(nodes[i]) >> _SHIFT) & words] = 0
