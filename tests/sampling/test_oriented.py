"""The oriented form of a stored graph is made once, kept in Shoal's home, and left out where memory is short."""

import mmap
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest

import shoal
from forked import fork, wait
from shoal import array_files
from shoal.kernels.orient import OrientedGraph
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


def test_a_large_file_is_read_only_where_it_has_changed(stored, monkeypatch):
    monkeypatch.setattr(oriented, "LEAST_TRUSTED", 0)
    graph = shoal.open_graph(stored)
    right = orient_graph(graph).indices.copy()

    def fail(*args):
        raise AssertionError("the whole file was read")

    with monkeypatch.context() as patched:
        patched.setattr(oriented.zlib, "crc32", fail)
        assert np.array_equal(orient_graph(graph).indices, right)
    path = find_folder(graph) / "indices.npy"
    before = path.stat().st_mtime_ns
    array = np.lib.format.open_memmap(path, mode="r+")
    array[700] = 10**6
    array.flush()
    os.utime(path, ns=(before, before + 1))  # whatever the clock's steps are
    assert np.array_equal(orient_graph(graph).indices, right)


def test_pieces_of_rows_make_the_same_files(stored, monkeypatch):
    graph = shoal.open_graph(stored)
    whole = OrientedGraph(graph.indptr, graph.indices)
    monkeypatch.setattr("shoal.kernels.orient._ENTRIES_AT_ONCE", 100)  # fewer than a hub has
    assert np.diff(graph.indptr).max() > 100
    made = orient_graph(graph)
    assert np.array_equal(made.indptr, whole.indptr)
    assert np.array_equal(made.indices, whole.indices)


def test_a_disk_without_room_costs_only_the_file(stored, monkeypatch):
    graph = shoal.open_graph(stored)

    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(oriented, "flush_tree", fail)
    assert len(orient_graph(graph).indices) == graph.num_edges
    assert not list(find_folder(graph).parent.iterdir())


def test_what_a_killed_process_left_is_removed(stored, monkeypatch):
    graph = shoal.open_graph(stored)
    folder = find_folder(graph)

    def die(*args):
        os.kill(os.getpid(), signal.SIGKILL)

    def be_killed():
        monkeypatch.setattr(oriented, "flush_tree", die)
        orient_graph(graph)

    code = wait(fork(be_killed))
    assert code == -signal.SIGKILL
    left = [path.name for path in folder.parent.iterdir()]
    assert [name for name in left if name.endswith(".partial")], left
    assert len(orient_graph(graph).indices) == graph.num_edges
    assert list(folder.parent.iterdir()) == [folder]


def test_graphs_that_are_small_or_not_stored_are_not_kept(stored, tmp_path):
    in_memory = shoal.load("kronecker", scale=10, degree=16, num_features=4)
    assert find_folder(in_memory) is None
    assert len(orient_graph(in_memory).indices) == in_memory.num_edges
    small = shoal.save_graph(shoal.load("kronecker", scale=5, num_features=4), tmp_path / "small")
    assert find_folder(shoal.open_graph(small)) is None
    assert not (tmp_path / "home" / "oriented").exists()


def list_flags(path):
    """What was asked for the maps of a file (VmFlags of /proc/self/smaps)."""
    flags, inside = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            inside = line.endswith(str(path))
        elif inside and line.startswith("VmFlags:"):
            flags.append(line.split()[1:])
    return flags


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages")
@pytest.mark.parametrize("free", [10**9, 1000])
def test_files_that_fit_are_mapped_by_large_pages(stored, monkeypatch, free):
    monkeypatch.setattr(array_files, "_WORTH_LARGE_PAGES", 1)
    monkeypatch.setattr(array_files, "available_memory", lambda: free)
    graph = shoal.open_graph(stored)
    sampler = shoal.NodeSampler(graph, budget=60)
    made = orient_graph(graph)
    files = [stored / "indptr.npy", stored / "indices.npy", find_folder(graph) / "indices.npy"]
    for path in files:
        assert ["hg" in flags for flags in list_flags(path)] == [free == 10**9], path
    assert not any("hg" in flags for flags in list_flags(stored / "x.npy"))
    del made, sampler
