"""More than 2³¹ entries: places in `indices` are 64-bit numbers everywhere. The files have holes and take no room."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest

from shoal.external import sum_counts
from shoal.graph import Graph
from shoal.kernels.bits import make_bitmap
from shoal.kernels.csr import induce_csr, sum_entries
from shoal.kernels.induce import SMALL_GRAPH, SubgraphExtractor
from shoal.kernels.order import propagate_labels, renumber_rows
from shoal.partitioning.methods.streaming import _stream
from shoal.rng import key
from shoal.sampling.neighbor import draw_neighbours
from shoal.sampling.walk import _walk
from shoal.store import META, open_graph
from shoal.verified import Verified

SHIFT = 2**31 + 12_345  # entries of row 0, which nothing reads


@pytest.fixture(scope="module", params=[500, SMALL_GRAPH + 100], ids=["small", "large"])
def patterns(request, tmp_path_factory):
    """A graph whose node 0 is isolated, and the same with rows that begin behind 2³¹ entries of row 0."""
    n = request.param
    ends = np.random.default_rng(0).integers(1, n, (2, 5 * n))
    small = Graph.from_edge_index(ends, n, directed=False)
    path = tmp_path_factory.mktemp("large") / "indices.npy"
    size = SHIFT + small.num_entries
    indices = np.lib.format.open_memmap(path, "w+", np.int32, (size,))
    indices[SHIFT:] = small.indices
    indptr = small.indptr.copy()
    indptr[1:] += SHIFT
    assert path.stat().st_blocks * 512 < 100 * n + (1 << 20)  # a hole
    return small, indptr, indices


@pytest.fixture
def nodes(patterns):
    return np.sort(np.random.default_rng(1).permutation(np.arange(1, patterns[0].num_nodes))[:300])


def test_induced_subgraphs_name_the_right_entries(patterns, nodes):
    small, indptr, indices = patterns
    scratch = np.full(small.num_nodes, -1, np.int32)
    few, many = (induce_csr(*p, nodes, scratch) for p in ((small.indptr, small.indices), (indptr, indices)))
    np.testing.assert_array_equal(few[0], many[0])
    np.testing.assert_array_equal(few[1], many[1])
    assert many[2].dtype == np.int64
    np.testing.assert_array_equal(few[2] + np.int64(SHIFT), many[2])
    found = SubgraphExtractor(indptr, indices).extract(nodes, with_entries=True)
    for one, other in zip(many, found):
        np.testing.assert_array_equal(one, other)


def test_sampled_neighbours_and_walks_are_those_of_the_small_graph(patterns, nodes):
    small, indptr, indices = patterns
    for draw in (
        lambda p, i: draw_neighbours(p, i, nodes, 3, np.uint64(key(1, 2)), 0, np.full(len(p), -1, np.int32)),
        lambda p, i: walk(p, i, nodes, small.num_nodes),
    ):
        for one, other in zip(draw(small.indptr, small.indices), draw(indptr, indices)):
            np.testing.assert_array_equal(one, other)


def walk(indptr, indices, nodes, n):
    visited = _walk(indptr, indices, nodes, 50, 4, 0, 3, make_bitmap(n))
    assert len(visited) > 100
    return (visited,)


def test_orders_partitions_and_checks_read_the_right_rows(patterns, nodes):
    small, indptr, indices = patterns
    n = small.num_nodes
    results = []
    for one in ((small.indptr, small.indices), (indptr, indices)):
        columns = np.empty(small.num_entries, np.int32)
        size = renumber_rows(*one, nodes, np.arange(n, dtype=np.int32)[::-1].copy(), columns)
        labels, sums = np.arange(n, dtype=np.int32), np.zeros(4, np.uint64)
        propagate_labels(*one, 1, n, 50, labels, np.ones(n, np.int32), np.zeros(n, np.int32))
        sum_entries(*one, 1, n, sums)
        parts, loads = np.full(n, -1, np.int32), np.zeros(4, np.int64)
        _stream(*one, 1, n, np.ones(n, np.int64), n / 3.0, parts, loads, np.zeros(4, np.int64))
        results.append((columns[:size], labels, sums, parts))
    for first, second in zip(*results):
        np.testing.assert_array_equal(first, second)
    assert len(np.unique(results[0][1])) < 0.9 * n
    assert (results[0][2][:2] == results[0][2][2:]).all()


def test_known_stored_graph_with_so_many_entries_opens_in_milliseconds(
    patterns, nodes, tmp_path, monkeypatch
):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    small, indptr, indices = patterns
    np.save(tmp_path / "indptr.npy", indptr)
    (tmp_path / "indices.npy").symlink_to(indices.filename)
    arrays = {
        name: {
            "file": f"{name}.npy",
            "dtype": str(array.dtype),
            "shape": [len(array)],
            "bytes": (tmp_path / f"{name}.npy").stat().st_size,
            "sha256": "",
        }
        for name, array in (("indptr", indptr), ("indices", indices))
    }
    sizes = {"num_nodes": small.num_nodes, "num_entries": len(indices), "num_edges": len(indices)}
    sizes |= {"num_features": 0, "num_classes": 0, "directed": True, "notices": [], "class_names": None}
    meta = {"format": "shoal-graph", "version": 1, "name": "g", "checksum": "", **sizes, "arrays": arrays}
    (tmp_path / META).write_text(json.dumps(meta))
    time.sleep(0.1)  # until a later change would bear another time
    Verified(meta, tmp_path, {entry["file"]: "" for entry in arrays.values()}).remember()
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        graph = open_graph(tmp_path)
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.05
    assert graph.num_entries == graph.num_edges == SHIFT + small.num_entries
    assert graph.degree[0] == SHIFT
    cut, expected = graph.subgraph(nodes), small.subgraph(nodes)
    np.testing.assert_array_equal(cut.indices, expected.indices)
    np.testing.assert_array_equal(cut.indptr, expected.indptr)


@pytest.mark.parametrize("at_once", [1, 2, 3, 100])
def test_counts_of_rows_add_up_beyond_32_bits(at_once):
    counts = np.array([0, 2**31, 5, 0, 2**40, 1], np.int64)
    indptr = counts.copy()
    sum_counts(indptr, at_once)
    assert indptr.tolist() == [0, 2**31, 2**31 + 5, 2**31 + 5, 2**31 + 5 + 2**40, 2**31 + 6 + 2**40]
