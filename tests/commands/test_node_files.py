"""Results per node come back under the names the nodes and classes came with."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import shoal
from shoal.commands.node_files import check_output, write_nodes
from shoal.names import Called


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
        "label": ["red", "blue", "red"],
        "class": [1, 0, 1],
    }
    assert graph.node_ids[1] == "änn"


def test_multi_label_predictions_list_the_names_of_their_classes(graph, tmp_path):
    write_nodes(tmp_path / "y.parquet", "label", np.array([[1, 1], [0, 0], [0, 1]], np.uint8), graph)
    table = pq.read_table(tmp_path / "y.parquet").to_pydict()
    assert table["label"] == [["blue", "red"], [], ["red"]]
    assert table["class"] == [[1, 1], [0, 0], [0, 1]]


def test_classes_without_names_are_their_numbers(tmp_path):
    graph = shoal.Graph.from_edge_index([[0], [1]], 3, y=np.array([2, 0, 1]))
    write_nodes(tmp_path / "y.parquet", "label", np.array([2, 1, 0]), graph)
    table = pq.read_table(tmp_path / "y.parquet").to_pydict()
    assert table == {"node": [0, 1, 2], "label": [2, 1, 0], "class": [2, 1, 0]}


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
    (tmp_path / "file").write_text("")
    with pytest.raises(shoal.ShoalError, match="file is a file"):
        check_output(tmp_path / "file" / "z.npy")


@pytest.mark.parametrize("name", ["z.npy", "z.parquet"])
def test_a_full_disk_names_the_file_and_leaves_nothing(graph, tmp_path, name):
    program = (
        "import resource, sys, numpy as np, shoal\n"
        "from shoal.commands.node_files import write_nodes\n"
        "graph = shoal.open_graph(sys.argv[1])\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "values = np.random.default_rng(0).random((3, 5_000), np.float32)\n"
        "try: write_nodes(__import__('pathlib').Path(sys.argv[2]), 'embedding', values, graph)\n"
        "except shoal.ShoalError as error: print(error)\n"
    )
    before = {path.name for path in tmp_path.iterdir()}
    command = [sys.executable, "-c", program, str(tmp_path / "stored"), str(tmp_path / name)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert said.startswith(f"no space left while writing {tmp_path / name}: ")
    assert {path.name for path in tmp_path.iterdir()} == before


def test_tables_leave_as_csv_without_lists(graph, tmp_path):
    write_nodes(tmp_path / "y.csv", "label", np.array([1, 0, 1]), graph)
    lines = (tmp_path / "y.csv").read_text().splitlines()
    assert lines == ['"node","id","label","class"', '0,"bob","red",1', '1,"änn","blue",0', '2,"cho","red",1']
    write_nodes(tmp_path / "y.csv", "label", np.array([[1, 1], [0, 0], [0, 1]], np.uint8), graph)
    assert (tmp_path / "y.csv").read_text().splitlines()[1:] == [
        '0,"bob","blue|red"',
        '1,"änn",""',
        '2,"cho","red"',
    ]
    write_nodes(tmp_path / "z.csv", "embedding", np.array([[1, 2], [3, 4], [5, 6.5]], np.float32), graph)
    assert (tmp_path / "z.csv").read_text().splitlines()[3] == '2,"cho",5,6.5'


def test_probabilities_are_columns_named_by_class_beside_the_most_probable_one(graph, tmp_path):
    values = np.array([[0.25, 0.75], [1, 0], [0.5, 0.5]], np.float32)
    write_nodes(tmp_path / "p.parquet", "probability", values, graph)
    table = pq.read_table(tmp_path / "p.parquet").to_pydict()
    assert table["label"] == ["red", "blue", "blue"]
    assert table["probability_blue"] == [0.25, 1, 0.5]
    assert table["probability_red"] == [0.75, 0, 0.5]
    write_nodes(tmp_path / "p.csv", "probability", values, graph)
    lines = (tmp_path / "p.csv").read_text().splitlines()
    assert lines[:2] == [
        '"node","id","label","probability_blue","probability_red"',
        '0,"bob","red",0.25,0.75',
    ]


def test_multi_label_probabilities_list_the_classes_above_one_half(graph, tmp_path):
    called = Called(graph.node_ids, graph.class_names, 2, multi_label=True)
    write_nodes(tmp_path / "p.parquet", "probability", np.array([[0.9, 0.8], [0.1, 0.2], [0, 0.6]]), called)
    assert pq.read_table(tmp_path / "p.parquet")["label"].to_pylist() == [["blue", "red"], [], ["red"]]
