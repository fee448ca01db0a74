"""Results per node come back under the names the nodes and classes came with."""

import numpy as np
import pyarrow.parquet as pq
import pytest

import shoal
from shoal.training.output import check_output, write_nodes


@pytest.fixture
def graph(tmp_path) -> shoal.Graph:
    (tmp_path / "edges.csv").write_text("source,target\nänn,bob\nbob,cho\ncho,änn\n")
    (tmp_path / "nodes.csv").write_text(
        "id,label,split,age\nbob,red,train,1\nänn,blue,val,2\ncho,red,test,3\n"
    )
    shoal.save_graph(shoal.load(tmp_path), tmp_path / "stored")
    return shoal.open_graph(tmp_path / "stored")


def test_predictions_carry_ids_and_class_names(graph, tmp_path):
    write_nodes(tmp_path / "y.parquet", "label", np.array([1, 0, 1]), graph)
    table = pq.read_table(tmp_path / "y.parquet").to_pydict()
    assert table == {
        "node": [0, 1, 2],
        "id": ["bob", "änn", "cho"],
        "label": [1, 0, 1],
        "name": ["red", "blue", "red"],
    }
    assert graph.node_ids[1] == "änn"


def test_multi_label_predictions_list_the_names_of_their_classes(graph, tmp_path):
    write_nodes(tmp_path / "y.parquet", "label", np.array([[1, 1], [0, 0], [0, 1]], np.uint8), graph)
    table = pq.read_table(tmp_path / "y.parquet").to_pydict()
    assert table["name"] == [["blue", "red"], [], ["red"]]
    assert table["label"] == [[1, 1], [0, 0], [0, 1]]


def test_integer_ids_come_back_and_plain_numbers_are_not_repeated(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n7,30\n30,7\n")
    graph = shoal.load(tmp_path / "edges.csv")
    write_nodes(tmp_path / "z.parquet", "embedding", np.ones((2, 3), np.float32), graph)
    assert pq.read_table(tmp_path / "z.parquet").to_pydict()["id"] == [7, 30]
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,0\n")
    write_nodes(
        tmp_path / "z.parquet", "embedding", np.ones((2, 3), np.float32), shoal.load(tmp_path / "edges.csv")
    )
    assert pq.read_table(tmp_path / "z.parquet").column_names == ["node", "embedding"]


def test_a_result_file_that_cannot_be_written_is_refused_first(tmp_path):
    with pytest.raises(shoal.ShoalError, match=r"ends in \.npy or \.parquet"):
        check_output(tmp_path / "z.txt")
    with pytest.raises(shoal.ShoalError, match="make the folder first"):
        check_output(tmp_path / "none" / "z.npy")
