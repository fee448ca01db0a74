"""`shoal data info`: the figures of small graphs, counted by hand; tables that fit the terminal; encoded tables by command."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from command_line import Run
from shoal.commands.tables import plain_table
from shoal.datasets import describe
from shoal.datasets.describe import describe_graph, measure_homophily
from shoal.graph import Graph
from shoal.store import save_graph


def make_graph(**fields: object) -> Graph:
    """A star 0-1, 0-2, 0-3 and a pair 4-5, one node alone; classes 0 0 1 1 1 -1 0."""
    given = {
        "y": np.array([0, 0, 1, 1, 1, -1, 0]),
        "x": np.stack([np.arange(7), np.ones(7), np.zeros(7)], axis=1).astype(np.float32),
        "train_mask": np.arange(7) < 2,
        "val_mask": np.zeros(7, bool),
        "class_names": ["red", "blue"],
        **fields,
    }
    ends = np.array([[0, 0, 0, 4], [1, 2, 3, 5]])
    return Graph.from_edge_index(ends, 7, directed=False, name="star", **given)


def test_figures_of_a_small_graph() -> None:
    seen = describe_graph(make_graph())
    assert seen.components == {"count": 3, "largest": 4}
    assert (seen.num_isolated, seen.num_edges, seen.mirrored) == (1, 4, None)
    assert seen.labels is not None
    assert seen.labels.sizes == {"red": 3, "blue": 3}
    assert (seen.labels.unlabelled, seen.labels.untrained) == (1, ["blue"])
    assert seen.homophily is not None  # of 0-1, 0-2, 0-3 one joins equal labels; 4 of 6 ends are red
    assert seen.homophily.edges == pytest.approx(1 / 3)
    chance = (4 / 6) ** 2 + (2 / 6) ** 2
    assert seen.homophily.adjusted == pytest.approx((1 / 3 - chance) / (1 - chance))
    assert seen.features is not None
    assert seen.features.constant == ["1", "2"]
    assert seen.top_share == pytest.approx(3 / 8)


def test_random_labels_have_an_adjusted_homophily_of_zero_and_samples_agree() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.1).astype(np.int64)  # nine tenths of one class
    graph = Graph.from_edge_index(rng.integers(0, 3000, (2, 60000)), 3000, directed=False, y=y)
    whole, some = measure_homophily(graph), measure_homophily(graph, 20000)
    assert whole is not None
    assert some is not None
    assert whole.edges > 0.8
    assert abs(whole.adjusted or 0) < 0.02
    assert whole.sampled == 0
    assert 19900 < some.sampled <= 20000  # self loops are not counted
    assert some.edges == pytest.approx(whole.edges, abs=4 * np.sqrt(0.18 * 0.82 / 20000))


def test_large_graphs_are_described_by_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(describe, "MOST_JOINED", 3)
    monkeypatch.setattr(describe, "SAMPLED_ROWS", 2)
    seen = describe_graph(make_graph())
    assert seen.components is None
    assert seen.features is not None
    assert seen.features.rows == 3


def test_info_prints_what_was_measured_and_json(shoal: Callable[..., Run], tmp_path: Path) -> None:
    save_graph(make_graph(), tmp_path / "star")
    said = " ".join(shoal("data", "info", "star").stdout.split())
    for text in (
        "components 3, the largest has 57.1% of the nodes",
        "constant 2 of them: 1, 2",
        "classes red: 3, blue: 3; no training node has blue",
        "homophily 33.3% of the edges join equal labels; adjusted for class sizes -0.50 (0: chance, 1: all)",
        "split train 2 / val 0; no validation nodes",
    ):
        assert text in said
    figures = json.loads(shoal("data", "info", "star", "--json").stdout)
    assert figures["components"] == {"count": 3, "largest": 4}
    assert figures["labels"]["sizes"] == {"red": 3, "blue": 3}
    assert "not here yet" in shoal("data", "info", "ogbn-arxiv", "--json").refusal()


def test_info_has_a_line_about_edge_weights(shoal: Callable[..., Run], tmp_path: Path) -> None:
    save_graph(make_graph(), tmp_path / "star")
    save_graph(make_graph(edge_weight=np.array([1, 2, 3, 0.5])), tmp_path / "weighted")
    assert "edge weights none: every edge" in " ".join(shoal("data", "info", "star").stdout.split())
    said = " ".join(shoal("data", "info", "weighted").stdout.split())
    assert "edge weights 0.5 to 3, mean 1.625" in said
    figures = json.loads(shoal("data", "info", "weighted", "--json").stdout)
    assert figures["weights"] == {"least": 0.5, "most": 3, "mean": 1.625}


def test_tables_import_like_another_by_command(shoal: Callable[..., Run], tmp_path: Path) -> None:
    for name, rows in (("old", "0,red,30,a\n1,blue,,b\n2,red,50,a\n"), ("new", "0,green,1,b\n1,red,,a\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "links.csv").write_text("who,whom\n0,1\n")
        (tmp_path / name / "people.csv").write_text(f"key,colour,age,team\n{rows}")
    options = (
        "--nodes",
        "old/people.csv",
        "--id",
        "key",
        "--label",
        "team",
        "--source",
        "whom",
        "--target",
        "who",
    )
    assert shoal("data", "import", "old/links.csv", "-o", "g", *options).code == 0
    said = " ".join(shoal("data", "info", "g").stdout.split())
    assert "missing age 33.3%" in said
    assert "notice: " not in said
    options = (*options[2:], "--nodes", "new/people.csv", "--like", "g")
    run = shoal("data", "import", "new/links.csv", "-o", "h", *options)
    assert "notice: values that g lacks are zeros: colour (1)" in run.stdout
    assert "2 nodes, 1 edges, 4 features, 2 classes" in run.stdout
    (tmp_path / "new" / "people.csv").write_text("key,colour,age\n0,red,1\n1,red,\n")
    run = shoal("data", "import", "new/links.csv", "-o", "i", "--nodes", "new/people.csv", "--like", "g")
    assert "next: shoal predict RUN --data i -o FILE (RUN: a run that was trained on g)" in run.stdout
    assert "training needs" not in run.stdout
    assert "unknown option of format mtx 'like'" in shoal_on_mtx(shoal, tmp_path)


def shoal_on_mtx(shoal: Callable[..., Run], tmp_path: Path) -> str:
    (tmp_path / "a.mtx").write_text("%%MatrixMarket matrix coordinate pattern general\n2 2 1\n1 2\n")
    return shoal("data", "import", "a.mtx", "-o", "m", "--like", "g").refusal()


def test_predicting_says_the_notices_of_tables_and_not_those_of_a_stored_graph(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    (tmp_path / "tables").mkdir()
    edges = [f"{node},{(node + 1) % 30}" for node in range(30)]
    (tmp_path / "tables/edges.csv").write_text("\n".join(["source,target", *edges, edges[0]]) + "\n")
    rows = [f"{node},{node % 2},{node % 2 + 0.01 * node:.2f}" for node in range(30)]
    (tmp_path / "tables/nodes.csv").write_text("\n".join(["id,label,x", *rows]) + "\n")
    assert "notice: merged 1 duplicate" in shoal("data", "import", "tables", "-o", "g", "--undirected").stdout
    assert shoal("train", "g", "--method", "full", "--epochs", "1", "--out", "run").code == 0
    for data, is_new in (("tables", True), ("g", False)):
        done = shoal("predict", "run", "--data", data, "-o", f"{data}.npy")
        assert done.code == 0, done.stderr
        assert ("notice: merged 1 duplicate" in done.stderr) == is_new


def test_a_run_without_validation_nodes_says_what_that_means(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    save_graph(make_graph(test_mask=np.arange(7) == 3), tmp_path / "star")
    said = shoal("train", "star", "--method", "full", "--epochs", "1", "--out", "run").stdout
    assert "notice: the graph has no validation nodes: all epochs are trained, nothing stops early" in said


@pytest.mark.parametrize("width", [40, 60, 80, 100, 300])
def test_tables_fit_the_terminal_and_cut_no_word(width: int) -> None:
    table = plain_table("name", "nodes", "licence", "what", right=("nodes",))
    rows = [
        (
            "ogbn-papers100M",
            "111,059,956",
            "ODC-BY",
            "papers and their citations, split by the year of publication",
        ),
        ("ppi", "14,755", "", "protein interactions of twenty-four tissues"),
    ]
    for row in rows:
        table.add_row(*row)
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, no_color=True, color_system=None).print(table)
    text = out.getvalue()
    assert max(map(len, text.splitlines())) <= width
    words = text.replace("·", " ").split()
    assert sorted(
        word for row in [("name", "nodes", "licence", "what"), *rows] for word in " ".join(row).split()
    ) == sorted(words)
    if width == 300:
        assert len(text.splitlines()) == 3


def test_lists_in_a_pipe_have_one_line_a_row(shoal: Callable[..., Run]) -> None:
    lines = shoal("recipes").stdout.splitlines()
    assert all(not line.startswith(" ") for line in lines)


def test_a_directed_import_says_what_is_aggregated(shoal: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    for option, is_said in (("--directed", True), ("--undirected", False)):
        run = shoal("data", "import", "edges.csv", "-o", option.strip("-"), option)
        assert run.code == 0, run
        assert ("model.directions=in" in run.stdout) == is_said
