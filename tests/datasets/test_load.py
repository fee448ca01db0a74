"""`shoal.load`: paths before names, the order of places, and what it says when there is nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shoal.datasets import known_names, load
from shoal.datasets.places import graph_folder
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.store import save_graph


@pytest.fixture(autouse=True)
def own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test has an empty home, an empty data folder and an empty current folder of its own."""
    for variable, folder in {"SHOAL_HOME": "home", "SHOAL_DATA": "data"}.items():
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / folder))
    (tmp_path / "current").mkdir()
    monkeypatch.chdir(tmp_path / "current")


def ring(num_nodes: int, name: str = "ring") -> Graph:
    ends = np.arange(num_nodes)
    return Graph.from_edge_index(
        np.stack([ends, (ends + 1) % num_nodes]), num_nodes, directed=False, name=name
    )


def test_stored_folder_is_opened(tmp_path: Path) -> None:
    save_graph(ring(5), tmp_path / "r")
    assert load(tmp_path / "r").num_edges == 5
    assert load(str(tmp_path / "r")).name == "ring"


def test_path_wins_over_data_folder_and_that_over_home(tmp_path: Path) -> None:
    save_graph(ring(7), graph_folder("cora"))
    assert load("cora").num_nodes == 7
    save_graph(ring(6), tmp_path / "data" / "cora")
    assert load("cora").num_nodes == 6
    save_graph(ring(5), Path("cora"))
    assert load("cora").num_nodes == 5


def test_stored_graph_takes_no_settings(tmp_path: Path) -> None:
    save_graph(ring(5), tmp_path / "r")
    with pytest.raises(ShoalError, match="takes no setting such as 'scale'"):
        load(tmp_path / "r", scale=3)


def test_registered_graph_that_is_not_here_names_the_command() -> None:
    with pytest.raises(ShoalError, match="cora is not here yet: run `shoal data get cora`"):
        load("cora")


def test_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        ShoalError, match=r"unknown graph 'digit': did you mean 'digits'\?; no file or folder has that name"
    ):
        load("digit")
    save_graph(ring(5), graph_folder("my-own-ring"))
    with pytest.raises(ShoalError, match=r"did you mean 'my-own-ring'\?"):
        load("my-own-rinf")


@pytest.mark.parametrize("path", ["no/such/folder", "../cora", "./digits", "no.npz/", "/nowhere/at/all"])
def test_missing_path_is_called_a_path(path: str) -> None:
    with pytest.raises(ShoalError, match="does not exist: expected a graph's folder or file"):
        load(path)


def test_known_names_hold_built_in_local_and_registered(tmp_path: Path) -> None:
    (tmp_path / "data" / "mine.npz").write_bytes(b"")
    (tmp_path / "data" / "notes.txt").write_text("not a graph")
    (tmp_path / "data" / "not-stored").mkdir()
    names = known_names()
    assert {"digits", "blocks", "kronecker", "cora", "ogbn-products", "mine"} <= set(names)
    assert not {"notes", "notes.txt", "not-stored"} & set(names)


def test_npz_in_the_data_folder_is_imported_under_its_name(tmp_path: Path) -> None:
    graph = ring(6)
    np.savez(
        tmp_path / "data" / "mine.npz",
        indptr=graph.indptr,
        indices=graph.indices,
        num_nodes=6,
        directed=False,
    )
    found = load("mine")
    assert (found.name, found.num_nodes, found.num_edges) == ("mine", 6, 6)


def test_generator_settings_reach_it_and_wrong_ones_are_named() -> None:
    assert load("kronecker", scale=6, degree=4, seed=1).num_nodes == 64
    with pytest.raises(ShoalError, match=r"unknown setting of kronecker 'scal': did you mean 'scale'\?"):
        load("kronecker", scal=6)
    with pytest.raises(ShoalError, match=r"digits.*'scale'"):
        load("digits", scale=6)


def test_importing_the_package_needs_neither_numpy_nor_torch() -> None:
    program = "import sys, shoal.datasets, shoal.datasets.registry as r; r.registered(); shoal.datasets.known_names()\nprint([m for m in ('numpy', 'scipy', 'torch', 'numba', 'rich') if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["x" * 5000, "a/" * 3000, "~nobody-of-this-name/graph", "nul\0byte"])
def test_a_name_that_no_file_can_have_is_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(ShoalError, match=r"no graph|does not exist|unknown"):
        load(name)
