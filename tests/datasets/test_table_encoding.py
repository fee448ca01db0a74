"""The encoding of a table's columns is stored with the graph, and new tables are encoded like it."""

import json

import numpy as np
import pytest

from shoal.datasets.importers import import_graph
from shoal.datasets.reorder import reorder_graph
from shoal.errors import ShoalError
from shoal.store import open_graph, save_graph

EDGES = "source,target\na,b\nb,c\nc,d\n"
NODES = """id,age,colour,joined,member,bio,class,split
a,30,red,2020-03-01,yes,likes the long and winding road,cat,train
b,,blue,2021-05-01,no,sings in the long choir on sunday,dog,train
c,50,red,,yes,likes the choir and the winding road,cat,val
d,40,blue,2022-01-01,no,drives a long red car to the choir,,
"""
OPTIONS = {"words": 8, "directed": True}


def write(folder, nodes=NODES):
    folder.mkdir(exist_ok=True)
    (folder / "edges.csv").write_text(EDGES)
    (folder / "nodes.csv").write_text(nodes)
    return folder


@pytest.fixture
def stored(tmp_path):
    return save_graph(import_graph(write(tmp_path / "old"), **OPTIONS), tmp_path / "graph")


def says(graph, text):
    return any(text in notice for notice in graph.notices)


def test_same_table_like_the_stored_graph_gives_the_same_graph(stored, tmp_path):
    graph, like = open_graph(stored), import_graph(tmp_path / "old", like=stored, directed=True)
    assert graph.num_features == 1 + 1 + 2 + 3 + 1 + 1 + 8
    for name in ("x", "y", "train_mask", "val_mask"):
        assert np.array_equal(getattr(like, name), getattr(graph, name))
    assert like.class_names == graph.class_names == ("cat", "dog")
    assert like.encoding == graph.encoding


def test_new_rows_get_the_old_columns_means_and_classes(stored, tmp_path):
    new = "id,member,colour,age,joined,bio,class,shoe\na,no,green,,2020-03-01,,dog,42\nb,yes,red,20,,car,wolf,43\nc,,,10,,,,\nd,,,,,,,\n"
    graph, old = import_graph(write(tmp_path / "new", new), like=stored), open_graph(stored)
    x = graph.x
    assert x[0, :4].tolist() == [30, 1, 0, 0]  # the old training mean of age; green is neither blue nor red
    assert x[1, :4].tolist() == [20, 0, 0, 1]
    assert np.array_equal(x[0, 4:7], old.x[0, 4:7])  # the same date, the same features
    assert x[:, 8].tolist() == [0, 1, 0, 0]
    assert graph.y.tolist() == [1, -1, -1, -1]
    assert (graph.num_classes, graph.class_names) == (2, ("cat", "dog"))
    assert says(graph, f"values that {stored} lacks are zeros: colour (1)")
    assert says(graph, "missing values where")
    assert says(graph, "nodes with a class that")
    assert says(graph, "left out the columns shoe of nodes.csv")


def test_edges_are_undirected_if_those_of_the_stored_graph_are(stored, tmp_path):
    assert import_graph(tmp_path / "old", like=stored).directed
    both = save_graph(import_graph(tmp_path / "old", directed=False), tmp_path / "both")
    graph = import_graph(tmp_path / "old", like=both)
    assert (graph.directed, graph.num_edges) == (False, 3)
    assert says(graph, f"made the edges undirected, as those of {both} are; --directed keeps")
    assert import_graph(tmp_path / "old", like=both, directed=True).directed


def test_a_feature_under_a_usual_name_of_labels_stays_a_feature(tmp_path):
    old = write(tmp_path / "old", "id,target,team\na,1.5,x\nb,2.5,y\nc,3.5,x\nd,4.5,y\n")
    stored = save_graph(import_graph(old, labels="team"), tmp_path / "graph")
    new = import_graph(write(tmp_path / "new", "id,target\na,9\nb,8\nc,7\nd,6\n"), like=stored)
    assert (new.x[:, 0].tolist(), new.y) == ([9, 8, 7, 6], None)


def test_tables_that_cannot_be_encoded_alike_are_refused(stored, tmp_path):
    with pytest.raises(ShoalError, match=r"nodes\.csv has no column 'bio', a feature of .*graph"):
        import_graph(
            write(tmp_path / "new", "id,age,colour,joined,member\na,1,red,2020-01-01,no\n"), like=stored
        )
    wrong = NODES.replace("40,blue", "forty,blue")
    with pytest.raises(ShoalError, match="column 'age' holds 'forty' in row 4: expected a number"):
        import_graph(write(tmp_path / "new", wrong), like=stored)
    wrong = NODES.replace("2022-01-01", "1.1.2022")
    with pytest.raises(
        ShoalError, match=r"'joined' holds 1\.1\.2022 in row 4: expected a date, year-month-day"
    ):
        import_graph(write(tmp_path / "new", wrong), like=stored)
    bare = save_graph(import_graph(write(tmp_path / "old") / "edges.csv"), tmp_path / "bare")
    with pytest.raises(ShoalError, match="bare has no record of how columns became features"):
        import_graph(tmp_path / "old", like=bare)
    with pytest.raises(ShoalError, match="nowhere does not exist"):
        import_graph(tmp_path / "old", like="nowhere")


def test_encoding_survives_ordering_and_is_checked(stored, tmp_path):
    graph = open_graph(stored)
    assert reorder_graph(graph, "degree").encoding == graph.encoding
    assert graph.with_split().encoding == graph.encoding
    columns = {entry["column"]: entry for entry in graph.encoding["columns"]}
    assert columns["colour"] == {
        "kind": "category",
        "column": "colour",
        "marked": False,
        "values": ["blue", "red"],
    }
    assert (columns["age"]["mean"], columns["age"]["marked"]) == (30, True)
    assert json.loads((stored / "meta.json").read_text())["encoding"] == graph.encoding
    for damage in ({"version": 9}, {"columns": [{"kind": "number"}]}, {"columns": [3]}):
        graph.encoding = {**open_graph(stored).encoding, **damage}
        save_graph(graph, stored, overwrite=True)
        with pytest.raises(ShoalError, match=r"meta\.json has no column encoding"):
            import_graph(tmp_path / "old", like=stored)
        save_graph(import_graph(tmp_path / "old", **OPTIONS), stored, overwrite=True)
