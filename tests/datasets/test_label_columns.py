"""Label columns as people have them: decimal commas, many classes, new tables labelled like those of a graph."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import shoal
from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError


def write(folder, nodes):
    folder.mkdir(exist_ok=True)
    (folder / "edges.csv").write_text("source;target\n0;1\n1;2\n")
    (folder / "nodes.csv").write_text(nodes)
    return folder


def says(graph, text):
    return any(text in notice for notice in graph.notices)


@pytest.mark.parametrize("decimal", [None, "comma"])
def test_labels_with_decimal_commas_are_targets(tmp_path, decimal):
    graph = import_graph(write(tmp_path, "id;f;y\n0;1;0,5\n1;2;\n2;3;-1,25\n"), decimal=decimal)
    assert graph.regression
    assert graph.y.tolist() == pytest.approx([0.5, np.nan, -1.25], nan_ok=True)


def test_a_column_that_can_only_be_read_with_points_is_read_so_whatever_the_others_have(tmp_path):
    nodes = "id;f;g\n0;0,5;1.5\n1;1,5;2.25\n2;2,5;-3.0\n"
    graph = import_graph(write(tmp_path, nodes), decimal="comma")
    assert graph.x.tolist() == [[0.5, 1.5], [1.5, 2.25], [2.5, -3.0]]


def test_many_classes_of_few_rows_are_pointed_out(tmp_path):
    rows = [f"{i};1;{i % 600}" for i in range(1500)]
    graph = import_graph(write(tmp_path, "\n".join(["id;f;label", *rows]) + "\n"))
    assert says(graph, "600 classes in 1,500 labelled rows, 2.5 rows per class")
    rows = [f"{i};1;{i % 30}" for i in range(1500)]
    assert not says(import_graph(write(tmp_path, "\n".join(["id;f;label", *rows]) + "\n")), "rows per class")


def test_tables_like_a_graph_have_its_id_and_label_columns(tmp_path):
    old = write(tmp_path / "old", "f;who;team\n1;0;red\n2;1;blue\n3;2;red\n")
    shoal.save_graph(import_graph(old, id="who", labels="team"), tmp_path / "graph")
    new = write(tmp_path / "new", "f;team;who\n1;blue;2\n2;red;1\n3;blue;0\n")
    graph = import_graph(new, like=tmp_path / "graph")
    assert graph.y.tolist() == [0, 1, 0]
    assert graph.class_names == ("blue", "red")
    assert graph.node_ids.tolist() == [2, 1, 0]
    assert not says(graph, "left out")


def test_a_value_of_the_option_unknown_is_named_once(tmp_path):
    with pytest.raises(ShoalError, match=r"^unknown value of 'unknown' 'keep': known: drop, refuse"):
        import_graph(write(tmp_path, "id;f\n0;1\n1;2\n2;3\n"), unknown="keep")


def test_parts_keep_what_nodes_and_classes_are_called(tmp_path):
    from shoal.commands.node_files import write_nodes
    from shoal.partitioning.manifest import open_names
    from shoal.partitioning.partition import partition_graph
    from shoal.partitioning.stored import store_parts

    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    (tmp_path / "nodes.csv").write_text("id,label,f\nb,red,1\na,blue,2\nc,red,3\n")
    graph = import_graph(tmp_path)
    store_parts(graph, partition_graph(graph, 2, method="block"), tmp_path / "parts")
    write_nodes(tmp_path / "y.parquet", "label", np.array([1, 0, 1]), open_names(tmp_path / "parts"))
    table = pq.read_table(tmp_path / "y.parquet").to_pydict()
    assert (table["id"], table["label"]) == (["b", "a", "c"], ["red", "blue", "red"])
