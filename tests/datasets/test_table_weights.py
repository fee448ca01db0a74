"""Weights in edge tables: read like other cells, whatever their decimal mark, and refused by row."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.datasets.importers import import_graph, tabular
from shoal.errors import ShoalError


def weigh(tmp_path, cells, delimiter=";", **options):
    """The graph of the path 0 → 1 → 2 …, whose edges have the weights in `cells`."""
    rows = [f"{i}{delimiter}{i + 1}{delimiter}{cell}" for i, cell in enumerate(cells)]
    path = tmp_path / "edges.csv"
    path.write_text("\n".join([delimiter.join(("source", "target", "weight")), *rows]) + "\n")
    return import_graph(path, **options)


@pytest.mark.parametrize(
    ("cells", "options", "expected", "commas"),
    [
        (("6,15", "2", "1.234,5"), {}, [6.15, 2, 1234.5], True),
        (("6.15", "2", "1,234.5"), {}, [6.15, 2, 1234.5], False),
        (("1,234", "2"), {}, [1.234, 2], True),  # a semicolon between cells lets commas be decimal marks
        (("1,234", "2"), {"decimal": "point"}, [1234, 2], False),
        (("1.234", "2"), {"decimal": "comma"}, [1234, 2], True),
        (("1.234", "2"), {}, [1.234, 2], False),
    ],
)
def test_weights_of_several_locales(tmp_path, cells, options, expected, commas):
    graph = weigh(tmp_path, cells, **options)
    assert graph.edge_weight.tolist() == pytest.approx(expected)
    said = any("read decimal commas in weight of edges.csv" in notice for notice in graph.notices)
    assert said == commas


def test_a_decimal_comma_after_blocks_of_whole_numbers_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(tabular, "BLOCK_BYTES", 64)
    assert weigh(tmp_path, ["3"] * 50 + ["0,5"]).edge_weight.tolist() == [3] * 50 + [0.5]
    marked = weigh(tmp_path, ["3"] * 50 + ["1.234"] * 50 + ["0,5"], decimal="comma")
    assert marked.edge_weight.tolist() == [3] * 50 + [1234] * 50 + [0.5]


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        (("1", "heavy"), {}, r"edges\.csv: column 'weight' holds 'heavy' in row 2: expected a number"),
        (("1.5", "2", "6,15"), {}, "column 'weight' holds '6,15' in row 3: expected a number"),
        (
            ("a lot", "much", "1"),
            {},
            "holds 'a lot' in row 1: expected a weight, a number; --option weight=none",
        ),
        (("1.5", "NA"), {}, "column 'weight' is empty in row 2: expected a weight, a number"),
        (("1,5", ""), {}, "column 'weight' is empty in row 2"),
    ],
)
def test_cells_that_are_no_weights_are_named(tmp_path, cells, options, message):
    with pytest.raises(ShoalError, match=message):
        weigh(tmp_path, cells, **options)


def test_a_comma_that_may_be_either_is_asked_for(tmp_path):
    with pytest.raises(ShoalError, match="'1,234', whose comma may mark thousands or decimals"):
        weigh(tmp_path, ("1,234", "2"), "\t")


def test_weights_of_parquet_are_numbers_or_text_in_any_part(tmp_path):
    (tmp_path / "edges").mkdir()
    for part, cells in enumerate((["4", "2"], ["1", "0,5"], ["3,5", "x"])):
        columns = {"source": [0, 1], "target": [part + 2, part + 2], "weight": cells}
        pq.write_table(pa.table(columns), tmp_path / "edges" / f"part-{part}.parquet")
    with pytest.raises(ShoalError, match=r"part-2\.parquet: column 'weight' holds 'x' in row 2: expected"):
        import_graph(tmp_path)
    (tmp_path / "edges" / "part-2.parquet").unlink()
    assert import_graph(tmp_path).edge_weight.tolist() == [4, 2, 1, 0.5]
    path = tmp_path / "edges.parquet"
    pq.write_table(pa.table({"source": [0, 1], "target": [1, 2], "weight": [[1.0], [2.0]]}), path)
    with pytest.raises(ShoalError, match=r"column 'weight' holds '\[1\.0\]' in row 1: expected a weight"):
        import_graph(path)


def test_an_edge_and_its_reverse_are_joined_as_asked(tmp_path):
    rows = ("a,b,3", "b,a,1", "b,c,5", "c,c,2", "c,c,2", "a,c,4", "c,a,4")
    path = tmp_path / "edges.csv"
    path.write_text("\n".join(("source,target,weight", *rows)) + "\n")
    with pytest.raises(
        ShoalError, match=r"edge b → a weighs 1 and its reverse 3: .*--option merge=sum, mean or"
    ):
        import_graph(path, directed=False)
    for merge, (ab, ac) in {"sum": (4, 8), "mean": (2, 4), "max": (3, 4)}.items():
        graph = import_graph(path, directed=False, merge=merge)
        assert graph.edge_weight.tolist() == [ab, ac, ab, 5, ac, 5, 4]  # a self loop is its own reverse
        said = f"2 edges had a reverse: each pair has the {merge} of the two weights"
        assert any(said in notice for notice in graph.notices)
    with pytest.raises(ShoalError, match=r"merge=sum joins .* is directed: add --undirected"):
        import_graph(path, merge="sum")
    with pytest.raises(ShoalError, match=r"merge=sum joins .* has none: name their column"):
        import_graph(path, directed=False, merge="sum", weight="none")


def test_unused_columns_say_which_one_could_be_the_weight(tmp_path):
    path = tmp_path / "payments.csv"
    path.write_text("payer;payee;when;amount;note\na;b;31/12/2024;6,15;rent\nb;a;01/01/2025;2;loan\n")
    (said,) = (notice for notice in import_graph(path).notices if notice.startswith("left out"))
    assert said == (
        "left out when, amount, note of payments.csv: an edge has at most one weight; --option weight=amount makes amount the weight"
    )
    (said,) = (notice for notice in import_graph(path, weight="amount").notices if "left out" in notice)
    assert said == "left out when, note of payments.csv: an edge has at most one weight"
    path.write_text("payer,payee,note\na,b,rent\n")
    (said,) = (notice for notice in import_graph(path).notices if notice.startswith("left out"))
    assert said.endswith("an edge has at most one weight")
