"""LaborSampler: neighbour sampling whose rows share their random numbers, and so their neighbours (LABOR-0)."""

from __future__ import annotations

import numpy as np

from shoal.kernels.jit import kernel
from shoal.rng import key, random_u64, uniform
from shoal.sampling.base import SAMPLERS
from shoal.sampling.layered import Grown, sort_row
from shoal.sampling.neighbor import NeighborSampler


@SAMPLERS.register
class LaborSampler(NeighborSampler):
    """In each layer of a batch every node t has one uniform random number r_t; a node of degree d aggregates from its
    neighbour t if `r_t < min(1, fanout / d)`. A self loop is always kept and does not count.

    A node keeps `fanout` neighbours on average. Rows that share neighbours share r_t and keep the same ones, so that a
    layer reads fewer nodes than with `neighbor`. An entry's weight is multiplied by `max(1, d / fanout)`: mean and GCN
    aggregation are unbiased. This is LABOR-0, without the importance weights of LABOR-i. The factors are those of Horvitz
    and Thompson; the authors divide by the number of drawn neighbours instead.

    Cost: O(total degree of the rows) per layer.
    """

    name = "labor"

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        with self.borrow_numbers() as numbers:
            indptr, indices, columns, edge_norm = _draw_shared(
                self.graph.indptr,
                self.graph.indices,
                nodes,
                self.fanouts[layer],
                np.uint64(key(np.uint64(key(self.seed, k)), layer)),
                numbers,
            )
            numbers[columns] = -1
        return indptr, indices, columns, edge_norm


@kernel
def _draw_shared(indptr, indices, nodes, fanout, stream, numbers):
    room = 0
    for i in range(len(nodes)):
        room += indptr[nodes[i] + 1] - indptr[nodes[i]]
    sub_indptr = np.zeros(len(nodes) + 1, np.int64)
    sub_indices = np.empty(room, np.int32)
    edge_norm = np.empty(room, np.float32)
    columns = np.empty(len(nodes) + room, np.int64)
    for i in range(len(nodes)):
        columns[i] = nodes[i]
        numbers[nodes[i]] = i
    num_columns, size = len(nodes), 0
    for i in range(len(nodes)):
        start, end, first = indptr[nodes[i]], indptr[nodes[i] + 1], size
        degree = end - start
        for k in range(start, end):
            degree -= indices[k] == nodes[i]
        chance = 1.0 if fanout < 0 or degree <= fanout else fanout / degree
        for k in range(start, end):
            v = indices[k]
            if v != nodes[i] and chance < 1 and uniform(random_u64(stream, v)) >= chance:
                continue
            if numbers[v] < 0:
                numbers[v] = num_columns
                columns[num_columns] = v
                num_columns += 1
            sub_indices[size] = numbers[v]
            edge_norm[size] = 1.0 if v == nodes[i] else 1.0 / chance
            size += 1
        sort_row(sub_indices[first:size], edge_norm[first:size])
        sub_indptr[i + 1] = size
    return sub_indptr, sub_indices[:size].copy(), columns[:num_columns].copy(), edge_norm[:size].copy()
