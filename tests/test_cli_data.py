"""`shoal data …` as a user types it: a real server, exit codes and sentences; its own process where that matters."""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from file_server import FileServer
from shoal.cli import main
from shoal.graph import Graph
from shoal.store import open_graph, save_graph

SLASHDOT = "/MM/SNAP/soc-Slashdot0902.tar.gz"
NUM_NODES = 82_168


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_")}
    return {**kept, "SHOAL_HOME": str(tmp_path / "home"), "no_proxy": "127.0.0.1", "PYTHONWARNINGS": "error"}


@dataclass
class Run:
    code: int
    stdout: str
    stderr: str

    def refusal(self) -> str:
        """The last line on stderr, after checking that it is a refusal: exit code 2, no traceback."""
        assert self.code == 2, self.stderr
        assert "Traceback" not in self.stderr
        last = self.stderr.strip().splitlines()[-1]
        assert last.startswith("shoal: ")
        return last


@pytest.fixture
def shoal(
    tmp_path: Path,
    environment: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., Run]:
    """The command line, run in this process."""
    monkeypatch.chdir(tmp_path)
    for variable in ("SHOAL_DATA", "SHOAL_MIRROR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SHOAL_HOME", environment["SHOAL_HOME"])

    def run(*args: object, **settings: str) -> Run:
        with monkeypatch.context() as patch:
            for variable, value in settings.items():
                patch.setenv(variable, value)
            with pytest.raises(SystemExit) as done:
                main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Run(int(done.value.code or 0), captured.out, captured.err)

    return run


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


def pack_slashdot(num_nodes: int = NUM_NODES) -> bytes:
    """A SuiteSparse archive as published: NAME/NAME.mtx in a tar.gz, arcs of random friends."""
    arcs = np.random.default_rng(0).integers(1, num_nodes + 1, (20_000, 2))
    head = f"%%MatrixMarket matrix coordinate pattern general\n% SNAP/soc-Slashdot0902\n{num_nodes} {num_nodes} {len(arcs)}\n"
    body = (head + "\n".join(f"{i} {j}" for i, j in arcs) + "\n").encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        member = tarfile.TarInfo("soc-Slashdot0902/soc-Slashdot0902.mtx")
        member.size = len(body)
        packed.addfile(member, io.BytesIO(body))
    return buffer.getvalue()


def test_help_is_fast_and_imports_nothing_heavy(environment: dict[str, str]) -> None:
    program = (
        "import sys\nfrom shoal.cli import shoal\n"
        "for args in (['--help'], ['data', '--help'], ['data', 'get', '--help']):\n"
        "    try: shoal.main(args, standalone_mode=False)\n    except SystemExit: pass\n"
        "print('heavy:', [m for m in ('torch', 'numba', 'numpy', 'scipy', 'rich') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=30
    )
    assert run.stdout.strip().endswith("heavy: []"), run.stderr
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "shoal", "--help"], env=environment, capture_output=True, check=True
        )
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.5


@pytest.mark.parametrize("command", ["list", "info", "import", "get", "verify"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    from click.testing import CliRunner

    from shoal.cli import shoal as group

    said = CliRunner().invoke(group, ["data", command, "--help"])
    assert said.exit_code == 0
    assert f"Example:\n    shoal data {command}" in said.output


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
        assert f" {where} " in rows[name]
    assert "111,059,956  1,615,685,872" in rows["ogbn-papers100M"]


def test_info_describes_a_stored_graph(shoal: Callable[..., Run], tmp_path: Path) -> None:
    save_graph(make_graph(), tmp_path / "tiny")
    said = " ".join(shoal("data", "info", "tiny").stdout.split())
    assert "nodes 7 edges 4 undirected degree mean 1, min 0, median 1, 90 % 2, 99 % 2, max 2" in said
    assert "isolated nodes 3 self loops 1" in said
    assert "features 4 dense float32, 25.0% nonzero" in said
    assert "labels one a node, 2 classes, the largest holds 60%; 2 nodes unlabelled" in said
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


def test_graph_without_address_names_page_and_import_line(shoal: Callable[..., Run]) -> None:
    said = shoal("data", "get", "ppi").refusal()
    assert "https://drive.google.com/drive/folders/" in said
    assert "`shoal data import FOLDER -o ppi --format graphsaint`" in said


def test_get_interrupted_by_ctrl_c_resumes_with_the_same_command(
    shoal: Callable[..., Run], environment: dict[str, str], tmp_path: Path
) -> None:
    archive = pack_slashdot()
    partial = tmp_path / "home/downloads/soc-Slashdot0902/soc-Slashdot0902.tar.gz.partial"
    command = ["data", "get", "soc-Slashdot0902"]
    with FileServer({SLASHDOT: archive}) as server:
        server.stall_after = 10_000
        mirror = {"SHOAL_MIRROR": server.address}
        process = subprocess.Popen(
            [sys.executable, "-m", "shoal", *command],
            env={**environment, **mirror},
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (partial.exists() and partial.stat().st_size == 10_000):
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
        assert process.returncode == 130
        assert "Traceback" not in said
        assert f"10,000 bytes are kept in {partial}, the same command resumes there" in said
        assert [path.name for path in (tmp_path / "home").iterdir()] == ["downloads"]
        server.resume.set()
        shoal(*command, **mirror)
    assert server.requests[-1] == (SLASHDOT, "bytes=10000-", len(archive) - 10_000)


def test_get_from_a_failing_server_leaves_only_the_partial_file(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    with FileServer({SLASHDOT: pack_slashdot()}) as server:
        server.ranges, server.die_after = False, 10_000
        run = shoal(
            "data", "get", "soc-Slashdot0902", "--retries", 0, "-o", "out", SHOAL_MIRROR=server.address
        )
        assert "the same command resumes" in run.refusal()
        run = shoal("data", "get", "cit-Patents", "-o", "out", SHOAL_MIRROR=server.address)
        assert "answered 404 Not Found" in run.refusal()
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "home" / "graphs").exists()


def test_damaged_archive_is_removed_so_that_it_is_fetched_anew(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    with FileServer({SLASHDOT: pack_slashdot()[:-5000]}) as server:
        said = shoal("data", "get", "soc-Slashdot0902", SHOAL_MIRROR=server.address).refusal()
    assert "damaged or incomplete" in said
    assert "the same command fetches it anew" in said
    assert list((tmp_path / "home").rglob("*.tar.gz*")) == []


def test_get_fetches_checks_and_stores(shoal: Callable[..., Run], tmp_path: Path) -> None:
    pytest.importorskip("shoal.datasets.importers")
    with FileServer({SLASHDOT: pack_slashdot()}) as server:
        run = shoal("data", "get", "soc-Slashdot0902", SHOAL_MIRROR=server.address)
        assert run.code == 0, run.stderr
        assert run.stdout.splitlines()[-1] == "next: shoal train soc-Slashdot0902"
        graph = open_graph(tmp_path / "home/graphs/soc-Slashdot0902")
        assert (graph.num_nodes, graph.directed, graph.name) == (NUM_NODES, True, "soc-Slashdot0902")
        assert not (tmp_path / "home/downloads/soc-Slashdot0902").exists()
        assert (
            "is here already" in shoal("data", "get", "soc-Slashdot0902", SHOAL_MIRROR=server.address).stdout
        )
        assert len(server.requests) == 1
        assert "82,168" in shoal("data", "info", "soc-Slashdot0902").stdout


def test_get_refuses_a_graph_of_another_size(shoal: Callable[..., Run], tmp_path: Path) -> None:
    pytest.importorskip("shoal.datasets.importers")
    with FileServer({SLASHDOT: pack_slashdot(num_nodes=5_000)}) as server:
        said = shoal("data", "get", "soc-Slashdot0902", "-o", "out", SHOAL_MIRROR=server.address).refusal()
    assert "came with 5,000 nodes, expected 82,168" in said
    assert not (tmp_path / "out").exists()


def test_import_reports_and_says_what_to_type_next(shoal: Callable[..., Run], tmp_path: Path) -> None:
    pytest.importorskip("shoal.datasets.importers")
    (tmp_path / "a.mtx").write_text(
        "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n1 2\n2 3\n"
    )
    run = shoal("data", "import", "a.mtx", "-o", "a", "--undirected", "--name", "chain")
    assert run.code == 0, run.stderr
    assert run.stdout.splitlines()[-2:] == [
        "stored chain in a: 3 nodes, 2 edges, 0 features, 0 classes",
        "next: shoal train a",
    ]
    assert "notice: merged 1 duplicate edges" in run.stdout
    assert json.loads((tmp_path / "a" / "meta.json").read_text())["name"] == "chain"
    assert shoal("data", "verify", "a").code == 0


def test_import_onto_a_full_disk_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("shoal.datasets.importers")
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
