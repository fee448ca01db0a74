"""`shoal data …` as a user types it: a real server, exit codes and sentences; its own process where that matters."""

from __future__ import annotations

import errno
import gzip
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from command_line import Run
from shoal.graph import Graph
from shoal.store import open_graph, save_graph


def make_graph() -> Graph:
    """Seven nodes: a path 0-1-2-3 with a self loop at 0, and three isolated nodes."""
    x = np.zeros((7, 4), np.float32)
    x[:, 0] = 1
    return Graph.from_edge_index(
        np.array([[0, 0, 1, 2], [0, 1, 2, 3]]),
        7,
        directed=False,
        x=x,
        y=np.array([0, 1, 0, 1, 0, -1, -1]),
        train_mask=np.arange(7) < 2,
        val_mask=np.arange(7) == 2,
        test_mask=np.arange(7) == 3,
        name="tiny",
    )


@pytest.mark.parametrize("command", ["list", "info", "import", "generate", "order", "get", "verify"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    from click.testing import CliRunner

    from shoal.cli import shoal as group

    said = CliRunner().invoke(group, ["data", command, "--help"])
    assert said.exit_code == 0
    assert re.search(rf"Examples?:\n    shoal data {command}", said.output)


def test_list_says_where_every_graph_is(shoal: Callable[..., Run], tmp_path: Path) -> None:
    save_graph(make_graph(), tmp_path / "home" / "graphs" / "cora")
    save_graph(make_graph(), tmp_path / "data" / "tiny")
    lines = shoal("data", "list", SHOAL_DATA=str(tmp_path / "data")).stdout.splitlines()
    rows = {line.split()[0]: line for line in lines}
    for name, where in {
        "digits": "embedded",
        "cora": "here",
        "tiny": "here",
        "yelp": "fetchable",
        "ppi": "by hand",
    }.items():
        assert rows[name].endswith(f" {where}")
    assert "111,059,956  1,615,685,872" in rows["ogbn-papers100M"]
    assert rows["cora"].split()[1:5] == ["7", "4", "4", "2"]  # what is here, not what was published


def test_info_describes_a_stored_graph(shoal: Callable[..., Run], tmp_path: Path) -> None:
    save_graph(make_graph(), tmp_path / "tiny")
    said = " ".join(shoal("data", "info", "tiny").stdout.split())
    assert (
        "nodes 7 edges 4 undirected edge weights none: every edge counts the same degree mean 1, min 0, median 1, 90 % 2, 99 % 2, max 2"
        in said
    )
    assert "isolated nodes 3 self loops 1" in said
    assert "features 4 dense float32, 25.0% nonzero" in said
    assert "labels single-label, 2 classes, the largest holds 60%; 2 nodes unlabelled" in said
    assert "split train 2 / val 1 / test 1" in said


def test_info_of_a_graph_not_here_tells_what_its_publisher_says(shoal: Callable[..., Run]) -> None:
    said = shoal("data", "info", "ogbn-arxiv").stdout
    assert "not here yet; shoal data get ogbn-arxiv" in said
    assert "accuracy 0.7174" in said
    assert "ODC-BY" in said


def test_verify_tells_a_sound_graph_from_a_changed_one(shoal: Callable[..., Run], tmp_path: Path) -> None:
    save_graph(make_graph(), tmp_path / "tiny")
    assert shoal("data", "verify", "tiny").stdout == "tiny is sound\n"
    content = bytearray((tmp_path / "tiny" / "y.npy").read_bytes())
    content[-1] ^= 1
    (tmp_path / "tiny" / "y.npy").write_bytes(content)
    assert "y.npy has changed since it was written" in shoal("data", "verify", "tiny").refusal()
    assert "nowhere does not exist" in shoal("data", "verify", "nowhere").refusal()


def test_mistyped_commands_are_refused_in_one_sentence(shoal: Callable[..., Run], tmp_path: Path) -> None:
    assert "did you mean 'data'?" in shoal("dat").refusal()
    assert "'--overwrite'" in shoal("data", "get", "cora", "--overwrit").refusal()
    assert "did you mean 'ogbn-arxiv'?" in shoal("data", "get", "ogbn-arxv").refusal()
    assert "'-o' / '--out'" in shoal("data", "import", "x").refusal()
    (tmp_path / "x.mtx").write_text("")
    assert "expected KEY=VALUE" in shoal("data", "import", "x.mtx", "-o", "d", "--option", "header").refusal()
    assert "nothing.csv does not exist" in shoal("data", "import", "nothing.csv", "-o", "d").refusal()
    assert not (tmp_path / "d").exists()


def test_import_never_replaces_what_is_no_graph(shoal: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "x.mtx").write_text("")
    (tmp_path / "precious").mkdir()
    assert "add --overwrite" in shoal("data", "import", "x.mtx", "-o", "precious").refusal()
    assert (
        "refusing to overwrite" in shoal("data", "import", "x.mtx", "-o", "precious", "--overwrite").refusal()
    )


def test_import_into_a_bad_place_is_refused_by_the_name_that_was_given(
    shoal: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "edges.csv").write_text("source,target\n")  # would be refused if it were read
    said = shoal("data", "import", "edges.csv", "-o", "edges.csv/deep/g").refusal()
    assert "edges.csv is a file: edges.csv/deep/g cannot be made inside it" in said
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")

    def refuse(*args: object, **settings: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / ".g.x.partial"))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)  # root may write anywhere
    said = shoal("data", "import", "edges.csv", "-o", "locked/g").refusal()
    assert said.startswith("shoal: locked/g cannot be written (permission denied)")


def test_import_reports_and_says_what_to_type_next(shoal: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "a.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n1 2\n2 3\n"
    )
    run = shoal("data", "import", "a.mtx", "-o", "a", "--undirected", "--name", "chain")
    assert run.code == 0, run.stderr
    assert run.stdout.splitlines()[-2:] == [
        "stored chain in a: 3 nodes, 2 edges, 0 features, 0 classes",
        "next: shoal data info a (training needs features and labels, which this graph lacks)",
    ]
    said = "notice: merged 1 duplicate edges"
    assert said in run.stdout
    assert said in shoal("data", "info", "a.mtx").stdout
    assert said not in shoal("data", "info", "a").stdout
    assert "merged 1 duplicate edges" in shoal("data", "info", "a", "--json").stdout
    assert json.loads((tmp_path / "a" / "meta.json").read_text())["name"] == "chain"
    assert shoal("data", "verify", "a").code == 0


def test_import_onto_a_full_disk_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.mtx.gz", "wt") as file:
        file.write("%%MatrixMarket matrix coordinate pattern general\n900000 900000 2\n1 2\n2 3\n")
    run = subprocess.run(
        [sys.executable, "-m", "shoal", "data", "import", "a.mtx.gz", "-o", "out", "--directed"],
        env=environment,
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "no space left while writing out" in Run(run.returncode, run.stdout, run.stderr).refusal()
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("home", "a.mtx.gz")] == []


@pytest.mark.parametrize("compressed", [False, True])
def test_disk_that_fills_up_while_an_archive_is_unpacked_is_not_blamed_on_the_archive(
    environment: dict[str, str], tmp_path: Path, compressed: bool
) -> None:
    save = np.savez_compressed if compressed else np.savez
    x = np.zeros((300_000, 50), np.float32)  # 60 MB, more than Python and torch leave of the budget
    save(tmp_path / "a.npz", indptr=np.zeros(300_001, np.int64), indices=np.empty(0, np.int32), x=x)
    run = subprocess.run(
        [sys.executable, "-m", "shoal", "data", "import", "a.npz", "-o", "out", "--memory", "330MB"],
        cwd=tmp_path,
        env=environment,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000)),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "no space left while writing out" in Run(run.returncode, run.stdout, run.stderr).refusal()
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("home", "a.npz")] == []


def test_import_and_order_renumber_nodes_and_keep_what_users_call_them(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    numbers = np.random.default_rng(0).permutation(200)
    lines = [f"n{a},n{b}" for a, b in pairwise(numbers)]  # a path
    (tmp_path / "edges.csv").write_text("source,target\n" + "\n".join(lines) + "\n")
    said = shoal("data", "import", "edges.csv", "-o", "g", "--undirected", "--order", "rcm")
    assert "ordered the nodes by rcm: neighbours are 1 numbers apart on average" in said.stdout
    assert shoal("data", "import", "edges.csv", "-o", "plain", "--undirected").code == 0
    assert shoal("data", "order", "plain", "--by", "rcm", "-o", "later").code == 0
    from shoal.store import open_graph

    graphs = [open_graph(tmp_path / name) for name in ("g", "later", "plain")]
    for graph in graphs[:2]:
        ids = [graph.node_ids[i] for i in range(200)]
        path = [f"n{i}" for i in numbers]
        assert ids in (path, path[::-1])
        np.testing.assert_array_equal(graph.indices, graphs[0].indices)
    assert [graphs[2].node_ids[i] for i in range(200)] == sorted(f"n{i}" for i in range(200))
    refused = shoal("data", "import", "edges.csv", "-o", "h", "--order", "rmc").refusal()
    assert "unknown order 'rmc': did you mean 'rcm'?" in refused
    settings = ("--order", "communities", "--order-set", "most=0")
    assert "most" in shoal("data", "import", "edges.csv", "-o", "h", *settings).refusal()
    refused = shoal("data", "import", "edges.csv", "-o", "h", "--order-set", "most=5").refusal()
    assert "none is given: add --order" in refused
    refused = shoal("data", "order", "plain", "--by", "parts", "--set", "part=3", "-o", "h").refusal()
    assert "unknown setting of parts 'part': did you mean 'parts'?" in refused


def test_features_are_stored_as_the_type_asked_for(shoal: Callable[..., Run], tmp_path: Path) -> None:
    (tmp_path / "g").mkdir()
    (tmp_path / "g" / "edges.csv").write_text("source,target\n0,1\n1,2\n")
    (tmp_path / "g" / "nodes.csv").write_text("id,height,label\n0,0.1,a\n1,0.7,b\n2,-3,a\n")
    commands = {
        "import": ("import", "g", "--order", "degree"),
        "generate": ("generate", "blocks", "--set", "num_nodes=50"),
        "order": ("order", "import", "--by", "rcm"),
    }
    for (name, words), features in zip(commands.items(), ("float16", "bfloat16", "int8")):
        done = shoal("data", *words, "-o", name, "--features", features)
        assert done.code == 0, done.stderr
        graph = open_graph(tmp_path / name)
        assert graph.x.type == features
        assert sum(f"features stored as {features}" in notice for notice in graph.notices) == 1
    again = shoal("data", "order", "order", "--by", "degree", "-o", "again")
    assert again.code == 0, again.stderr
    assert open_graph(tmp_path / "again").x.type == "int8"
    said = shoal("data", "generate", "blocks", "-o", "h", "--features", "float61").refusal()
    assert "unknown type of features 'float61': did you mean 'float16'?" in said
    assert "--features takes float32, float16, bfloat16, int8" in said
