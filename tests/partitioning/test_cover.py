"""Minimum covers of what parts read of each other."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.csgraph import maximum_bipartite_matching

from shoal.datasets import load
from shoal.graph import Graph
from shoal.partitioning.cover import count_covers, cover_halo
from shoal.partitioning.methods.random import partition_at_random
from shoal.partitioning.part import split_graph


def split_block(part, owner):
    """The entries of a part's rows in the columns of one owner."""
    halo = sp.csr_array(
        (np.ones(len(part.halo_indices)), part.halo_indices, part.halo_indptr),
        shape=(part.num_local, part.num_halo),
    )
    return halo[:, part.halo_offsets[owner] : part.halo_offsets[owner + 1]].tocsr()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("num_parts", [2, 5])
def test_covers_cover_and_are_as_small_as_a_maximum_matching(directed, num_parts):
    rng = np.random.default_rng(num_parts)
    a = sp.random_array((300, 300), density=0.01, rng=rng)
    a = a if directed else a + a.T
    graph = Graph.from_scipy(a.tocsr(), directed=directed)
    assignment = partition_at_random(graph.num_nodes, num_parts, 1)
    sent = count_covers(graph, assignment, num_parts, threads=2)
    for part in split_graph(graph, assignment, num_parts):
        keep = cover_halo(part.halo_indptr, part.halo_indices, part.halo_offsets)
        for owner in range(num_parts):
            block = split_block(part, owner)
            kept = keep[part.halo_offsets[owner] : part.halo_offsets[owner + 1]]
            sums = (block[:, ~kept].sum(1) > 0).sum()
            matched = (maximum_bipartite_matching(block, perm_type="column") >= 0).sum() if block.nnz else 0
            assert kept.sum() + sums == matched == sent[owner, part.rank]


def test_covers_keep_as_many_rows_as_a_minimum_cover_can():
    """A star read both ways: one row for all leaves, or one sum for the centre; equal sizes keep rows."""
    indptr, offsets = np.array([0, 1, 2, 3]), np.array([0, 0, 3])
    assert cover_halo(indptr, np.array([0, 1, 2], np.int32), offsets).all()
    assert not cover_halo(np.array([0, 3]), np.array([0, 1, 2], np.int32), offsets).any()


def test_covers_of_a_power_law_graph_are_smaller_than_its_rows():
    graph = load("kronecker", scale=10, degree=12, seed=1)
    assignment = partition_at_random(graph.num_nodes, 4, 0)
    rows = sum(part.num_halo for part in split_graph(graph, assignment, 4))
    assert count_covers(graph, assignment, 4).sum() < 0.9 * rows
