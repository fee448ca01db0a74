"""Fetching the archives that OGB and GraphSAINT publish, from a real server: download, unpack, import, check, store.

The entries are the registered ones with smaller counts, so that a test can make their files.
"""

import gzip
import io
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import scipy.sparse as sp

from file_server import FileServer
from shoal.datasets.dataset import Dataset
from shoal.datasets.fetch import fetch_dataset
from shoal.datasets.registry import find_dataset
from shoal.errors import ShoalError
from shoal.store import open_graph

NUM_NODES, NUM_FEATURES, NUM_CLASSES = 40, 6, 4
RNG = np.random.default_rng(0)
EDGES = RNG.integers(0, NUM_NODES, (2, 100))
X = RNG.standard_normal((NUM_NODES, NUM_FEATURES)).astype(np.float32)
Y = np.arange(NUM_NODES) % NUM_CLASSES
SPLIT = {"train": range(20), "valid": range(20, 30), "test": range(30, 40)}


def shrink(name: str) -> Dataset:
    return replace(
        find_dataset(name), num_nodes=NUM_NODES, num_features=NUM_FEATURES, num_classes=NUM_CLASSES
    )


def pack(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for path, content in files.items():
            packed.writestr(path, content)
    return buffer.getvalue()


def ogb_files() -> dict[str, bytes]:
    """ogbn-arxiv's layout: headless csv.gz in raw/ and split/time/."""

    def table(rows) -> bytes:
        return gzip.compress("".join(",".join(map(str, np.atleast_1d(row))) + "\n" for row in rows).encode())

    files = {
        "raw/edge.csv.gz": table(EDGES.T),
        "raw/node-feat.csv.gz": table(X),
        "raw/node-label.csv.gz": table(Y),
        "raw/num-node-list.csv.gz": table([NUM_NODES]),
        "raw/num-edge-list.csv.gz": table([EDGES.shape[1]]),
        "raw/node_year.csv.gz": table(Y),
    }
    files |= {f"split/time/{name}.csv.gz": table(nodes) for name, nodes in SPLIT.items()}
    return {f"arxiv/{path}": content for path, content in files.items()}


def saint_files() -> dict[str, bytes]:
    """GraphSAINT's five files, both directions of every edge in the matrices."""
    ones = np.ones(EDGES.shape[1], bool)
    one_way = sp.coo_matrix((ones, tuple(EDGES)), (NUM_NODES, NUM_NODES))
    whole = ((one_way + one_way.T) > 0).tocsr()
    coo = whole.tocoo()
    kept = (coo.row < 20) & (coo.col < 20)
    train = sp.csr_matrix((coo.data[kept], (coo.row[kept], coo.col[kept])), whole.shape)
    files = {}
    for name, matrix in (("adj_full.npz", whole), ("adj_train.npz", train)):
        buffer = io.BytesIO()
        sp.save_npz(buffer, sp.csr_matrix(matrix))
        files[name] = buffer.getvalue()
    buffer = io.BytesIO()
    np.save(buffer, X.astype(np.float64))
    files["feats.npy"] = buffer.getvalue()
    roles = {"tr": SPLIT["train"], "va": SPLIT["valid"], "te": SPLIT["test"]}
    files["role.json"] = json.dumps({role: list(nodes) for role, nodes in roles.items()}).encode()
    files["class_map.json"] = json.dumps({str(v): int(label) for v, label in enumerate(Y)}).encode()
    return files


def serve(dataset: Dataset, files: dict[str, bytes]) -> FileServer:
    """A server with the dataset's files at the paths of their registered addresses."""
    contents = [pack(files)] if len(dataset.files) == 1 else [files[file.name] for file in dataset.files]
    return FileServer({urlsplit(file.url).path: body for file, body in zip(dataset.files, contents)})


@pytest.mark.parametrize(("name", "make"), [("ogbn-arxiv", ogb_files), ("flickr", saint_files)])
def test_a_published_archive_becomes_a_stored_graph(monkeypatch, tmp_path: Path, name, make) -> None:
    dataset = shrink(name)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    with serve(dataset, make()) as server:
        monkeypatch.setenv("SHOAL_MIRROR", server.address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        graph = open_graph(fetch_dataset(dataset, tmp_path / "graph"))
    assert graph.num_nodes == NUM_NODES
    assert graph.directed == (name == "ogbn-arxiv")
    np.testing.assert_array_equal(graph.y, Y)
    np.testing.assert_array_equal(np.flatnonzero(graph.train_mask), SPLIT["train"])
    np.testing.assert_array_equal(np.flatnonzero(graph.test_mask), SPLIT["test"])
    source, target = EDGES[:, 0]
    assert source in graph.indices[graph.indptr[target] : graph.indptr[target + 1]]
    if name == "ogbn-arxiv":
        np.testing.assert_allclose(graph.x, X, rtol=1e-6)
    else:  # standardised by the training rows, as GraphSAINT does
        np.testing.assert_allclose(graph.x[:20].mean(0), 0, atol=1e-5)


@pytest.mark.parametrize(("name", "make"), [("ogbn-arxiv", ogb_files), ("flickr", saint_files)])
def test_a_server_that_dies_half_way_leaves_nothing_and_the_next_call_goes_on(
    monkeypatch, tmp_path: Path, name, make
) -> None:
    dataset = shrink(name)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve(dataset, make()) as server:
        monkeypatch.setenv("SHOAL_MIRROR", server.address)
        server.die_after = 500
        with pytest.raises(ShoalError):
            fetch_dataset(dataset, tmp_path / "graph", retries=0)
        assert not (tmp_path / "graph").exists()
        server.die_after = None
        fetch_dataset(dataset, tmp_path / "graph")
    assert server.requests[-1][1] is not None  # a Range: it went on where it stopped
    assert open_graph(tmp_path / "graph").num_nodes == NUM_NODES


def test_files_that_hold_another_graph_than_registered_are_refused(monkeypatch, tmp_path: Path) -> None:
    dataset = replace(shrink("flickr"), num_nodes=NUM_NODES + 1)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve(dataset, saint_files()) as server:
        monkeypatch.setenv("SHOAL_MIRROR", server.address)
        with pytest.raises(ShoalError, match="41"):
            fetch_dataset(dataset, tmp_path / "graph")
    assert not (tmp_path / "graph").exists()


def test_a_download_must_be_what_was_registered_or_came_first(monkeypatch, tmp_path: Path) -> None:
    dataset = shrink("ogbn-arxiv")
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    first, second = ogb_files(), {**ogb_files(), "arxiv/read.me": b"another file"}
    with serve(dataset, first) as server:
        monkeypatch.setenv("SHOAL_MIRROR", server.address)
        fetch_dataset(dataset, tmp_path / "graph")
        fetch_dataset(dataset, tmp_path / "again")
        registered = replace(dataset, files=(replace(dataset.files[0], sha256="0" * 64),))
        with pytest.raises(ShoalError, match="expected 0000000000000000…, the registered one"):
            fetch_dataset(registered, tmp_path / "registered")
    with serve(dataset, second) as server:
        monkeypatch.setenv("SHOAL_MIRROR", server.address)
        with pytest.raises(ShoalError, match="that of the first download"):
            fetch_dataset(dataset, tmp_path / "changed")
    assert not (tmp_path / "changed").exists()
