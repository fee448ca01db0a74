"""NeighborSampler: every node aggregates from a few random neighbours, layer by layer (GraphSAGE)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from shoal.checks import MAX_NODES, check_whole
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.jit import kernel
from shoal.rng import below, key, random_u64
from shoal.sampling.base import SAMPLERS, TrainingGraph
from shoal.sampling.layered import Grown, LayeredSampler, sort_row
from shoal.sampling.targets import BatchSize
from shoal.settings import Seed, check_settings

ALL = -1


def check_fanouts(fanouts: Sequence[int] | int | str, name: str = "fanouts") -> list[int]:
    """Fan-outs as a list, from `"25-10"`, a number or a sequence; `name` is what the caller calls them."""
    said = "expected one for each layer, such as 25-10 or [25, -1]"
    if isinstance(fanouts, str):
        parts = fanouts.split("-")
        if not all(part.isdigit() for part in parts):
            raise ShoalError(f"{name} is {fanouts!r}: {said}")
        fanouts = [int(part) for part in parts]
    found = [fanouts] if isinstance(fanouts, int) else list(fanouts)
    if not found:
        raise ShoalError(f"{name} is empty: {said}")
    return [one if one == ALL else check_whole(name, one, 1, MAX_NODES) for one in found]


@SAMPLERS.register
class NeighborSampler(LayeredSampler):
    """Each node of a layer aggregates from `fanout` of its neighbours, drawn uniformly without replacement; from all
    of them if it has no more, or if the fan-out is -1. A self loop is always kept and does not count.

    An entry's weight is multiplied by deg / drawn: the mean over all neighbours becomes the mean over the drawn ones,
    and GCN's weighted sum stays unbiased. The number of nodes grows by up to the fan-out per layer:
    `batch.nodes_per_layer` shows it.

    Fan-outs are given as in PyG: (25, 10) draws 25 neighbours of every output node and 10 of each of those;
    "25-10" is the same.

    Cost: O(entries drawn).

    Args:
        outputs: output nodes, as numbers or a mask. None: the training nodes.
        shuffle: give the output nodes a new order every epoch.
    """

    name = "neighbor"

    @check_settings
    def __init__(
        self,
        graph: Graph,
        *,
        fanouts: Annotated[
            Sequence[int] | int | str,
            "neighbours drawn for a node, one number for each layer, output layer first; -1 for all",
        ] = (25, 10),
        batch_size: BatchSize = 1000,
        setting: TrainingGraph = "transductive",
        seed: Seed = 0,
        outputs: Any = None,
        shuffle: bool = True,
    ) -> None:
        self.fanouts = check_fanouts(fanouts)
        super().__init__(
            graph,
            batch_size=batch_size,
            num_layers=len(self.fanouts),
            setting=setting,
            seed=seed,
            outputs=outputs,
            shuffle=shuffle,
        )

    def grow(self, nodes: np.ndarray, layer: int, k: int) -> Grown:
        with self.borrow_numbers() as numbers:
            indptr, indices, columns, edge_norm = draw_neighbours(
                self.graph.indptr,
                self.graph.indices,
                nodes,
                self.fanouts[layer],
                np.uint64(key(self.seed, k)),
                layer << 48,
                numbers,
            )
            numbers[columns] = -1
        return indptr, indices, columns, edge_norm


@kernel
def draw_neighbours(indptr, indices, nodes, fanout, stream, counter, numbers):
    """(indptr, indices, columns, edge_norm) of a block whose rows have `fanout` drawn neighbours each, all if negative.

    `numbers` has -1 for every node; afterwards it has the position of every column.
    """
    room = 0
    for i in range(len(nodes)):
        degree = indptr[nodes[i] + 1] - indptr[nodes[i]]
        room += degree if fanout < 0 else min(degree, fanout + 1)
    sub_indptr = np.zeros(len(nodes) + 1, np.int64)
    sub_indices = np.empty(room, np.int32)
    edge_norm = np.empty(room, np.float32)
    columns = np.empty(len(nodes) + room, np.int64)
    for i in range(len(nodes)):
        columns[i] = nodes[i]
        numbers[nodes[i]] = i
    num_columns, size = len(nodes), 0
    places = np.empty(max(fanout, 0), np.int64)
    for i in range(len(nodes)):
        start, end, first = indptr[nodes[i]], indptr[nodes[i] + 1], size
        loop = _find_column(indices, start, end, nodes[i])
        if loop < end:  # a self loop: always kept, never drawn
            sub_indices[size] = i
            edge_norm[size] = 1.0
            size += 1
        degree = end - start - (loop < end)
        num_drawn = degree if fanout < 0 else min(degree, fanout)
        for j in range(num_drawn):
            place = j
            if num_drawn < degree:  # Floyd's algorithm for a random set
                top = degree - num_drawn + j
                place = below(random_u64(stream, counter), top + 1)
                counter += 1
                for other in range(j):
                    if places[other] == place:
                        place = top
                        break
                places[j] = place
            v = indices[start + place + (start + place >= loop)]
            if numbers[v] < 0:
                numbers[v] = num_columns
                columns[num_columns] = v
                num_columns += 1
            sub_indices[size] = numbers[v]
            edge_norm[size] = degree / num_drawn
            size += 1
        sort_row(sub_indices[first:size], edge_norm[first:size])
        sub_indptr[i + 1] = size
    return sub_indptr, sub_indices[:size].copy(), columns[:num_columns].copy(), edge_norm[:size].copy()


@kernel
def _find_column(indices, start, end, column):
    """Where a row lists `column`, or `end` if it does not."""
    low, high = start, end
    while low < high:
        middle = (low + high) >> 1
        if indices[middle] < column:
            low = middle + 1
        else:
            high = middle
    return low if low < end and indices[low] == column else end
