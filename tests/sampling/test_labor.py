"""LABOR: the joint law of what rows keep, and that they share it."""

from collections import Counter
from itertools import product

import numpy as np

import shoal
from sampler_laws import SIGNIFICANCE, chi_square_p
from small_graphs import make_graph, make_labelled


def test_rows_keep_shared_neighbours_together_with_the_exact_joint_law():
    """Node 0 has degree 5 and node 1 degree 3, three neighbours in common, fan-out 2: a common one is kept by both with probability
    2/5, by node 1 only with 2/3 - 2/5, by none with 1/3."""
    graph = make_graph([(0, t) for t in range(2, 7)] + [(1, t) for t in range(2, 5)], 7)
    sampler = shoal.LaborSampler(graph, fanouts=(2,), batch_size=7, seed=3)
    law = {}
    for common, own in product(product(range(3), repeat=3), product((False, True), repeat=2)):
        p = np.prod([(2 / 5, 4 / 15, 1 / 3)[one] for one in common]) * np.prod(
            [(3 / 5, 2 / 5)[one] for one in own]
        )
        first = [t for t, one in zip((2, 3, 4), common) if one == 0] + [
            t for t, one in zip((5, 6), own) if one
        ]
        second = [t for t, one in zip((2, 3, 4), common) if one < 2]
        law[frozenset(first), frozenset(second)] = p
    counts = Counter()
    for k in range(6000):
        batch = sampler.sample(k)
        block = batch.blocks[0]
        kept = []
        for node in (0, 1):
            row = int(np.flatnonzero(batch.nodes[:7] == node)[0])
            kept.append(
                frozenset(
                    batch.nodes[block.indices[block.indptr[row] : block.indptr[row + 1]].numpy()].tolist()
                )
            )
        counts[tuple(kept)] += 1
    assert chi_square_p(counts, law) > SIGNIFICANCE


def test_a_layer_reads_fewer_nodes_than_neighbour_sampling_of_the_same_fan_out():
    graph = make_labelled(600)
    sizes = {
        sampler: np.mean(
            [sampler(graph, fanouts=(5,), batch_size=100, seed=1).sample(k).num_nodes for k in range(20)]
        )
        for sampler in (shoal.LaborSampler, shoal.NeighborSampler)
    }
    assert sizes[shoal.LaborSampler] < 0.95 * sizes[shoal.NeighborSampler]


def test_layers_draw_numbers_of_their_own():
    graph = make_labelled(200)
    first, last = shoal.LaborSampler(graph, fanouts=(2, 2), batch_size=200, seed=1).sample(0).blocks
    assert not np.array_equal(first.indices[: len(last.indices)], last.indices)
