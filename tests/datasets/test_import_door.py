"""import_graph itself: recognising formats, options, and refusing what is no graph."""

import numpy as np
import pytest

from shoal.datasets.importers import FORMATS, import_graph
from shoal.errors import ShoalError


def test_misspelt_format_is_corrected(tmp_path):
    with pytest.raises(ShoalError, match="unknown format 'planetoit': did you mean 'planetoid'"):
        import_graph(tmp_path, format="planetoit")


def test_folder_without_a_graph_is_refused_with_what_it_holds(tmp_path):
    (tmp_path / "notes.md").write_text("hello")
    with pytest.raises(ShoalError, match=r"folder with notes\.md.*graphsaint.*npz"):
        import_graph(tmp_path)


def test_missing_source_is_named(tmp_path):
    with pytest.raises(ShoalError, match=r"gone\.mtx does not exist"):
        import_graph(tmp_path / "gone.mtx")


def test_unknown_option_and_wrong_type_are_refused(tmp_path):
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n0,1\n")
    with pytest.raises(ShoalError, match="option of format table 'sauce': did you mean 'source'"):
        import_graph(path, sauce="a")
    np.savez(tmp_path / "g.npz", indptr=[0, 1, 2], indices=[1, 0])
    with pytest.raises(ShoalError, match="option fold is '1': expected int"):
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


def test_every_format_lists_its_options():
    assert FORMATS["graphsaint"].options == {"standardize": True}
    assert set(FORMATS["table"].options) == {"nodes", "source", "target", "features", "labels"}
