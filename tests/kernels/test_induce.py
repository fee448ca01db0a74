"""SubgraphExtractor equals the plain induced subgraph, on small and large graphs, again and again."""

import gc
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import shoal
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.bits import make_bitmap, mark, take_marked
from shoal.kernels.build import build_csr
from shoal.kernels.csr import induce_csr
from shoal.kernels.induce import FILTER_BITS, SMALL_GRAPH, SubgraphExtractor
from shoal.kernels.orient import OrientedExtractor, OrientedGraph


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_edges=st.integers(0, 4000))
@pytest.mark.parametrize(
    "ids",
    [
        np.arange(300),
        SMALL_GRAPH + np.arange(300),
        np.concatenate([np.arange(150), FILTER_BITS + np.arange(150)]),  # pairs that the filter takes for one
    ],
    ids=["small", "large", "colliding"],
)
def test_extraction_equals_the_plain_version(ids, seed, num_edges):
    """Random graphs with hubs, empty rows, self loops; nodes crowd into 300 ids so that edges survive."""
    generator = np.random.default_rng(seed)
    num_nodes = int(ids[-1]) + 1
    ends = ids[np.minimum(generator.geometric(0.02, (2, num_edges)), 300) - 1]
    indptr, indices, _ = build_csr([(ends[0], ends[1])], num_nodes, num_nodes)
    extractor = SubgraphExtractor(indptr, indices)
    for _ in range(3):
        nodes = ids[generator.random(300) < generator.random()]
        plain = induce_csr(indptr, indices, nodes, np.full(num_nodes, -1, np.int32))
        for ours, theirs in zip(extractor.extract(nodes, with_entries=True), plain):
            assert np.array_equal(ours, theirs)
        values = generator.random(len(indices), np.float32)
        assert np.array_equal(extractor.extract(nodes, values=values)[2], values[plain[2]])
        without = extractor.extract(nodes)
        assert np.array_equal(without[1], plain[1])
        assert without[2] is None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_edges=st.integers(0, 4000))
def test_extraction_from_edges_kept_once_equals_the_plain_version(seed, num_edges):
    """Undirected graphs with hubs, empty rows and self loops."""
    generator = np.random.default_rng(seed)
    ends = np.minimum(generator.geometric(0.02, (2, num_edges)), 300) - 1
    indptr, indices, _ = build_csr([(ends[0], ends[1])], 300, 300, symmetrize=True)
    oriented = OrientedGraph(indptr, indices)
    assert oriented.indptr[-1] == (len(indices) + np.count_nonzero(find_rows(indptr) == indices)) // 2
    extractor = OrientedExtractor(oriented)
    for _ in range(3):
        nodes = np.flatnonzero(generator.random(300) < generator.random())
        plain = induce_csr(indptr, indices, nodes, np.full(300, -1, np.int32))
        for ours, theirs in zip(extractor.extract(nodes, with_entries=True), plain):
            assert np.array_equal(ours, theirs)
        values = generator.random(len(indices), np.float32)
        assert np.array_equal(extractor.extract(nodes, values=values)[2], values[plain[2]])
        without = extractor.extract(nodes)
        assert np.array_equal(without[1], plain[1])
        assert without[2] is None


def test_nodes_that_share_a_bit_of_the_filter_are_told_apart():
    """Numbers that differ by multiples of the filter's size, on a graph larger than it."""
    generator = np.random.default_rng(5)
    ids = (FILTER_BITS * np.arange(4)[:, None] + np.arange(60)).ravel()
    ends = ids[np.minimum(generator.geometric(0.02, (2, 3000)), len(ids)) - 1]
    n = 4 * FILTER_BITS
    indptr, indices, _ = build_csr([(ends[0], ends[1])], n, n, symmetrize=True)
    for extractor in (OrientedExtractor(OrientedGraph(indptr, indices)), SubgraphExtractor(indptr, indices)):
        for share in (0.2, 0.5, 0.9):
            nodes = ids[generator.random(len(ids)) < share]
            plain = induce_csr(indptr, indices, nodes, np.full(n, -1, np.int32))
            assert len(plain[1])
            for ours, theirs in zip(extractor.extract(nodes, with_entries=True), plain):
                assert np.array_equal(ours, theirs)


def test_an_edge_is_kept_at_its_end_of_lower_degree():
    """A star with one edge between two of its leaves: nothing is left of the hub's row."""
    ends = np.array([[0, 1], [0, 2], [0, 3], [0, 4], [3, 4]]).T
    indptr, indices, _ = build_csr([(ends[0], ends[1])], 5, 5, symmetrize=True)
    oriented = OrientedGraph(indptr, indices)
    assert np.diff(oriented.indptr).tolist() == [0, 1, 1, 2, 1]
    assert oriented.indices[:5].tolist() == [0, 0, 0, 4, 0]


def find_rows(indptr):
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))


@pytest.mark.parametrize("most", [1, 1 << 28])
@pytest.mark.parametrize(("skewed", "budget"), [(True, 100), (True, 4000), (False, 100)])
def test_samplers_take_edges_once_where_the_graph_is_skewed_and_little_is_found(
    skewed, budget, most, monkeypatch
):
    """And batches are the same either way."""
    n = 1 << 13
    if skewed:
        graph = shoal.load("kronecker", scale=13, degree=24, num_features=0, seed=1)
    else:
        ends = np.random.default_rng(0).integers(0, n, (2, 12 * n))
        graph = shoal.Graph.from_edge_index(ends, n, directed=False)
    sampler = shoal.FrontierSampler(graph, budget=budget, frontier=50)
    assert (sampler._oriented is not None) == (skewed and budget == 100)
    nodes = sampler.draw_nodes(1)
    plain = induce_csr(graph.indptr, graph.indices, nodes, np.full(n, -1, np.int32))
    monkeypatch.setattr("shoal.sampling.base.MOST_PLACED", most)
    for with_entries in (True, False, True):  # a graph too large for places keeps both ways
        for ours, theirs in zip(sampler.extract(nodes, with_entries=with_entries)[: 2 + with_entries], plain):
            assert np.array_equal(ours, theirs)
    if sampler._oriented is not None:
        assert (sampler._oriented._places is None) == (most == 1)


@settings(deadline=None)
@given(st.sampled_from([1, 64, 65, 501, 4096, 4097, 64 * 4096, 300_001]), st.data())
def test_a_bitmap_gives_back_its_nodes_in_order_and_is_empty_after(num_nodes, data):
    nodes = data.draw(st.sets(st.integers(0, num_nodes - 1)))
    bitmap = make_bitmap(num_nodes)
    assert sum(mark(bitmap, v) for v in [*nodes, *nodes]) == len(nodes)
    assert take_marked(bitmap, len(nodes)).tolist() == sorted(nodes)
    assert not bitmap.any()


def test_an_operator_and_its_transpose_are_freed_without_garbage_collection():
    """Batches come by the thousand: one kept until the collector runs costs fresh memory for the next."""
    gc.disable()
    try:
        adjacency = Adjacency.from_scipy(sp.random_array((30, 20), density=0.2, rng=np.random.default_rng(0)))
        transpose = adjacency.transpose()
        assert transpose.transpose() is adjacency
        gone = weakref.ref(adjacency)
        del adjacency, transpose
        assert gone() is None
    finally:
        gc.enable()
