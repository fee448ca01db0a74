"""The oriented form of a stored graph is made once, kept in Shoal's home, and left out where memory is short."""

import numpy as np
import pytest

import shoal
from shoal.memory import set_memory_budget
from shoal.sampling import oriented
from shoal.sampling.oriented import find_folder, orient_graph


@pytest.fixture
def stored(tmp_path, monkeypatch):
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(oriented, "LEAST_KEPT", 1000)
    graph = shoal.load("kronecker", scale=10, degree=16, num_features=4)
    return shoal.save_graph(graph, tmp_path / "graph")


def test_the_second_process_reads_what_the_first_has_made(stored, monkeypatch):
    graph = shoal.open_graph(stored)
    made = orient_graph(graph)
    assert len(made.indices) == graph.num_edges
    names = sorted(path.name for path in find_folder(graph).iterdir())
    assert names == ["indices.npy", "indptr.npy", "sums.json"]
    first = shoal.NodeSampler(graph, budget=60).sample(3)

    def fail(*args):
        raise AssertionError("oriented again")

    monkeypatch.setattr("shoal.kernels.orient._keep_lower", fail)
    set_memory_budget(1)  # pages of a file take none
    try:
        again = orient_graph(shoal.open_graph(stored))
    finally:
        set_memory_budget(None)
    assert np.array_equal(made.indptr, again.indptr)
    assert np.array_equal(made.indices, again.indices)
    assert np.array_equal(made.places, again.places)
    second = shoal.NodeSampler(shoal.open_graph(stored), budget=60).sample(3)
    assert np.array_equal(first.nodes, second.nodes)
    assert first.blocks[0].indices.equal(second.blocks[0].indices)


def test_a_graph_is_not_oriented_where_memory_is_short(stored):
    set_memory_budget(1)
    try:
        assert orient_graph(shoal.open_graph(stored)) is None
    finally:
        set_memory_budget(None)


def test_a_damaged_file_is_made_again(stored):
    graph = shoal.open_graph(stored)
    made = orient_graph(graph).indices.copy()
    path = find_folder(graph) / "indices.npy"
    path.write_bytes(path.read_bytes()[:-8])
    assert np.array_equal(orient_graph(graph).indices, made)
    assert len(np.load(path)) == len(made)


@pytest.mark.parametrize(
    ("name", "place", "value"), [("indices", 700, 10**6), ("indptr", 500, 3), ("indptr", 0, 1)]
)
def test_wrong_numbers_in_a_file_are_made_again(stored, name, place, value):
    graph = shoal.open_graph(stored)
    right = getattr(orient_graph(graph), name).copy()
    array = np.lib.format.open_memmap(find_folder(graph) / f"{name}.npy", mode="r+")
    array[place] = value
    array.flush()
    assert np.array_equal(getattr(orient_graph(graph), name), right)
    assert np.array_equal(np.load(find_folder(graph) / f"{name}.npy"), right)


def test_graphs_that_are_small_or_not_stored_are_not_kept(stored, tmp_path):
    in_memory = shoal.load("kronecker", scale=10, degree=16, num_features=4)
    assert find_folder(in_memory) is None
    assert len(orient_graph(in_memory).indices) == in_memory.num_edges
    small = shoal.save_graph(shoal.load("kronecker", scale=5, num_features=4), tmp_path / "small")
    assert find_folder(shoal.open_graph(small)) is None
    assert not (tmp_path / "home" / "oriented").exists()
