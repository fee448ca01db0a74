"""import_graph itself: recognising formats, options, and refusing what is no graph."""

import re
from typing import Annotated

import numpy as np
import pytest
from click.testing import CliRunner

from shoal.cli import shoal as cli
from shoal.datasets.formats import recognised
from shoal.datasets.importers import FORMATS, import_graph
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.settings import AtLeast, list_settings
from shoal.store import save_graph


def test_misspelt_format_is_corrected(tmp_path):
    with pytest.raises(ShoalError, match="unknown format 'planetoit': did you mean 'planetoid'"):
        import_graph(tmp_path, format="planetoit")


def test_folder_without_a_graph_is_refused_with_what_it_holds(tmp_path):
    (tmp_path / "notes.md").write_text("hello")
    with pytest.raises(
        ShoalError, match=r"folder with notes\.md.*--format \(format= in Python\).*graphsaint.*npz"
    ):
        import_graph(tmp_path)


def test_a_folder_of_tables_under_other_names_is_told_the_command(tmp_path):
    folder = tmp_path / "my bank"
    folder.mkdir()
    (folder / "customers.csv").write_text("customer,age\n" + "".join(f"c{i},{i}\n" for i in range(50)))
    (folder / "transfers.csv").write_text("src_customer,dst_customer,amount\nc1,c2,3\n")
    edges, nodes = folder / "transfers.csv", folder / "customers.csv"
    command = re.escape(f"`shoal data import '{edges}' --nodes '{nodes}' -o GRAPH`")
    for options in ({}, {"format": "table"}):
        with pytest.raises(ShoalError, match=command):
            import_graph(folder, **options)
    assert import_graph(edges, nodes=nodes).num_nodes == 50
    (folder / "branches.tsv").write_text("branch\ttown\nb1\tUlm\n")
    with pytest.raises(ShoalError, match=r"transfers\.csv' --nodes FILE -o GRAPH"):
        import_graph(folder)
    for table in ("customers.csv", "branches.tsv"):
        (folder / table).unlink()
    with pytest.raises(ShoalError, match=re.escape(f"`shoal data import '{edges}' -o GRAPH`")):
        import_graph(folder)


def test_missing_source_is_named(tmp_path):
    with pytest.raises(ShoalError, match=r"gone\.mtx does not exist"):
        import_graph(tmp_path / "gone.mtx")


def test_unknown_option_and_wrong_type_are_refused(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n0,1\n")
    with pytest.raises(ShoalError, match="option of format table 'sauce': did you mean 'source'"):
        import_graph(path, sauce="a")
    np.savez(tmp_path / "g.npz", indptr=[0, 1, 2], indices=[1, 0])
    with pytest.raises(ShoalError, match="fold is '1': expected a whole number"):
        import_graph(tmp_path / "g.npz", fold="1")


@pytest.mark.parametrize(
    "ending", [".mtx", ".mtx.gz", ".txt", ".txt.gz", ".csv", ".csv.gz", ".parquet", ".npz"]
)
@pytest.mark.parametrize("content", [b"", b"\x1f\x8b\x08\x00garbage", b"PK\x03\x04 cut", b"\x00\xff\xfe{[,"])
def test_garbage_is_a_clear_no_in_every_format(tmp_path, ending, content):
    path = tmp_path / f"bad{ending}"
    path.write_bytes(content)
    with pytest.raises(ShoalError, match=f"bad{ending}"):
        import_graph(path)


def test_progress_and_name_reach_the_reader(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n0,1\n")
    said = []
    assert import_graph(path, name="mine", progress=said.append).name == "mine"
    assert "read 1 edges" in said


def test_help_on_the_command_line_lists_every_format_with_its_options():
    said = CliRunner().invoke(cli, ["data", "import", "--help"]).output
    listed = re.split(r"^  (\w+)  +(?=\S)", said.split("and their options:")[1], flags=re.M)
    explained = dict(zip(listed[1::2], listed[2::2]))
    assert set(explained) == set(FORMATS)
    for name, reader in FORMATS.items():
        assert set(re.findall(r"(\w+)=", explained[name])) == set(list_settings(reader)), name
    assert "tables are directed" in " ".join(said.split())


def test_a_users_format_is_recognised_and_takes_its_options(tmp_path, monkeypatch):
    FORMATS._load()
    monkeypatch.setattr(FORMATS, "_components", dict(FORMATS))

    @FORMATS.named("pairs")
    @recognised(lambda path: path.suffix == ".txt", priority=1)  # asked before snap
    def read_pairs(path, *, directed, name, progress, skip: Annotated[int, AtLeast(0), "lines to skip"] = 0):
        ends = np.loadtxt(path, np.int64, skiprows=skip).T
        return Graph.from_edge_index(ends, directed=directed, name=name or "pairs")

    (tmp_path / "g.txt").write_text("source target\n0 1\n1 2\n")
    graph = import_graph(tmp_path / "g.txt", skip=1)
    assert (graph.name, graph.num_nodes, graph.num_edges) == ("pairs", 3, 2)
    with pytest.raises(ShoalError, match="skip is -1: expected at least 0"):
        import_graph(tmp_path / "g.txt", skip=-1)


def test_a_column_whose_name_is_a_number_can_be_named(tmp_path):
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    (tmp_path / "nodes.csv").write_text("id,2020,f\n0,0,1\n1,1,2\n")
    assert import_graph(tmp_path, labels=2020).y.tolist() == [0, 1]


def test_a_stored_graph_needs_no_import(tmp_path):
    save_graph(Graph.from_edge_index([[0], [1]], 2), tmp_path / "graph")
    with pytest.raises(ShoalError, match="graph is already a stored graph"):
        import_graph(tmp_path / "graph")


def test_a_damaged_npz_is_refused_without_advice_to_unpickle(tmp_path):
    (tmp_path / "g.npz").write_bytes(b"neither a zip nor an array")
    with pytest.raises(ShoalError, match=r"g\.npz cannot be read \(not a plain NumPy array\)") as caught:
        import_graph(tmp_path / "g.npz")
    assert "allow_pickle" not in str(caught.value)
