"""SNAP edge lists, Matrix Market files and OGB folders."""

import gzip

import numpy as np
import pytest

from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError

HEADER = "# Directed graph (each unordered pair of nodes is saved once): Wiki.txt\n# Nodes: 3 Edges: 3\n# FromNodeId\tToNodeId\n"


def write_gz(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write(text)
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_snap_targets_aggregate_from_sources_and_gaps_are_closed(tmp_path, zipped):
    text = HEADER + "30\t10\n10\t7000000000\n30\t7000000000\n"
    path = tmp_path / ("w.txt.gz" if zipped else "w.txt")
    if zipped:
        write_gz(path, text)
    else:
        path.write_text(text)
    graph = import_graph(path)
    assert graph.directed
    assert graph.indptr.tolist() == [0, 1, 1, 3]  # 10 ← 30; 7000000000 ← 10, 30
    assert graph.indices.tolist() == [1, 0, 1]
    assert graph.name == "w"
    assert graph.notices == ("renumbered 3 node ids between 10 and 7000000000 to 0 … 2",)


def test_snap_undirected_header_adds_reverses_unless_the_option_says_otherwise(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("# Undirected graph: ca.txt\n0 1\n1 2\n")
    graph = import_graph(path)
    assert (graph.directed, graph.num_edges, graph.num_entries, graph.notices) == (False, 2, 4, ())
    assert import_graph(path, directed=True).num_entries == 2


def test_snap_uneven_spacing_late_comments_and_extra_columns_are_read(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("0  1 17\n# note\n\n1\t2 18\n")
    graph = import_graph(path)
    assert graph.indices.tolist() == [0, 1]
    assert any("ignored 1 column after" in notice for notice in graph.notices)
    assert any("does not say whether it is directed" in notice for notice in graph.notices)


def test_snap_bad_line_is_named(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("# x\n0 1\n1 two\n")
    with pytest.raises(ShoalError, match=r"c\.txt: line 3 is '1 two': expected two integer ids"):
        import_graph(path)
    path.write_text("# only\n")
    with pytest.raises(ShoalError, match="holds no edge"):
        import_graph(path)
    cut = write_gz(tmp_path / "d.txt.gz", "".join(f"{i} {i * 7919 % 10007}\n" for i in range(10000)))
    cut.write_bytes(cut.read_bytes()[:-2000])
    with pytest.raises(ShoalError, match=r"d\.txt\.gz is truncated or damaged"):
        import_graph(cut)


def test_mtx_entry_is_an_arc_from_row_to_column(tmp_path):
    path = tmp_path / "g.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n% note\n3 3 2\n1 2 0.5\n1 3 2.0\n")
    graph = import_graph(path)
    assert graph.directed
    assert graph.indptr.tolist() == [0, 0, 1, 2]
    assert graph.indices.tolist() == [0, 0]
    assert graph.edge_weight.tolist() == [0.5, 2.0]
    assert not import_graph(path, directed=False).directed
    assert import_graph(path, weight="none").notices == ("ignored the real weights of g.mtx",)


def test_mtx_values_that_are_no_weights_are_left_out_and_every_entry_stays(tmp_path):
    path = tmp_path / "g.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n3 3 3\n1 2 0.5\n1 3 0\n2 3 -2\n")
    graph = import_graph(path)
    assert graph.num_edges == 3
    assert graph.edge_weight is None
    said = "ignored the weights of g.mtx: edge 2 has weight 0, expected numbers above 0"
    assert graph.notices == (said,)


def test_mtx_symmetric_pattern_is_undirected(tmp_path):
    path = write_gz(
        tmp_path / "s.mtx.gz", "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n2 1\n3 2\n3 3\n"
    )
    for directed in (None, False):
        graph = import_graph(path, directed=directed)
        assert (graph.directed, graph.indices.tolist(), graph.notices) == (False, [1, 0, 2, 1, 2], ())


def test_mtx_bad_files_are_refused(tmp_path):
    path = tmp_path / "g.mtx"
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n3 4 1\n1 2\n")
    with pytest.raises(ShoalError, match=r"g\.mtx is 3 × 4: expected a square matrix"):
        import_graph(path)
    path.write_text("%%MatrixMarket matrix array real general\n1 1\n1.0\n")
    with pytest.raises(ShoalError, match="in array format"):
        import_graph(path)
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n")
    with pytest.raises(ShoalError, match=r"g\.mtx"):
        import_graph(path)
    path.write_text("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 9\n")
    with pytest.raises(ShoalError, match=r"g\.mtx"):
        import_graph(path)
    rows = "".join(f"{i} {i * 7919 % 9973 + 1}\n" for i in range(1, 9000))
    cut = write_gz(
        tmp_path / "c.mtx.gz", f"%%MatrixMarket matrix coordinate pattern general\n10000 10000 8999\n{rows}"
    )
    cut.write_bytes(cut.read_bytes()[:-900])
    with pytest.raises(ShoalError, match=r"c\.mtx\.gz"):
        import_graph(cut)


def write_ogb(folder, edges="0,1\n0,2\n2,1\n", labels="1\n\n0\n", scheme="time"):
    write_gz(folder / "raw/edge.csv.gz", edges)
    write_gz(folder / "raw/node-feat.csv.gz", "0.5,1\n-1,2e-1\n3,4\n")
    write_gz(folder / "raw/node-label.csv.gz", labels)
    write_gz(folder / "raw/num-node-list.csv.gz", "3\n")
    write_gz(folder / "raw/num-edge-list.csv.gz", "3\n")
    for name, text in (("train", "2\n"), ("valid", "0\n"), ("test", "")):
        write_gz(folder / f"split/{scheme}/{name}.csv.gz", text or "0\n")
    return folder


def test_ogb_text_folder(tmp_path):
    folder = write_ogb(tmp_path / "ogbn_arxiv")
    write_gz(folder / "split/time/test.csv.gz", "2\n")
    write_gz(folder / "split/time/train.csv.gz", "0\n")
    write_gz(folder / "split/time/valid.csv.gz", "2\n")
    with pytest.raises(ShoalError, match="in val_mask and in test_mask"):
        import_graph(folder)
    write_gz(folder / "raw/node-label.csv.gz", "1.0\nnan\n0.0\n")
    write_gz(folder / "split/time/test.csv.gz", "1\n")
    with pytest.raises(ShoalError, match="node 1 is in test_mask but has no label"):
        import_graph(folder)
    write_gz(folder / "raw/node-label.csv.gz", "1\n2\n0\n")
    graph = import_graph(folder)
    assert graph.directed
    assert graph.indptr.tolist() == [0, 0, 2, 3]
    assert graph.indices.tolist() == [0, 2, 0]
    assert np.allclose(graph.x, [[0.5, 1], [-1, 0.2], [3, 4]])
    assert graph.y.tolist() == [1, 2, 0]
    assert graph.train_mask.tolist() == [True, False, False]
    assert graph.val_mask.tolist() == [False, False, True]


def test_ogb_products_gets_reverse_edges_and_the_option_wins(tmp_path):
    folder = write_ogb(tmp_path / "ogbn_products", labels="1\n0\n0\n")
    write_gz(folder / "split/time/test.csv.gz", "1\n")
    assert import_graph(folder).num_entries == 6
    assert import_graph(folder, directed=True).num_entries == 3
    with pytest.raises(ShoalError, match="unknown split"):
        import_graph(folder, split="sales")


def test_ogb_binary_folder_has_nan_labels(tmp_path):
    raw = tmp_path / "papers/raw"
    raw.mkdir(parents=True)
    np.savez(
        raw / "data.npz",
        edge_index=[[0, 2], [1, 1]],
        node_feat=np.eye(3, dtype=np.float16),
        node_year=[1, 2, 3],
    )
    np.savez(raw / "node-label.npz", node_label=np.array([[4.0], [np.nan], [0.0]], np.float32))
    graph = import_graph(tmp_path / "papers")
    assert graph.indices.tolist() == [0, 2]
    assert graph.y.tolist() == [4, -1, 0]
    assert graph.x.dtype == np.float32
    assert not graph.has_split


def test_ogb_bad_files_are_named(tmp_path):
    folder = write_ogb(tmp_path / "g", edges="0,1\n1,5\n")
    with pytest.raises(ShoalError, match=r"edge\.csv\.gz names node 5: the graph has 3 nodes"):
        import_graph(folder)
    write_ogb(folder, edges="0,1\n1\n")
    with pytest.raises(ShoalError, match=r"edge\.csv\.gz: line 2 has 1 columns: expected 2"):
        import_graph(folder)
    write_ogb(folder, edges="0,1\n1,x\n")
    with pytest.raises(ShoalError, match=r"edge\.csv\.gz: line 2 holds 'x'"):
        import_graph(folder)
    write_ogb(folder)
    write_gz(folder / "raw/node-feat.csv.gz", "1,2\n")
    with pytest.raises(ShoalError, match=r"node-feat\.csv\.gz has 1 rows but the graph has 3 nodes"):
        import_graph(folder)
    (folder / "raw/num-node-list.csv.gz").unlink()
    with pytest.raises(ShoalError, match=r"num-node-list\.csv\.gz does not exist"):
        import_graph(folder)
