"""`shoal data get` against a real server that serves the published formats, and fails in the usual ways."""

from __future__ import annotations

import fcntl
import io
import os
import pickle
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from command_line import Run
from file_server import FileServer
from shoal.store import open_graph

SLASHDOT = "/MM/SNAP/soc-Slashdot0902.tar.gz"
NUM_NODES = 82_168


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


def pack_cora() -> dict[str, bytes]:
    """Planetoid's eight files of cora as published: pickled CSR rows and one-hot labels, random contents."""
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 2_708, (2, 5_000))
    neighbours: dict[int, list[int]] = {node: [] for node in range(2_708)}
    for u, v in ends.T.tolist():
        neighbours[u].append(v)
    parts: dict[str, object] = {"graph": neighbours}
    for rows, x, y in ((140, "x", "y"), (1_000, "tx", "ty"), (1_708, "allx", "ally")):
        parts[x] = sp.csr_matrix(rng.random((rows, 1_433)) < 0.01, dtype=np.float32)
        parts[y] = np.eye(7, dtype=np.int32)[np.arange(rows) % 7]
    files = {part: pickle.dumps(content, protocol=2) for part, content in parts.items()}
    files["test.index"] = "".join(f"{node}\n" for node in rng.permutation(np.arange(1_708, 2_708))).encode()
    return {
        f"/kimiyoung/planetoid/raw/master/data/ind.cora.{part}": content for part, content in files.items()
    }


def test_graph_without_address_names_page_and_import_line(shoal: Callable[..., Run]) -> None:
    said = shoal("data", "get", "ppi").refusal()
    assert "https://drive.google.com/drive/folders/" in said
    assert "`shoal data import FOLDER -o ppi --format graphsaint`" in said
    said = shoal("data", "get", "ppi", "--memory", "lots").refusal()
    assert "'lots' is not a memory size" in said


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
        try:
            deadline = time.monotonic() + 120
            while time.monotonic() < deadline and not (partial.exists() and partial.stat().st_size == 10_000):
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=120)[1]
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 130
        assert "Traceback" not in said
        assert f"10,000 bytes are kept in {partial}, the same command resumes there" in said
        assert [path.name for path in (tmp_path / "home").iterdir()] == ["downloads"]
        server.resume.set()
        assert shoal(*command, **mirror).code == 0
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
    assert "the same command fetches it again" in said
    assert list((tmp_path / "home").rglob("*.tar.gz*")) == []


def test_get_fetches_checks_and_stores(shoal: Callable[..., Run], tmp_path: Path) -> None:
    with FileServer({SLASHDOT: pack_slashdot()}) as server:
        run = shoal("data", "get", "soc-Slashdot0902", SHOAL_MIRROR=server.address)
        assert run.code == 0, run.stderr
        assert run.stdout.splitlines()[-1].startswith(
            "next: shoal data info soc-Slashdot0902 (training needs"
        )
        graph = open_graph(tmp_path / "home/graphs/soc-Slashdot0902")
        assert (graph.num_nodes, graph.directed, graph.name) == (NUM_NODES, True, "soc-Slashdot0902")
        assert not (tmp_path / "home/downloads/soc-Slashdot0902").exists()
        assert (
            "is here already" in shoal("data", "get", "soc-Slashdot0902", SHOAL_MIRROR=server.address).stdout
        )
        assert len(server.requests) == 1
        assert "82,168" in shoal("data", "info", "soc-Slashdot0902").stdout


def test_get_fetches_a_dataset_of_many_files(shoal: Callable[..., Run], tmp_path: Path) -> None:
    with FileServer(pack_cora()) as server:
        server.die_after, server.deaths = 400_000, 1
        run = shoal("data", "get", "cora", "-o", "cora", "--keep", SHOAL_MIRROR=server.address)
        assert run.code == 0, run.stderr
    graph = open_graph(tmp_path / "cora")
    assert (graph.num_nodes, graph.num_features, graph.num_classes) == (2_708, 1_433, 7)
    assert [int(mask.sum()) for mask in (graph.train_mask, graph.val_mask, graph.test_mask)] == [
        140,
        500,
        1_000,
    ]
    assert run.stdout.splitlines()[-1] == "next: shoal train cora"
    kept = sorted(path.name for path in (tmp_path / "home/downloads/cora").iterdir())
    assert kept == sorted(Path(path).name for path in server.files)


def test_get_refuses_a_graph_of_another_size(shoal: Callable[..., Run], tmp_path: Path) -> None:
    with FileServer({SLASHDOT: pack_slashdot(num_nodes=5_000)}) as server:
        said = shoal("data", "get", "soc-Slashdot0902", "-o", "out", SHOAL_MIRROR=server.address).refusal()
    assert "came with 5,000 nodes, expected 82,168" in said
    assert not (tmp_path / "out").exists()


def test_second_fetch_of_the_same_graph_waits_for_the_first(
    shoal: Callable[..., Run], tmp_path: Path
) -> None:
    folder = tmp_path / "home/downloads/soc-Slashdot0902"
    folder.mkdir(parents=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with FileServer({SLASHDOT: pack_slashdot()}) as server:
            said = shoal("data", "get", "soc-Slashdot0902", SHOAL_MIRROR=server.address).refusal()
    finally:
        os.close(handle)
    assert "is in use by another process" in said
    assert server.requests == []
