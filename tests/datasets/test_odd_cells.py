"""Cells at the edge of what columns hold: missing words, constants, line breaks, empty parts, long ids."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.datasets.importers import import_graph, tabular
from shoal.errors import ShoalError

EDGES = "source,target\n0,1\n1,2\n"


def write(folder, nodes, edges=EDGES):
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    return folder


def test_words_for_missing_are_missing_in_a_yes_no_column(tmp_path):
    graph = import_graph(write(tmp_path, "id,f\n0,Yes\n1,NA\n2,No\n3,None\n4,yes\n"))
    assert np.asarray(graph.x).tolist() == [[1, 0], [0, 1], [0, 0], [0, 1], [1, 0]]


def test_rounding_makes_no_deviation_of_a_constant(tmp_path):
    rows = "".join(f"{i},0.1,train\n" for i in range(1000))
    graph = import_graph(write(tmp_path, f"id,a,split\n{rows}1000,0.7,test\n"), standardize=True)
    assert np.abs(np.asarray(graph.x)).max() < 1


def test_cells_with_line_breaks_stay_whole_across_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(tabular, "BLOCK_BYTES", 512)
    rows = "".join(f'{i},"word {i}\nx,{i}\n",{i % 7}\n' for i in range(300))
    graph = import_graph(write(tmp_path, f"id,text,v\n{rows}"))
    assert graph.num_nodes == 300
    assert np.asarray(graph.x)[:, -1].tolist() == [i % 7 for i in range(300)]


def test_an_empty_parquet_part_adds_nothing(tmp_path):
    (tmp_path / "edges").mkdir()
    edges = pa.table({"source": [0, 1], "target": [1, 2]})
    pq.write_table(edges, tmp_path / "edges/part-0.parquet")
    pq.write_table(edges.slice(0, 0), tmp_path / "edges/part-1.parquet")
    pq.write_table(pa.table({"id": [0, 1, 2], "v": [0.5, 1, 2]}), tmp_path / "nodes.parquet")
    assert import_graph(tmp_path).num_nodes == 3


def test_ids_of_nineteen_digits_are_known_beside_text(tmp_path):
    ids = [1234567890123456789 + i for i in range(3)]
    nodes = "id,v\n" + "".join(f"{one},{i}\n" for i, one in enumerate(ids))
    edges = f"source,target\n{ids[0]},{ids[1]}\n{ids[1]},{ids[2]}\nfoo,{ids[0]}\n"
    graph = import_graph(write(tmp_path, nodes, edges), unknown="drop")
    assert graph.num_entries == 2


def test_a_category_that_ends_in_a_number_stays_a_category(tmp_path):
    count = (1 << 16) + 1
    cells = [*("AB"[i % 2] for i in range(count - 1)), "7"]
    pq.write_table(pa.table({"id": np.arange(count), "c": cells}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "edges.parquet")
    assert np.asarray(import_graph(tmp_path).x).sum(1).tolist() == [1] * count


def test_new_nodes_may_lack_a_whole_column(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, values in ((old, [1.0, 2.0, 4.0]), (new, pa.nulls(3))):
        folder.mkdir()
        pq.write_table(pa.table({"id": [0, 1, 2], "v": values}), folder / "nodes.parquet")
        pq.write_table(pa.table({"source": [0], "target": [1]}), folder / "edges.parquet")
    graph = import_graph(old)
    assert import_graph(new, like=graph).num_features == graph.num_features


@pytest.mark.parametrize(("features", "number"), [("v,v", 1), ("v,label", None)])
def test_a_label_is_no_feature_and_a_feature_is_named_once(tmp_path, features, number):
    folder = write(tmp_path, "id,v,label\n0,1.5,a\n1,2,b\n2,3,a\n")
    if number is not None:
        assert import_graph(folder, features=features).num_features == number
        return
    with pytest.raises(ShoalError, match="column 'label' is the label: leave it out of the features"):
        import_graph(folder, features=features)
