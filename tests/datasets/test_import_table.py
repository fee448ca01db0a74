"""CSV and Parquet tables: ids, features, labels, split, and errors that name the place."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.datasets.importers import import_graph, tabular
from shoal.errors import ShoalError

NODES = "id,f1,label,f2,split\nz,1.5,cat,2,train\na,0,dog,3,val\nm,-1,,4,\n"


def write(folder, edges, nodes=None):
    (folder / "edges.csv").write_text(edges)
    if nodes is not None:
        (folder / "nodes.csv").write_text(nodes)
    return folder


def test_csv_folder_with_node_table(tmp_path):
    graph = import_graph(write(tmp_path, "weight,to,from\n1,a,z\n2,m,z\n", NODES))
    assert graph.directed
    assert graph.indptr.tolist() == [0, 0, 1, 2]  # rows z, a, m in table order; z → a, z → m
    assert graph.indices.tolist() == [0, 0]
    assert graph.x.tolist() == [[1.5, 2], [0, 3], [-1, 4]]
    assert graph.y.tolist() == [0, 1, -1]
    assert graph.train_mask.tolist() == [True, False, False]
    assert graph.val_mask.tolist() == [False, True, False]
    assert graph.test_mask.tolist() == [False, False, False]
    assert "numbered the classes: 0 = cat, 1 = dog" in graph.notices
    assert graph.edge_weight.tolist() == [1, 2]


def test_a_column_called_splits_is_the_split(tmp_path):
    write(tmp_path, "weight,to,from\n1,a,z\n2,m,z\n", NODES.replace("split", "splits"))
    graph = import_graph(tmp_path)
    assert graph.train_mask.tolist() == [True, False, False]
    assert graph.x.tolist() == [[1.5, 2], [0, 3], [-1, 4]]
    write(tmp_path, "weight,to,from\n1,a,z\n", "id,splits,label\nz,train,cat\na,trian,dog\n")
    with pytest.raises(ShoalError, match=r"column 'splits' holds 'trian' in row 2: expected train, val"):
        import_graph(tmp_path)
    numbers = "id,splits,label\nz,1,cat\na,2,dog\nm,4,cat\n"
    graph = import_graph(write(tmp_path, "weight,to,from\n1,a,z\n2,m,z\n", numbers))
    assert (graph.train_mask, graph.num_features) == (None, 1)


def test_ids_without_a_node_table_are_numbered_in_order(tmp_path):
    graph = import_graph(write(tmp_path, "source,target\n10,9\n9,-1\n"))
    assert graph.indices.tolist() == [1, 2]  # -1, 9, 10 numerically: -1 ← 9, 9 ← 10
    graph = import_graph(write(tmp_path, "source,target\nb10,b9\nb9,a\n"))
    assert graph.indices.tolist() == [2, 1]  # a, b10, b9 as text: a ← b9, b9 ← b10
    assert graph.indptr.tolist() == [0, 1, 1, 2]


def test_leading_zeros_stay_apart(tmp_path):
    assert import_graph(write(tmp_path, "source,target\n007,7\n")).num_nodes == 2


def test_edge_file_without_names_keeps_its_first_edge(tmp_path):
    graph = import_graph(write(tmp_path, "0,1\n1,2\n") / "edges.csv", directed=False)
    assert (graph.num_edges, graph.name) == (2, "edges")
    assert any("no header line" in notice for notice in graph.notices)


@pytest.mark.parametrize("kind", ["int64", "int32", "string", "large_string", "dictionary"])
def test_parquet_of_every_id_type(tmp_path, kind):
    def ids(values):
        if kind.startswith("int"):
            return pa.array(values, getattr(pa, kind)())
        text = pa.array([f"n{value}" for value in values])
        return text.dictionary_encode() if kind == "dictionary" else text.cast(getattr(pa, kind)())

    pq.write_table(
        pa.table({"src": ids([5, 5, 3]), "dst": ids([3, 900000000, 5])}), tmp_path / "edges.parquet"
    )
    vectors = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.float32(), 2))
    table = pa.table(
        {"id": ids([3, 5, 900000000]), "v": vectors, "k": [7, 8, 9], "y": pa.array([1, None, 0])}
    )
    pq.write_table(table, tmp_path / "nodes.parquet")
    graph = import_graph(tmp_path)
    assert graph.indptr.tolist() == [0, 1, 2, 3]
    assert graph.indices.tolist() == [1, 0, 1]
    assert graph.x.tolist() == [[1, 2, 7], [3, 4, 8], [5, 6, 9]]
    assert graph.y.tolist() == [1, -1, 0]


def test_many_batches_equal_one(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 500, (2, 5000)) * 1_000_003
    for name, convert in (
        ("i", lambda column: pa.array(column)),
        ("s", lambda column: pa.array(map(str, column))),
    ):
        pq.write_table(
            pa.table([convert(end) for end in ends], ["source", "target"]), tmp_path / f"{name}.parquet"
        )
    (tmp_path / "c.csv").write_text("source,target\n" + "".join(f"{u},{v}\n" for u, v in ends.T))
    expected = import_graph(tmp_path / "i.parquet")
    monkeypatch.setattr(tabular.TableFile.batches, "__defaults__", (97,))
    monkeypatch.setattr(tabular, "BLOCK_BYTES", 4096)
    values, numbers = np.unique(ends, return_inverse=True)
    assert expected.num_nodes == len(values)
    for name in ("i.parquet", "c.csv"):
        graph = import_graph(tmp_path / name)
        assert np.array_equal(graph.indptr, expected.indptr)
        assert np.array_equal(graph.indices, expected.indices)
    degree = np.diff(import_graph(tmp_path / "s.parquet").indptr)
    assert np.array_equal(degree[np.argsort(np.argsort(values.astype(str)))], expected.degree)
    assert expected.num_entries == len(set(zip(*numbers.reshape(2, -1).tolist())))


def test_several_labels_joined_or_in_columns(tmp_path):
    edges = "source,target\n0,1\n"
    graph = import_graph(write(tmp_path, edges, "id,label\n0,b|a\n1,c\n2,\n"))
    assert graph.y.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 0]]
    nodes = "id,c1,f,c2\n0,1,0.5,0\n1,1,0.25,1\n"
    graph = import_graph(write(tmp_path, edges, nodes), labels="c2,c1")
    assert graph.y.tolist() == [[0, 1], [1, 1]]
    assert graph.x.tolist() == [[0.5], [0.25]]
    graph = import_graph(write(tmp_path, edges, nodes), labels="c1", features="c2")
    assert (graph.y.tolist(), graph.class_names, graph.x.tolist()) == ([0, 0], ("1",), [[0], [1]])


def test_class_numbers_with_gaps_are_closed_and_keep_their_names(tmp_path):
    edges = "source,target\n0,1\n"
    graph = import_graph(write(tmp_path, edges, "id,label\n0,20\n1,10\n2,\n3,20\n"))
    assert (graph.y.tolist(), graph.num_classes, graph.class_names) == ([1, 0, -1, 1], 2, ("10", "20"))
    assert "numbered the classes: 0 = 10, 1 = 20" in graph.notices
    graph = import_graph(write(tmp_path, edges, "id,label\n0,1\n1,0\n2,\n3,2\n"))
    assert (graph.y.tolist(), graph.class_names) == ([1, 0, -1, 2], None)
    assert not any("classes" in notice for notice in graph.notices)


def test_missing_labels_and_a_single_class_are_noticed(tmp_path):
    edges = "source,target\n0,1\n"
    graph = import_graph(write(tmp_path, edges, "id,label\n0,cat\n1,\n2,\n3,dog\n"))
    assert "2 of 4 nodes have no label" in graph.notices
    assert not any("one class" in notice for notice in graph.notices)
    for label in ("cat", "0"):
        graph = import_graph(write(tmp_path, edges, f"id,label\n0,{label}\n1,{label}\n"))
        assert "column 'label': all labels are of one class, so there is nothing to learn" in graph.notices
        assert not any("no label" in notice for notice in graph.notices)
    graph = import_graph(write(tmp_path, edges, "id,label,f\n0,,1\n1,,2\n"))
    assert "2 of 2 nodes have no label" in graph.notices
    graph = import_graph(write(tmp_path, edges, "id,label,f\n0,1.5,1\n1,,2\n2,2.5,3\n"))
    assert "1 of 3 nodes have no label" in graph.notices


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_are_found_in_the_first_line(tmp_path, delimiter):
    edges, nodes = "source,target\nz,a\n", NODES
    graph = import_graph(write(tmp_path, edges.replace(",", delimiter), nodes.replace(",", delimiter)))
    assert graph.indptr.tolist() == [0, 0, 1, 1]
    assert graph.x.tolist() == [[1.5, 2], [0, 3], [-1, 4]]


def test_text_columns_are_left_out_with_a_notice(tmp_path):
    graph = import_graph(write(tmp_path, "a,b\n0,1\n", "id,title,f\n0,one,1\n1,two,2\n"))
    assert graph.x.tolist() == [[1], [2]]
    assert any("left out the columns title" in notice for notice in graph.notices)


def test_node_table_elsewhere_and_compressed(tmp_path):
    with gzip.open(tmp_path / "links.csv.gz", "wt") as file:
        file.write("u,v\na,z\n")
    (tmp_path / "people.csv").write_text(NODES)
    graph = import_graph(
        tmp_path / "links.csv.gz", nodes=str(tmp_path / "people.csv"), source="v", target="u"
    )
    assert graph.indptr.tolist() == [0, 0, 1, 1]
    assert graph.name == "links"


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        (
            "source,target\na,z\nz\n",
            NODES,
            r"edges\.csv: line 3 has 1 columns: expected 2 \(source, target\)",
        ),
        (
            "source,target\na,z\nz,q\n",
            NODES,
            r"edges\.csv: row 2 names node 'q' in column 'target', which .*nodes\.csv lacks",
        ),
        ("source,target\n0,1\n1,x\n", "id\n0\n1\n", r"row 2 names node 'x'"),
        ("source,target\na,\n", NODES, r"edges\.csv: column 'target' is empty in row 1"),
        ("source,target\na,\n", None, r"edges\.csv: column 'target' is empty in row 1"),
        ("source\na\n", None, r"edges\.csv has 1 column: expected two"),
        ("source,source\na,b\n", None, r"two columns 'source'"),
        ("source,target\na,z\n", "id,f\na,1\nz,2\na,3\n", r"nodes\.csv: row 3 repeats node id 'a'"),
        ("source,target\na,z\n", "id,f\na,1\n,2\n", r"nodes\.csv: column 'id' is empty in row 2"),
        (
            "source,target\na,z\n",
            "id,f\na,1\nz,two\n",
            r"nodes\.csv: column 'f' holds 'two' in row 2: expected a number",
        ),
        ("source,target\na,z\n", "id,y\na,1\nz,-7\n", r"nodes\.csv: column 'y' holds -7 in row 2"),
        (
            "source,target\na,z\n",
            "id,split\na,train\nz,holdout\n",
            r"column 'split' holds 'holdout' in row 2",
        ),
        ("source,target\na,z\n", "id,f\na,1\nz,2,3\n", r"nodes\.csv: line 3 has 3 columns: expected 2"),
        ("source,target\na,z\n", "id,f\n", r"nodes\.csv has no rows"),
        ("source,target\na,z\n", "id,f\na,1\nz,inf\n", r"nodes\.csv: column 'f' holds 'inf' in row 2"),
        ("source,target\na,z\n", "id,f\na,1e39\nz,0\n", r"nodes\.csv: column 'f' holds 1e39 in row 1"),
        (
            "source,target\na,z\n",
            "id,y,split\na,1,train\nz,,train\n",
            r"nodes\.csv: row 2 is train in column 'split' but has no label",
        ),
        (
            "source,target\na,z\n",
            "id,y,split\na,1,val\nz,0,\n",
            r"nodes\.csv: column 'split' has train in no row",
        ),
        ("source,target\n", None, r"0 nodes.*"),
    ],
)
def test_bad_tables_are_refused_naming_the_place(tmp_path, edges, nodes, message):
    with pytest.raises(ShoalError, match=message):
        import_graph(write(tmp_path, edges, nodes))


def test_bad_options_and_parquet_are_refused(tmp_path):
    folder = write(tmp_path, "source,target\na,z\n", NODES)
    with pytest.raises(ShoalError, match=r"edges\.csv has no column 'von': it has source, target"):
        import_graph(folder, source="von")
    with pytest.raises(ShoalError, match=r"nodes\.csv has no column 'f9'"):
        import_graph(folder, features="f1,f9")
    with pytest.raises(ShoalError, match="column 'id' holds 'z' in row 1: expected a number"):
        import_graph(folder, features="id")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "people.csv").write_text(NODES)
    with pytest.raises(
        ShoalError, match=r"people\.csv has no column 'labl': did you mean 'label'\? \(it has .*\)$"
    ):
        import_graph(folder / "edges.csv", nodes=tmp_path / "elsewhere" / "people.csv", labels="labl")
    with pytest.raises(ShoalError, match=r"gone\.csv does not exist"):
        import_graph(folder / "edges.csv", nodes="gone.csv")
    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"source": [1, None], "target": [2, 3]}), path)
    with pytest.raises(ShoalError, match=r"e\.parquet: column 'source' is empty in row 2"):
        import_graph(path)
    pq.write_table(pa.table({"source": [1.5], "target": [2.0]}), path)
    with pytest.raises(ShoalError, match="column 'source' holds double: expected integer or string ids"):
        import_graph(path)
    pq.write_table(pa.table({"source": [0], "target": [1]}), path)
    pq.write_table(pa.table({"id": [0, 1], "v": [[1.0], [1.0, 2.0]]}), tmp_path / "n.parquet")
    with pytest.raises(ShoalError, match="column 'v' has 2 values in row 2: expected 1"):
        import_graph(path, nodes=tmp_path / "n.parquet")
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(ShoalError, match=r"e\.parquet"):
        import_graph(path)
