"""Nets of sampled mini-batches: a partition of these nets sends few rows in mini-batch training (VLDB'22 §4.3.3)."""

from __future__ import annotations

import math

import numpy as np

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.csr import index_dtype, transpose_csr
from shoal.kernels.jit import kernel
from shoal.partitioning.nets import Nets
from shoal.rng import key, random_u64
from shoal.sampling.base import Sampler

MAX_PINS = 50_000_000
_MEAN_WEIGHT, _LARGEST_WEIGHT = 32, 1 << 20  # of an entry, in whole numbers
_SIGHTINGS = 8  # how often an average entry of the graph should be seen


def count_nets(num_parts: int, theta: float, delta: float) -> int:
    """Nets that estimate the mean spread within theta with probability 1 − delta: `(P−1)²/(2θ²) · ln(2/δ)`."""
    return math.ceil((num_parts - 1) ** 2 / (2 * theta**2) * math.log(2 / delta))


def sample_nets(sampler: Sampler, num_nets: int) -> tuple[Nets, np.ndarray, np.ndarray]:
    """The column nets of as many batches as give `num_nets` nets and show an average entry 8 times.

    Of each batch's subgraph, net j holds the rows that aggregate from j, and j. Returns the nets and how often
    each entry and each node of the sampler's graph was in a batch. Stops at `MAX_PINS` pins.
    """
    graph = sampler.graph
    n = graph.num_nodes
    seen = np.zeros(graph.num_entries, np.int32)
    drawn = np.zeros(n, np.int64)
    pieces: list[tuple[np.ndarray, np.ndarray]] = []  # (net, pin) of nets with two pins or more
    owners: list[np.ndarray] = []
    total, kept, pins, k = 0, 0, 0, 0
    entries = 0
    while total < num_nets or entries < _SIGHTINGS * graph.num_entries:
        nodes = sampler.draw_nodes(k)
        indptr, indices, entry = sampler.extract(nodes, with_entries=True)
        assert entry is not None
        seen[entry] += 1
        drawn[nodes] += 1
        net_indptr, net_pins, _ = transpose_csr(indptr, indices, len(nodes))
        own, members, which = _list_nets(net_indptr, net_pins)
        owners.append(nodes[own].astype(index_dtype(n)))
        pieces.append((which + kept, nodes[members].astype(index_dtype(n))))
        kept += len(own)
        pins += len(members)
        total += len(nodes)
        entries += len(indices)
        k += 1
        if pins > MAX_PINS or k >= 1_000_000 or (k >= 1000 and entries == 0):
            break
    if kept == 0:
        raise ShoalError(
            f"{k:,} batches of the {sampler.name} sampler hold no edge: sample larger ones, or use method 'hypergraph'"
        )
    net = np.concatenate([piece[0] for piece in pieces])
    pin = np.concatenate([piece[1] for piece in pieces])
    pieces.clear()
    return _merge_nets(net, pin, np.concatenate(owners), n), seen, drawn


def _merge_nets(net: np.ndarray, pin: np.ndarray, owner: np.ndarray, num_nodes: int) -> Nets:
    """Nets from pairs (net, pin) sorted by net; nets with the same pins are merged into one, weighted by their number.

    Nets are compared by the sum of a random 64-bit number for each pin. A merged net keeps only the first net's owner. The
    total of rows sent, which is the objective for batches, stays the same.
    """
    begins = np.searchsorted(net, np.arange(len(owner) + 1))
    _, first, weight = np.unique(_hash_nets(begins, pin), return_index=True, return_counts=True)
    order = np.argsort(first)
    first, weight = first[order], weight[order].astype(np.int32)
    indptr = np.zeros(num_nodes + 1, np.int64)
    _count_incidence(begins, pin, first, indptr)
    np.cumsum(indptr, out=indptr)
    incidence = np.empty(indptr[-1], index_dtype(len(first)))
    _fill_incidence(begins, pin, first, indptr[:-1].copy(), incidence)
    return Nets(indptr, incidence, owner[first], weight)


def mean_batch_volume(sampler: Sampler, assignment: np.ndarray, first: int, count: int) -> float:
    """Rows sent in one exchange of a batch, the mean of batches first … first + count - 1."""
    parts = np.asarray(assignment, np.int32)
    total = 0
    reader = np.full(sampler.graph.num_nodes, -1, np.int64)
    for k in range(first, first + count):
        nodes = sampler.draw_nodes(k)
        indptr, indices, _ = sampler.extract(nodes)
        total += _count_volume(indptr, indices, parts[nodes], reader)
    return total / count


def weigh_entries(graph: Graph, sampler: Sampler, seen: np.ndarray) -> tuple[Graph, np.ndarray]:
    """The undirected graph without loops, and a weight for every entry: 1 plus how often it is in a batch.

    That is how often it was `seen`, or its expectation, which has no noise, if the sampler knows it.
    """
    known = sampler.inclusion_probabilities()
    if known is not None:
        expected = known[1] / max(float(known[1].mean()), 1e-300)
        seen = np.rint(np.minimum(_MEAN_WEIGHT * expected, _LARGEST_WEIGHT))
    rows = np.repeat(np.arange(graph.num_nodes, dtype=graph.indices.dtype), graph.degree)
    from scipy.sparse import coo_array

    shape = (graph.num_nodes, graph.num_nodes)
    matrix = coo_array((seen.astype(np.int64) + 1, (rows, graph.indices)), shape=shape).tocsr()
    both = (matrix + matrix.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    both.sort_indices()
    whole = Graph(both.indptr.astype(np.int64), both.indices.astype(np.int32), checked=True)
    return whole, both.data


@kernel
def _list_nets(indptr, pins):
    """Nets with at least two pins: their owners, and every pin with the number of its net."""
    num_nets, num_pins = 0, 0
    for j in range(len(indptr) - 1):
        others = 0
        for k in range(indptr[j], indptr[j + 1]):
            others += pins[k] != j
        if others:
            num_nets += 1
            num_pins += others + 1
    own = np.empty(num_nets, np.int64)
    members = np.empty(num_pins, np.int64)
    which = np.empty(num_pins, np.int64)
    num_nets, num_pins = 0, 0
    for j in range(len(indptr) - 1):
        began = num_pins
        for k in range(indptr[j], indptr[j + 1]):
            if pins[k] != j:
                members[num_pins] = pins[k]
                which[num_pins] = num_nets
                num_pins += 1
        if num_pins > began:
            members[num_pins] = j
            which[num_pins] = num_nets
            num_pins += 1
            own[num_nets] = j
            num_nets += 1
    return own, members, which


@kernel
def _hash_nets(begins, pin):
    hashes = np.zeros(len(begins) - 1, np.uint64)
    stream = key(0, 0)
    for j in range(len(hashes)):
        for k in range(begins[j], begins[j + 1]):
            hashes[j] += random_u64(stream, pin[k])
    return hashes


@kernel
def _count_incidence(begins, pin, chosen, indptr):
    for j in chosen:
        for k in range(begins[j], begins[j + 1]):
            indptr[pin[k] + 1] += 1


@kernel
def _fill_incidence(begins, pin, chosen, cursor, incidence):
    for i in range(len(chosen)):
        for k in range(begins[chosen[i]], begins[chosen[i] + 1]):
            incidence[cursor[pin[k]]] = i
            cursor[pin[k]] += 1


@kernel
def _count_volume(indptr, indices, parts, reader):
    """Rows sent in a subgraph: distinct (column, reading part) pairs with another owner.

    Rows are visited part by part, so one mark per column is enough.
    """
    order = np.argsort(parts, kind="mergesort")
    total = 0
    for i in range(len(order)):
        v = order[i]
        p = parts[v]
        for k in range(indptr[v], indptr[v + 1]):
            j = indices[k]
            if parts[j] != p and reader[j] != p:
                reader[j] = p
                total += 1
    reader[: len(parts)] = -1
    return total
