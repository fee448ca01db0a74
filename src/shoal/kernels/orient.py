"""Degree-oriented graphs: each undirected edge is stored once, at its end of lower degree, so that hub rows are short."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from shoal.kernels.bits import make_bitmap, popcount, prefetch
from shoal.kernels.csr import count_diagonal, index_dtype
from shoal.kernels.gather import take_values
from shoal.kernels.induce import (
    INDICES_IN_LINE,
    ROWS_AHEAD,
    NodeFilter,
    SubgraphExtractor,
    locate_rows,
    sum_degrees,
)
from shoal.kernels.jit import kernel

MOST_PLACED = 1 << 28  # entries up to which `places` are stored, 4 or 8 bytes per entry
LEAST_SKEW = 4.0
_ROWS_TO_MEASURE = 1 << 22
_ENTRIES_AT_ONCE = 1 << 22
_DEGREES_AHEAD = 24  # entries
LEAST_SCANNED = 10  # scanned entries per found entry
_ONE = np.uint64(1)
_WORD = np.uint64(63)
_SHIFT = np.uint64(6)


class OrientedGraph:
    """The edges of an undirected graph, each once: in the row of its end of lower degree (then number).

    A node of degree d then has at most √(2 · edges) neighbours left, and usually far fewer. Samplers meet
    nodes in proportion to their degree, so on skewed graphs the rows that they scan shrink by much more
    than half: from 1.27 million entries to 0.18 for a random walk's 7,000 nodes of a Kronecker graph of
    2²⁰. Rows stay sorted; a self loop is in its own row.

    Cost: one pass over the entries, 2 bytes of memory for each, and 4 more for `places` once asked for.
    """

    def __init__(
        self, indptr: np.ndarray, indices: np.ndarray, made: tuple[np.ndarray, np.ndarray] | None = None
    ) -> None:
        """`made` are (indptr, indices) of an earlier object for the same graph."""
        self._full = indptr, indices
        self.indptr, self.indices = orient_rows(indptr, indices) if made is None else made
        self._places: np.ndarray | None = None
        self._paired: tuple[np.ndarray, np.ndarray] | None = None
        self._lock = threading.Lock()

    @property
    def _degree(self) -> np.ndarray:
        return count_degrees(self._full[0])

    @property
    def places(self) -> np.ndarray:
        """The entries (u, v) and (v, u) of the graph that edge k of row u stands for, at 2k and 2k + 1."""
        with self._lock:
            if self._places is None:
                indptr, indices = self._full
                places = np.empty(2 * len(self.indices) + 2, index_dtype(len(indices)))
                _find_places(indptr, indices, self._degree, places, indptr[:-1].copy())
                self._places = places[:-2]
        return self._places

    def pair_values(self, values: np.ndarray) -> np.ndarray:
        """`values`, one per entry of the graph, in the order of `places`: those of (u, v) and of (v, u) side by side.

        The result for the last array is cached.
        """
        paired = self._paired
        if paired is None or paired[0] is not values:
            places = self.places
            with self._lock:
                paired = self._paired
                if paired is None or paired[0] is not values:
                    paired = self._paired = values, take_values(values, places)
        return paired[1]


def orient_rows(indptr: np.ndarray, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(indptr, indices) of the oriented graph."""
    oriented = np.empty(len(indptr), np.int64)
    kept = np.empty((len(indices) + count_diagonal(indptr, indices)) // 2, indices.dtype)
    size = 0
    for piece in keep_lower(indptr, indices, oriented):
        kept[size : size + len(piece)] = piece
        size += len(piece)
    return oriented, kept


def keep_lower(indptr: np.ndarray, indices: np.ndarray, oriented: np.ndarray) -> Iterator[np.ndarray]:
    """The indices of the oriented graph, rows in order, piece by piece; `oriented` becomes its indptr.

    Memory: 4 bytes a node.
    """
    degree = count_degrees(indptr)
    oriented[0] = 0
    first, num_rows = 0, len(indptr) - 1
    while first < num_rows:
        last = int(np.searchsorted(indptr, indptr[first] + _ENTRIES_AT_ONCE, "right")) - 1
        last = min(max(last, first + 1), num_rows)
        kept = np.empty(int(indptr[last] - indptr[first]) + 1, indices.dtype)
        size = _keep_lower(indptr, indices, degree, first, last, oriented, kept)
        yield kept[:size]
        first = last


def count_degrees(indptr: np.ndarray) -> np.ndarray:
    """The rows' lengths, int32, without a temporary array."""
    degree = np.empty(len(indptr) - 1, np.int32)
    _subtract(indptr, degree)
    return degree


def is_worth_orienting(indptr: np.ndarray, indices: np.ndarray, nodes: np.ndarray) -> bool:
    """Whether batches like `nodes` are taken faster from the oriented graph.

    They are if the end node of a random edge has several times the mean degree, and if few of the scanned entries are
    found, since the found ones have to be sorted.
    """
    if not len(indices):
        return False
    num_rows = len(indptr) - 1
    blocks = max(num_rows // _ROWS_TO_MEASURE, 1)  # of large graphs, evenly spread pieces
    total, squares, count = _measure_degrees(indptr, 4096, 4096 * blocks)
    if squares * count < LEAST_SKEW * total * total:
        return False
    found = SubgraphExtractor(indptr, indices).extract(nodes)[1]
    return bool(sum_degrees(indptr, nodes) >= LEAST_SCANNED * len(found))


class OrientedExtractor:
    """Induced subgraphs as `shoal.kernels.induce.SubgraphExtractor` takes them, from an OrientedGraph.

    Every kept edge (i, j) of the drawn rows is found once. Counting sort turns the found rows i → j into rows
    j → i. Then, for i = 0, 1, …, i is written to the end of all rows that have it: they come out sorted.

    Cost: the oriented degrees of the nodes, plus three passes over the edges of the result.
    """

    def __init__(self, oriented: OrientedGraph) -> None:
        self.oriented = oriented
        num_nodes = len(oriented.indptr) - 1
        self._bitmap = make_bitmap(num_nodes)
        self._filter = NodeFilter(num_nodes)
        self._ranks = np.zeros(len(self._bitmap), np.int32)
        self._found = np.empty((2, 0), np.int32)
        self._edges = np.empty(0, index_dtype(len(oriented.indices)))
        self._taken = np.empty((3, 0), np.float32)

    def extract(
        self, nodes: np.ndarray, *, with_entries: bool = False, values: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """(indptr, indices, entries) of the subgraph induced by increasing `nodes`, relabelled 0 … n-1.

        `entries[k]` is the entry of the large graph that entry k came from, None unless asked for; with
        `values`, one for every entry of the large graph, it is that entry's value instead.
        Rows come out sorted. Shapes: (n + 1,) int64, (nnz,) int32, (nnz,).
        """
        oriented = self.oriented
        rows, total = locate_rows(oriented.indptr, nodes)
        room = int(total) + 1
        if room > self._found.shape[1]:
            self._found = np.empty((2, room + room // 4), np.int32)
        found, back = self._found
        pairs, edges, there, home, back_there = None, None, None, None, None
        if with_entries or values is not None:
            pairs = oriented.places if values is None else oriented.pair_values(values)
            if room > len(self._edges) or self._taken.dtype != pairs.dtype:
                self._edges = np.empty(room + room // 4, self._edges.dtype)
                self._taken = np.empty((3, room + room // 4), pairs.dtype)
            edges = self._edges
            there, home, back_there = self._taken
        start = np.empty(len(nodes) + 1, np.int64)
        start_back = np.zeros(len(nodes) + 2, np.int64)
        sets = (self._filter.take(len(nodes)), self._bitmap, self._ranks)
        graph = (rows, oriented.indices, pairs)
        _find_once(*graph, nodes, *sets, start, start_back, found, edges, there, home)
        size = int(start[-1] + start_back[-1])
        indptr = np.empty(len(nodes) + 1, np.int64)
        indices = np.empty(size, np.int32)
        taken = None if pairs is None else np.empty(size, pairs.dtype)
        _turn(start, start_back, found, back, there, back_there)
        _write_sorted(start, start_back, found, back, home, back_there, indptr, indices, taken)
        return indptr, indices, taken


@kernel
def _subtract(indptr, degree):
    for u in range(len(degree)):
        degree[u] = indptr[u + 1] - indptr[u]


@kernel
def _measure_degrees(indptr, block, stride):
    """(sum of degrees, of their squares, rows) over the first `block` of every `stride` rows."""
    total, squares, count = 0.0, 0.0, 0
    for start in range(0, len(indptr) - 1, stride):
        for u in range(start, min(start + block, len(indptr) - 1)):
            degree = np.float64(indptr[u + 1] - indptr[u])
            total += degree
            squares += degree * degree
            count += 1
    return total, squares, count


@kernel
def _keep_lower(indptr, indices, degree, first, last, oriented, kept):
    """Rows `first` to `last` - 1; returns how many of their entries were kept.

    Stores come first and the cursor advances if the edge is the row's, so `kept` has one place to spare.
    """
    size = np.uint64(0)
    end = np.uint64(len(indices) - 1)
    for u in range(first, last):
        for k in range(np.uint64(indptr[u]), np.uint64(indptr[u + 1])):
            prefetch(degree, np.int64(indices[min(k + np.uint64(_DEGREES_AHEAD), end)]))
            v = indices[k]
            kept[size] = v
            size += _is_lower(degree[u], degree[np.uint64(v)], u, v)
        oriented[u + 1] = oriented[first] + size
    return size


@kernel
def _find_places(indptr, indices, degree, places, cursor):
    """Rows u come in increasing order, so the next entry of row v not yet met is always its entry u.

    `places` has a pair to spare.
    """
    size = np.uint64(0)
    for u in range(len(indptr) - 1):
        for k in range(np.uint64(indptr[u]), np.uint64(indptr[u + 1])):
            v = np.uint64(indices[k])
            places[size] = k
            places[size + _ONE] = cursor[v]
            cursor[v] += 1
            size += _is_lower(degree[u], degree[v], u, np.int64(v)) << _ONE


@kernel
def _is_lower(degree, other_degree, u, v):
    """1 if edge {u, v} belongs to u's row, else 0."""
    return np.uint64((degree < other_degree) | ((degree == other_degree) & (u <= v)))


@kernel
def _find_once(
    rows, indices, pairs, nodes, likely, bitmap, ranks, start, start_back, found, edges, there, home
):
    """found[start[i] : start[i + 1]]: the new numbers j of i's edges; start_back[j + 2]: where row j → i ends.

    `rows` holds the begin and end of the nodes' rows. `there` and `home` get the values of `pairs` for (i, j) and (j, i),
    if asked for. A self loop is in row i only. Stores come first and the cursor advances by the looked-up bit, so there is
    no branch to mispredict.
    """
    last = len(nodes) - 1
    words = np.uint64(len(likely) - 1)
    for i in range(len(nodes)):
        v = np.uint64(nodes[i])
        likely[(v >> _SHIFT) & words] |= _ONE << (v & _WORD)
        if bitmap[v >> _SHIFT] == 0:
            ranks[v >> _SHIFT] = i
        bitmap[v >> _SHIFT] |= _ONE << (v & _WORD)
    size = np.uint64(0)
    start[0] = 0
    for i in range(len(nodes)):
        coming = min(i + ROWS_AHEAD, last)
        for k in range(rows[coming, 0], rows[coming, 1], INDICES_IN_LINE):
            prefetch(indices, k)
            if edges is not None:
                prefetch(pairs, 2 * k)
                prefetch(pairs, 2 * k + INDICES_IN_LINE)
        first = size
        for k in range(np.uint64(rows[i, 0]), np.uint64(rows[i, 1])):
            v = np.uint64(indices[k])
            found[size] = v
            if edges is not None:
                edges[size] = k
            size += (likely[(v >> _SHIFT) & words] >> (v & _WORD)) & _ONE
        passed, size = size, first
        for k in range(first, passed):
            v = np.uint64(found[k])
            word = bitmap[v >> _SHIFT]
            below = word & ((_ONE << (v & _WORD)) - _ONE)
            inside = (word >> (v & _WORD)) & _ONE
            j = np.uint64(ranks[v >> _SHIFT]) + popcount(below)
            j = j if inside else np.uint64(i)
            found[size] = j
            start_back[j + np.uint64(2)] += np.int64(j != np.uint64(i))
            if edges is not None:
                edge = np.uint64(edges[k]) << _ONE
                there[size] = pairs[edge]
                home[size] = pairs[edge + _ONE]
            size += inside
        start[i + 1] = size
    for i in range(len(nodes)):
        bitmap[np.uint64(nodes[i]) >> _SHIFT] = 0
        likely[(np.uint64(nodes[i]) >> _SHIFT) & words] = 0
    for j in range(2, len(start_back)):
        start_back[j] += start_back[j - 1]


@kernel
def _turn(start, start_back, found, back, there, back_there):
    """Transpose rows i → j to rows j → i. Every start_back[j + 1] moves from the start of row j to its end."""
    for i in range(len(start) - 1):
        for k in range(np.uint64(start[i]), np.uint64(start[i + 1])):
            j = np.uint64(found[k])
            if j != np.uint64(i):
                place = np.uint64(start_back[j + _ONE])
                back[place] = i
                if there is not None:
                    back_there[place] = there[k]
                start_back[j + _ONE] = place + _ONE


@kernel
def _write_sorted(start, start_back, found, back, home, back_there, indptr, indices, taken):
    """Append column i to the rows that have it, for increasing i; indptr[r] is the cursor of row r and is restored."""
    n = len(start) - 1
    indptr[0] = 0
    for i in range(n):
        indptr[i + 1] = indptr[i] + start[i + 1] - start[i] + start_back[i + 1] - start_back[i]
    for i in range(n):
        for k in range(np.uint64(start[i]), np.uint64(start[i + 1])):
            row = np.uint64(found[k])
            place = np.uint64(indptr[row])
            indices[place] = i
            if taken is not None:
                taken[place] = home[k]
            indptr[row] = place + _ONE
        for k in range(np.uint64(start_back[i]), np.uint64(start_back[i + 1])):
            row = np.uint64(back[k])
            place = np.uint64(indptr[row])
            indices[place] = i
            if taken is not None:
                taken[place] = back_there[k]
            indptr[row] = place + _ONE
    for i in range(n, 0, -1):
        indptr[i] = indptr[i - 1]
    indptr[0] = 0
