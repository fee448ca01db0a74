"""SQLite and DuckDB files as sources: tables by their usual names, queries, refusals."""

import datetime
import sqlite3
from contextlib import closing

import numpy as np
import pytest

from shoal.datasets.importers import import_graph
from shoal.errors import ShoalError

NODES = [
    (10, 0.5, "2020-01-01", "a", "red"),
    (20, None, "2021-01-01", "b", "blue"),
    (30, 1.5, "2022-01-01", "a", "red"),
]
EDGES = [(10, 20), (20, 30), (30, 10)]


@pytest.fixture(params=["graph.sqlite", "graph.db", "graph.duckdb"])
def database(tmp_path, request):
    path = tmp_path / request.param
    if path.suffix == ".duckdb":
        duckdb = pytest.importorskip("duckdb")
        opened = duckdb.connect(str(path))
        nodes = [(*row[:2], datetime.date.fromisoformat(row[2]), *row[3:]) for row in NODES]
    else:
        opened, nodes = sqlite3.connect(path), NODES
    kind = "date" if path.suffix == ".duckdb" else "text"
    with closing(opened):
        opened.execute(f"CREATE TABLE nodes (id integer, f double, day {kind}, class text, colour text)")
        opened.execute("CREATE TABLE edges (source integer, target integer)")
        opened.executemany("INSERT INTO nodes VALUES (?, ?, ?, ?, ?)", nodes)
        opened.executemany("INSERT INTO edges VALUES (?, ?)", EDGES)
        opened.commit()
    return path


def test_tables_of_a_database_are_read_like_files(database):
    graph = import_graph(database)
    assert (graph.name, graph.num_nodes, graph.num_edges) == ("graph", 3, 3)
    assert graph.node_ids.tolist() == [10, 20, 30]
    assert graph.x[:, :2].tolist() == [[0.5, 0], [1, 1], [1.5, 0]]
    assert np.allclose(graph.x[:, 2], [-1, 0, 1], atol=0.01)
    assert graph.y.tolist() == [0, 1, 0]


def test_queries_choose_and_join(database):
    graph = import_graph(
        database,
        edges="SELECT target AS source, source AS target FROM edges WHERE source < 30",
        nodes="SELECT id, f * 2 AS g, class FROM nodes WHERE f IS NOT NULL OR id = 20",
    )
    assert graph.num_edges == 2
    assert graph.x[:, 0].tolist() == [1, 2, 3]
    graph = import_graph(database, nodes="nodes", edges="edges", labels="colour", features="f")
    assert graph.class_names == ("blue", "red")


def test_what_a_database_lacks_is_refused_in_a_sentence(database, tmp_path):
    with pytest.raises(ShoalError, match=r"has no table 'links': it has .*nodes"):
        import_graph(database, edges="links")
    with pytest.raises(ShoalError, match=r"graph\.\w+ cannot be read as asked: .*nothing"):
        import_graph(database, edges="SELECT source, nothing FROM edges")
    with pytest.raises(ShoalError, match=r"graph\.\w+: edges\.\w+: row 1 names node"):
        import_graph(database, edges="SELECT 7 AS source, 8 AS target")
    with pytest.raises(ShoalError, match="cannot be read as asked"):
        import_graph(database, edges="DROP TABLE edges")
    assert import_graph(database).num_edges == 3
    database.write_bytes(b"no database at all, " * 100)
    with pytest.raises(ShoalError, match=r"graph\.\w+ cannot be read as asked"):
        import_graph(database)
    (tmp_path / "edges.csv").write_text("a,b\n0,1\n")
    with pytest.raises(ShoalError, match=r"edges names a table of a database, and .* is not a database"):
        import_graph(tmp_path / "edges.csv", edges="links")


def test_a_view_reads_no_other_file_unless_a_query_was_written(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    (tmp_path / "secret.csv").write_text("source,target\n0,1\n")
    with closing(duckdb.connect(str(tmp_path / "g.duckdb"))) as opened:
        opened.execute(f"CREATE VIEW edges AS SELECT * FROM read_csv('{tmp_path / 'secret.csv'}')")
    with pytest.raises(ShoalError, match="cannot be read as asked"):
        import_graph(tmp_path / "g.duckdb")
    assert import_graph(tmp_path / "g.duckdb", edges="SELECT * FROM edges").num_edges == 1
