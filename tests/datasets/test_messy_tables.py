"""Tables as people have them: missing values, categories, dates, text, numbers of several locales, repeated rows."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.datasets.importers import import_graph
from shoal.datasets.importers.feature_columns import load_columns
from shoal.errors import ShoalError

EDGES = "source,target\n0,1\n1,2\n"


def write(folder, nodes, edges=EDGES):
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    return folder


def read_column(folder, cells, *, delimiter=",", **options):
    """The features that a column of these cells becomes, and the graph."""
    quoted = [f'"{cell}"' if delimiter in cell else cell for cell in cells]
    nodes = f"id{delimiter}f\n" + "".join(f"{i}{delimiter}{cell}\n" for i, cell in enumerate(quoted))
    graph = import_graph(write(folder, nodes), **options)
    return (None if graph.x is None else np.asarray(graph.x)), graph


def says(graph, text):
    return any(text in notice for notice in graph.notices)


@pytest.mark.parametrize(
    ("cells", "delimiter", "expected"),
    [
        (["0,5", "1", "-2,25"], ";", [0.5, 1, -2.25]),  # German
        (["1.234,5", "0,5", "1.000.000,0"], ";", [1234.5, 0.5, 1e6]),
        (["1 234,5", "0,5", "2\u00a0000", "3\u202f000,25"], ";", [1234.5, 0.5, 2000, 3000.25]),  # French
        (["1'234.5", "0.5", "2’000"], ",", [1234.5, 0.5, 2000]),  # Swiss
        (["1,234.5", "0.5", "1,000,000"], ",", [1234.5, 0.5, 1e6]),  # English, quoted
        (["1,234", "2,500", "3,125"], ";", [1.234, 2.5, 3.125]),  # a semicolon between cells: decimals
        (["+1.5e3", ".5", "7."], ",", [1500, 0.5, 7]),
    ],
)
def test_numbers_of_several_locales(tmp_path, cells, delimiter, expected):
    x, _ = read_column(tmp_path, cells, delimiter=delimiter, standardize=False)
    assert x[:, 0].tolist() == pytest.approx(expected)


def test_a_comma_that_may_be_either_is_refused_until_it_is_said_which(tmp_path):
    cells = ["1,234", "2,500", "3,125"]
    with pytest.raises(ShoalError, match=r"'f' holds numbers such as '1,234'.*--option decimal=point"):
        read_column(tmp_path, cells)
    assert read_column(tmp_path, cells, decimal="point", standardize=False)[0][0, 0] == 1234
    assert read_column(tmp_path, cells, decimal="comma")[0][0, 0] == np.float32(1.234)
    with pytest.raises(ShoalError, match=r"column 'f' holds '0\.5' in row 2: expected a number"):
        read_column(tmp_path, ["1.234,5", "0.5", "0,5"])


def test_missing_numbers_are_the_training_mean_and_marked(tmp_path):
    nodes = "id,f,split\n0,1,train\n1,3,train\n2,NA,val\n3,100,test\n4,,\n"
    graph = import_graph(write(tmp_path, nodes))
    assert graph.x.tolist() == [[1, 0], [3, 0], [2, 1], [100, 0], [2, 1]]
    assert says(graph, "missing values are the mean of the training rows")
    graph = import_graph(tmp_path, standardize=True)
    assert graph.x.tolist() == [[-1, 0], [1, 0], [0, 1], [98, 0], [0, 1]]
    x, graph = read_column(tmp_path, ["1", "nan", "3"])  # without a split: of all rows
    assert x.tolist() == [[1, 0], [2, 1], [3, 0]]
    assert says(graph, "missing values are the mean of the rows")


def test_missing_numbers_of_parquet(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    columns = {
        "id": [0, 1, 2],
        "a": pa.array([1, None, 3], pa.int16()),
        "b": [1.0, float("nan"), 2.0],
        "c": pa.array([True, None, False]),
        "d": pa.array(["1,5", None, "2,5"]),
        "e": pa.nulls(3),
        "half": pa.array(np.array([1, 2, 3], np.float16)),
    }
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    graph = import_graph(tmp_path)
    assert graph.x.tolist() == [
        [1, 0, 1, 0, 1, 0, 1.5, 0, 1],
        [2, 1, 1.5, 1, 0.5, 1, 2, 1, 2],
        [3, 0, 2, 0, 0, 0, 2.5, 0, 3],
    ]
    assert says(graph, "left out the columns e (holds null) of nodes.parquet")


def test_numbers_of_very_different_size_are_standardised(tmp_path):
    nodes = "id,age,income\n0,20,10000\n1,30,30000\n2,40,50000\n"
    graph = import_graph(write(tmp_path, nodes))
    assert np.allclose(graph.x.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(graph.x.std(axis=0), 1)
    assert says(graph, "standardised the numbers, since the deviation of income is 1.63e+04")
    assert import_graph(tmp_path, standardize=False).x[2].tolist() == [40, 50000]


def test_categories_get_a_feature_each(tmp_path):
    x, graph = read_column(tmp_path, ["red", "blue", "", "red", "blue", "red"])
    assert x.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 1, 0]]
    assert says(graph, "categories, one feature per value: f (2)")
    assert load_columns(graph.encoding, "g")[0].all_names == ["f=blue", "f=red", "f missing"]
    codes = ["10115", "80331", "10115", "80331"]
    assert read_column(tmp_path, codes, categories="f")[0].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
    with pytest.raises(ShoalError, match=r"'f' has more than 2 values.*max_categories"):
        read_column(tmp_path, ["1", "2", "3"], categories="f", max_categories=2)


@pytest.mark.parametrize(
    "cells", [["yes", "No", "YES", "no"], ["true", "false", "True", "FALSE"], ["ja", "nein", "ja", "nein"]]
)
def test_yes_and_no_are_one_and_zero(tmp_path, cells):
    x, graph = read_column(tmp_path, cells)
    assert x.tolist() == [[1], [0], [1], [0]]
    assert says(graph, "yes/no as 1 and 0: f")


@pytest.mark.parametrize(
    "cells",
    [
        ["2020-01-01", "2022-01-01", "2024-01-01"],
        ["2020-01-01T00:00:00Z", "2022-01-01 00:00", "2024-01-01T02:00:00+02:00"],
        ["01.01.2020", "1.1.2022", "01.01.2024"],
        ["2020/01/01", "2022/01/01", "2024/01/01"],
    ],
)
def test_dates_are_years_since_their_mean_and_the_time_of_year(tmp_path, cells):
    x, graph = read_column(tmp_path, cells)
    assert x.shape == (3, 3)
    assert np.allclose(x[:, 0], [-2, 0, 2], atol=0.01)
    assert np.allclose(x[:, 1] ** 2 + x[:, 2] ** 2, 1)
    assert np.allclose(x[:, 2], 1, atol=1e-3)  # January
    assert says(graph, "dates as years since the mean date")


def test_day_and_month_are_told_apart_or_asked_for(tmp_path):
    day_first, _ = read_column(tmp_path, ["1/2/2020", "13/1/2020", "2/2/2020"])
    month_first, _ = read_column(tmp_path, ["2/1/2020", "1/13/2020", "2/2/2020"])
    assert day_first.tolist() == month_first.tolist()
    x, graph = read_column(tmp_path, ["1/2/2020", "3/1/2020", "2/2/2020"])
    assert x is None
    assert says(graph, "--option day_first=true or false")
    x, _ = read_column(tmp_path, ["1/2/2020", "3/1/2020", "2/2/2020"], day_first=True)
    assert x[0, 0] > x[1, 0]  # 1 February, 3 January
    with pytest.raises(ShoalError, match="column 'f' holds '2020-02-30' in row 2: expected a date"):
        read_column(tmp_path, ["2020-01-01", "2020-02-30", "2020-03-01"])


def test_dates_of_parquet(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    days = pa.array([0, None, 730], pa.int32()).cast(pa.date32())
    times = pa.array([0, 86400_000, 730 * 86400_000], pa.timestamp("ms", tz="UTC"))
    pq.write_table(pa.table({"id": [0, 1, 2], "d": days, "t": times}), tmp_path / "nodes.parquet")
    x = import_graph(tmp_path).x
    assert x[:, 3].tolist() == [0, 1, 0]
    assert x[2, 0] - x[0, 0] == pytest.approx(730 / 365.25, rel=1e-5)
    assert x[1, 4] - x[0, 4] == pytest.approx(1 / 365.25, rel=1e-3)


def test_texts_are_hashed_words_and_names_are_left_out(tmp_path):
    texts = ["", *(f"The quick fox; row {i % 35}!" for i in range(39))]
    nodes = "id,who,said\n" + "".join(f"{i},person-{i},{text}\n" for i, text in enumerate(texts))
    graph = import_graph(write(tmp_path, nodes), words=16)
    assert graph.x.shape == (40, 17)
    assert graph.x[:, 16].tolist() == [1, *[0] * 39]  # marks the missing one
    assert np.allclose(np.linalg.norm(graph.x[1:, :16], axis=1), 1)
    assert graph.x[1].tolist() == graph.x[36].tolist() != graph.x[2].tolist()
    assert says(graph, "left out the columns who (differs in nearly every row) of nodes.csv")
    assert says(graph, "texts as hashed words: said (16)")
    assert import_graph(tmp_path, words=0).x is None


def test_columns_that_say_little_are_named(tmp_path):
    words = ("late", "card", "call", "loan", "rent", "cash")
    notes = [f"{words[i % 6]} {words[i // 6 % 6]} {words[i // 36 % 6]}" for i in range(120)]
    rows = [f"{i},CH,yes,{i % 3},{note}" for i, note in enumerate(notes)]
    write(tmp_path, "\n".join(["id,country,active,f,note", *rows]) + "\n", "source,target\n0,1\n")
    graph = import_graph(tmp_path)
    assert graph.num_features == 1 + 64
    assert says(
        graph, "left out the columns country (the same in every row), active (the same in every row) of"
    )
    assert says(graph, "note has 6 different words, hashed into 64 features: --option words=N")
    assert import_graph(tmp_path, features="country,f").num_features == 2  # as it was asked for
    assert import_graph(tmp_path, categories="country", words=0).num_features == 2


def test_addresses_and_paths_are_keys_and_lists_of_words_are_not(tmp_path):
    rows = [
        f"{i},a.{i}@mail.example.org,/home/{i}/some-file.txt,red{i}|green{i}|blue,一{i}，二{i}，三{i}"
        for i in range(60)
    ]
    graph = import_graph(write(tmp_path, "\n".join(["id,mail,path,tags,said", *rows])), words=16)
    left = "mail (differs in nearly every row), path (differs in nearly every row)"
    assert says(graph, f"left out the columns {left} of nodes.csv")
    assert says(graph, "texts as hashed words: tags (16), said (16)")
    assert graph.num_features == 32


def test_labels_are_found_under_their_usual_names_also_as_text(tmp_path):
    for name in ("class", "Label", "y", "target"):
        graph = import_graph(write(tmp_path, f"id,f,{name}\n0,1,spam\n1,2,ham\n2,3,nan\n"))
        assert (graph.y.tolist(), graph.class_names) == ([1, 0, -1], ("ham", "spam"))
        assert graph.num_features == 1
    graph = import_graph(write(tmp_path, "who,f,y,team\n0,1,2,a\n1,2,2,b\n2,3,4,a\n"), labels="team")
    assert graph.y.tolist() == [0, 1, 0]
    assert import_graph(write(tmp_path, "f,y\n0,1.0\n1,0.0\n2,1.0\n")).y.tolist() == [1, 0, 1]
    graph = import_graph(write(tmp_path, "f,key\n5,0\n6,1\n7,2\n"), id="key")
    assert graph.x[:, 0].tolist() == [5, 6, 7]


def test_labels_that_no_two_nodes_share_are_refused(tmp_path):
    rows = "".join(f"{i},{i * 0.37 + 0.1:.3f}\n" for i in range(50))
    with pytest.raises(
        ShoalError, match=r"column 'y' holds 0\.1 in row 1: expected class numbers or names, not real"
    ):
        import_graph(write(tmp_path, "id,y\n" + rows), task="classification")
    assert import_graph(tmp_path).regression
    assert import_graph(tmp_path, exclude="y").y is None
    rows = "".join(f"{i},name{i % 40}\n" for i in range(50))
    with pytest.raises(ShoalError, match=r"'class' has 40 different values in 50 rows.*--label"):
        import_graph(write(tmp_path, "id,class\n" + rows))


def test_rows_that_repeat_another_are_left_out_and_others_refused(tmp_path):
    nodes = "id,f,y,split\n0,1,0,train\n1,2,1,train\n0,1,0,train\n2,6,0,val\n"
    graph = import_graph(write(tmp_path, nodes))
    assert (graph.x[:, 0].tolist(), graph.y.tolist()) == ([1, 2, 6], [0, 1, 0])
    assert graph.val_mask.tolist() == [False, False, True]
    assert says(graph, "left out 1 row that repeat")
    with pytest.raises(
        ShoalError, match=r"nodes\.csv: row 3 repeats node id '0' with another f: '9', '1' before"
    ):
        import_graph(write(tmp_path, nodes.replace("0,1,0,train\n2", "0,9,0,train\n2")))


@pytest.mark.parametrize("swap", [False, True])
def test_ids_as_text_in_one_table_and_numbers_in_the_other(tmp_path, swap):
    numbers, texts = [3, 1, 2], ["3", "1", "2"]
    nodes, ends = (texts, numbers) if swap else (numbers, texts)
    pq.write_table(pa.table({"id": nodes, "f": [1.0, 2.0, 3.0]}), tmp_path / "nodes.parquet")
    pq.write_table(pa.table({"source": ends[:2], "target": ends[1:]}), tmp_path / "edges.parquet")
    graph = import_graph(tmp_path)
    assert graph.indices.tolist() == [0, 1]  # 3 → 1 → 2
    pq.write_table(pa.table({"source": ["x1"], "target": ["x2"]}), tmp_path / "edges.parquet")
    with pytest.raises(
        ShoalError, match=r"row 1 names node 'x1'.*expected ids of the node table, such as '?3'?"
    ):
        import_graph(tmp_path)


def test_whole_floats_are_ids(tmp_path):
    pq.write_table(pa.table({"id": [1.0, 2.0], "f": [1.0, 2.0]}), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text("source,target\n1,2.0\n")
    assert import_graph(tmp_path).num_edges == 1


def test_edges_with_unknown_ends_are_refused_or_dropped(tmp_path):
    write(tmp_path, "id,f\n0,1\n1,2\n", "source,target\n0,1\n1,7\n9,0\n")
    with pytest.raises(ShoalError, match=r"row 2 names node '7'.*--option unknown=drop"):
        import_graph(tmp_path)
    graph = import_graph(tmp_path, unknown="drop")
    assert graph.num_edges == 1
    assert says(graph, "left out 2 edges with an end that")


def test_arcs_say_what_they_mean_and_how_many_go_both_ways(tmp_path):
    write(tmp_path, "id,f\n0,1\n1,2\n2,3\n", "source,target,since\n0,1,5\n1,0,5\n1,2,5\n2,2,5\n")
    graph = import_graph(tmp_path)
    assert says(graph, "edges are arcs: a node aggregates from the sources of its arcs")
    assert says(graph, "67% of the arcs have their reverse; --undirected adds the others")
    assert says(graph, "left out since of edges.csv: an edge has at most one weight")
    for directed in (True, False):
        assert not says(import_graph(tmp_path, directed=directed), "edges are arcs")


def test_several_files_and_packed_ones_are_one_table(tmp_path):
    expected = import_graph(write(tmp_path, "id,f\n0,1\n1,2\n2,\n", "source,target\n0,1\n1,2\n2,0\n"))
    packed = tmp_path / "packed"
    (packed / "edges").mkdir(parents=True)
    pq.write_table(pa.table({"source": [0, 1], "target": [1, 2]}), packed / "edges" / "part-0.parquet")
    pq.write_table(pa.table({"target": [0], "source": [2]}), packed / "edges" / "part-1.parquet")
    (packed / "edges" / "_SUCCESS").touch()
    with gzip.open(packed / "nodes-1.csv.gz", "wt") as file:
        file.write("id,f\n0,1\n1,2\n")
    with pa.output_stream(str(packed / "nodes-2.csv.zst"), compression="zstd") as file:
        file.write(b"id,f\n2,\n")
    graph = import_graph(packed)
    for name in ("indptr", "indices", "x"):
        assert np.array_equal(getattr(graph, name), getattr(expected, name))
    assert import_graph(packed / "edges").num_edges == 3
    with pa.output_stream(str(packed / "nodes-2.csv.zst"), compression="zstd") as file:
        file.write(b"id,f\n2,3\n2,4\n")
    with pytest.raises(ShoalError, match=r"nodes-2\.csv\.zst: row 2 repeats node id"):
        import_graph(packed)
    (packed / "nodes-2.csv.zst").write_bytes(b"no zstd")
    with pytest.raises(ShoalError, match=r"nodes-2\.csv\.zst"):
        import_graph(packed)
    (packed / "nodes-2.csv.zst").unlink()
    (packed / "nodes-2.csv").write_text("id,g\n2,3\n")
    with pytest.raises(ShoalError, match=r"nodes-2\.csv has the columns id, g: expected id, f"):
        import_graph(packed)


def test_parquet_text_that_is_no_unicode_is_refused(tmp_path):
    (tmp_path / "edges.csv").write_text(EDGES)
    broken = pa.StringArray.from_buffers(
        3, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"a\xffa")
    )
    pq.write_table(pa.table({"id": [0, 1, 2], "f": broken}), tmp_path / "nodes.parquet")
    with pytest.raises(ShoalError, match=r"nodes\.parquet cannot be read .*UTF8"):
        import_graph(tmp_path)
