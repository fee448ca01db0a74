"""Graphs built on disk: the same bytes as in memory, and nothing left beside them."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.build import build_csr
from shoal.memory import anonymous_memory, set_memory_budget
from shoal.store import open_graph, save_graph, verify_graph
from shoal.workspace import Rows, find_workspace, open_workspace


@pytest.fixture(autouse=True)
def no_budget():
    yield
    set_memory_budget(None)


def draw_chunks(seed: int, n: int, edges: int, chunks: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Edges with a hub, loops, repeats and reverses."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n, (2, edges))
    ends[0, : edges // 4] = 3  # a row that fills several runs by itself
    ends[:, -10:] = ends[::-1, :10]
    ends[0, 20:30] = ends[1, 20:30]
    return list(zip(np.array_split(ends[0], chunks), np.array_split(ends[1], chunks)))


def read_folder(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("directed", [True, False, None])
@pytest.mark.parametrize("n", [7, 5000])
def test_graph_built_on_disk_is_the_one_built_in_memory_to_the_byte(tmp_path, n, directed):
    chunks = tuple(draw_chunks(1, n, 40_000, 9))
    x = np.random.default_rng(0).random((n, 3), np.float32)
    save_graph(Graph.from_edge_chunks(chunks, n, directed=directed, x=x), tmp_path / "memory")
    with open_workspace(tmp_path / "disk") as place:
        set_memory_budget(0)
        graph = Graph.from_edge_chunks(iter(chunks), n, directed=directed, x=x)
        assert isinstance(graph.indices, np.memmap)
        assert [path.name for path in sorted(place.folder.iterdir())] == ["indices.npy", "indptr.npy"]
        save_graph(graph, tmp_path / "disk")
    assert read_folder(tmp_path / "memory") == read_folder(tmp_path / "disk")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "memory"]
    assert verify_graph(tmp_path / "disk") == []


def test_edges_beyond_the_budget_spill_whatever_was_expected(tmp_path):
    chunks = draw_chunks(2, 1000, 3_000_000, 30)
    indptr, indices, merged = build_csr([(t, s) for s, t in chunks], 1000, 1000)
    with open_workspace(tmp_path / "g"):
        set_memory_budget(anonymous_memory() + (20 << 20))  # 72 MB are needed
        graph = Graph.from_edge_chunks(iter(chunks), 1000, directed=True)
    assert isinstance(graph.indices, np.memmap)
    np.testing.assert_array_equal(graph.indptr, indptr)
    np.testing.assert_array_equal(graph.indices, indices)
    assert graph.notices == (f"merged {merged:,} duplicate edges",)


def test_graph_that_fits_is_built_in_memory(tmp_path):
    with open_workspace(tmp_path / "g") as place:
        graph = Graph.from_edge_chunks(draw_chunks(3, 100, 1000, 2), 100)
        assert not isinstance(graph.indices, np.memmap)
        assert list(place.folder.iterdir()) == []


def test_no_edges_on_disk_are_empty_rows(tmp_path):
    with open_workspace(tmp_path / "g"):
        set_memory_budget(0)
        graph = Graph.from_edge_chunks([], 4, directed=True, expected=10)
        save_graph(graph, tmp_path / "g")
    assert open_graph(tmp_path / "g").indptr.tolist() == [0, 0, 0, 0, 0]


def test_progress_counts_up_to_all_edges(tmp_path):
    seen = {}
    with open_workspace(
        tmp_path / "g", lambda what, done, total: seen.setdefault(what, []).append((done, total))
    ):
        set_memory_budget(0)
        Graph.from_edge_chunks(draw_chunks(4, 50, 20_000, 5), 50, directed=True, expected=20_000)
    assert seen["edges"] == [(4000 * i, 20_000) for i in range(1, 6)]
    done, total = zip(*seen["merging edges"])
    assert list(done) == sorted(done)
    assert done[-1] == total[-1]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ShoalError])
def test_interrupted_build_leaves_nothing(tmp_path, error):
    def chunks():
        yield from draw_chunks(5, 100, 10_000, 3)
        raise error("stop")

    set_memory_budget(0)
    with pytest.raises(error, match="stop"), open_workspace(tmp_path / "g"):
        Graph.from_edge_chunks(chunks(), 100)
    assert list(tmp_path.iterdir()) == []
    assert find_workspace() is None


def test_too_small_a_disk_is_refused_before_anything_is_sorted(tmp_path, monkeypatch):
    disk = type("usage", (), {"free": 100_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: disk)
    set_memory_budget(0)
    with open_workspace(tmp_path / "g"), pytest.raises(ShoalError) as said:
        Graph.from_edge_chunks(iter([]), 1000, directed=False, expected=10_000_000)
    assert str(said.value).startswith("sorting 20,000,000 entries takes 240.0 MB beside")
    assert "where 32.9 MB are free: free 207.1 MB, or choose another disk" in str(said.value)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("spare", [0, 1 << 30])
def test_rows_are_the_same_in_memory_and_on_disk(tmp_path, known, spare):
    blocks = [np.full((size, 5), size, np.float32) for size in (3, 0, 1000, 40_000)]
    with open_workspace(tmp_path / "g") as place:
        set_memory_budget(anonymous_memory() + spare)
        rows = Rows("x", np.float32, (5,), 41_003 if known else None)
        for block in blocks:
            rows.append(block)
        x = rows.finish()
        assert isinstance(x, np.memmap) == (spare == 0)
        assert (place.folder / "x.npy").exists() == (spare == 0)
        np.testing.assert_array_equal(x, np.concatenate(blocks))
        n = len(x)
        save_graph(Graph.from_edge_chunks([], n, x=x), tmp_path / "g")
    assert verify_graph(tmp_path / "g") == []


def write_sources(folder, n: int, edges: int) -> dict[str, tuple[object, dict]]:
    """The same graph in several formats, with text and number ids, features and labels."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(7)
    ends = rng.integers(0, n, (2, edges))
    lines = "\n".join(f"{5 * s}\t{5 * t}" for s, t in ends.T)
    (folder / "snap.txt").write_text(f"# Directed graph\n{lines}\n")
    table = folder / "table"
    table.mkdir()
    (table / "edges.csv").write_text("source,target\n" + "\n".join(f"n{s},n{t}" for s, t in ends.T) + "\n")
    x = rng.random((n, 6)).astype(np.float32)
    ids = [f"n{i}" for i in range(n)]
    label = pa.array(rng.integers(0, 3, n))
    pq.write_table(pa.table({"id": ids, "label": label, "f": list(x)}), table / "nodes.parquet")
    pq.write_table(pa.table({"src": ends[0], "dst": ends[1]}), folder / "plain.parquet")
    graph = Graph.from_edge_index(ends, n)
    np.savez_compressed(
        folder / "packed.npz", indptr=graph.indptr, indices=graph.indices, x=x.astype(np.float64)
    )
    ogb = folder / "ogb" / "raw"
    ogb.mkdir(parents=True)
    np.savez(ogb / "data.npz", edge_index=ends, node_feat=x.astype(np.float16), num_nodes_list=np.array([n]))
    text = folder / "ogb-text" / "raw"
    text.mkdir(parents=True)
    for name, rows in {"edge": ends.T, "node-feat": x, "num-node-list": [[n]]}.items():
        with gzip.open(text / f"{name}.csv.gz", "wt") as file:
            file.writelines(",".join(map(str, row)) + "\n" for row in rows)
    np.save(folder / "ends.npy", ends.T)
    named = ("ends.npy", "snap.txt", "table", "plain.parquet", "packed.npz", "ogb", "ogb-text")
    return {name: folder / name for name in named}


def test_every_large_format_imports_on_disk_what_it_imports_in_memory(tmp_path):
    from shoal.datasets.importers import import_graph

    for name, source in write_sources(tmp_path, 3000, 9000).items():
        for place, budget in (("memory", None), ("disk", 0)):
            set_memory_budget(budget)
            target = tmp_path / f"{name}-{place}"
            with open_workspace(target) as workspace:
                graph = import_graph(source, name="g")
                assert isinstance(graph.indices, np.memmap) == (place == "disk")
                built = [path.name for path in workspace.folder.glob("x*.npy")]
                assert len(built) == (place == "disk" and graph.x is not None) or name == "packed.npz"
                save_graph(graph, target)
        assert read_folder(tmp_path / f"{name}-memory") == read_folder(tmp_path / f"{name}-disk"), name
    assert [path.name for path in tmp_path.glob(".*")] == []
