"""Valid files of every importer."""

from __future__ import annotations

import gzip
import json
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
from fuzz_sample import N, Read, arrays_of, digest_graph, make_graph, sample

from shoal.datasets.importers import import_graph
from shoal.graph import MASKS


def read_import(path: str = "", **options: Any) -> Callable[[Path], Read]:
    return lambda folder: digest_graph(import_graph(folder / path, name="g", **options))


@sample("npz", read_import("graph.npz"), checked=True)
@sample("npz-repacked", read_import("graph.npz"), vouched=True)
def _make_npz(folder: Path) -> None:
    graph = make_graph()
    np.savez(folder / "graph.npz", **arrays_of(graph), x=graph.x, num_nodes=N, directed=False)


@sample("npz-sparse", read_import("graph.npz", standardize=True), checked=True)
@sample("npz-sparse-repacked", read_import("graph.npz", standardize=True), vouched=True)
def _make_npz_sparse(folder: Path) -> None:
    graph = make_graph()
    x = sp.csr_array(np.where(graph.x > 0.6, graph.x, 0))
    parts = {"x_data": x.data, "x_indices": x.indices, "x_indptr": x.indptr, "x_shape": np.array(x.shape)}
    held = arrays_of(graph)
    folds = {f"{mask}s": np.packbits(held.pop(mask)[None], axis=1) for mask in MASKS}
    np.savez_compressed(folder / "graph.npz", **held, **parts, **folds, num_classes=3)


@sample("npy", read_import("edges.npy"))
def _make_npy(folder: Path) -> None:
    np.save(folder / "edges.npy", np.random.default_rng(0).integers(0, N, (2, 60)))


@sample("planetoid", read_import())
def _make_planetoid(folder: Path) -> None:
    x = np.diag(np.arange(1, 9)).astype(np.float32)
    onehot = np.eye(3, dtype=np.int32)[np.arange(8) % 3]
    near = defaultdict(list, {i: [(i + 1) % 8, (i + 3) % 8] for i in range(8)})
    parts = {"x": sp.csr_matrix(x[:2]), "allx": sp.csr_matrix(x[:5]), "tx": sp.csr_matrix(x[5:])}
    parts |= {"y": onehot[:2], "ally": onehot[:5], "ty": onehot[5:], "graph": near}
    for name, value in parts.items():
        (folder / f"ind.toy.{name}").write_bytes(pickle.dumps(value, protocol=2))
    (folder / "ind.toy.test.index").write_text("5\n7\n6\n")


def _write_matrix(path: Path, **options: Any) -> None:
    graph = make_graph()
    values = np.arange(len(graph.indices), dtype=float)
    scipy.io.mmwrite(path, sp.coo_array(sp.csr_array((values, graph.indices, graph.indptr))), **options)


@sample("mtx", read_import("graph.mtx"))
def _make_mtx(folder: Path) -> None:
    _write_matrix(folder / "graph.mtx", symmetry="general", comment="a comment")


@sample("mtx-pattern-gz", read_import("graph.mtx.gz"), checked=True)
@sample("mtx-pattern-gz-repacked", read_import("graph.mtx.gz"), vouched=True)
def _make_mtx_gz(folder: Path) -> None:
    _write_matrix(folder / "graph.mtx", field="pattern", symmetry="general")
    content = (folder / "graph.mtx").read_bytes()
    (folder / "graph.mtx").unlink()
    (folder / "graph.mtx.gz").write_bytes(gzip.compress(content, mtime=0))


def _tables() -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(0)
    names = [f"node-{i}" for i in range(N)]
    ends = rng.integers(0, N, (2, 60))
    edges = pa.table({"source": [names[i] for i in ends[0]], "target": [names[i] for i in ends[1]]})
    roles = [("train", "val", "test", "")[i % 4] for i in range(N)]
    columns = {"id": names, "a": rng.random(N), "b": rng.integers(0, 9, N), "text": ["ä b"] * N}
    return edges, pa.table({**columns, "label": [f"class {i % 3}" for i in range(N)], "split": roles})


@sample("csv", read_import())
def _make_csv(folder: Path) -> None:
    for stem, table in zip(("edges", "nodes"), _tables()):
        pyarrow.csv.write_csv(table, folder / f"{stem}.csv")


@sample("csv-messy", read_import())
def _make_messy_csv(folder: Path) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, N, (60, 2))
    (folder / "edges-1.csv").write_text("src;dst\n" + "".join(f"{u};{v}\n" for u, v in ends[:30]))
    (folder / "edges-2.csv").write_text("src;dst\n" + "".join(f"{u};{v}\n" for u, v in ends[30:]))
    rows = [
        f"{i};{i % 7},5;{i % 28 + 1:02d}.03.20{i % 24:02d};{('ja', 'nein', '')[i % 3]};{'abc'[i % 3]};some words of {i};{i % 2}"
        for i in [*range(N), 0]
    ]
    (folder / "nodes.csv").write_text("\n".join(["id;a;when;ok;kind;text;class", *rows, ""]))


@sample("tsv", read_import("edges.tsv"))
def _make_tsv(folder: Path) -> None:
    ends = np.random.default_rng(0).integers(0, N, (60, 2))
    (folder / "edges.tsv").write_text("src\tdst\n" + "".join(f"{u}\t{v}\n" for u, v in ends))


@sample("parquet", read_import(), checked=True)
def _make_parquet(folder: Path) -> None:
    for stem, table in zip(("edges", "nodes"), _tables()):
        pq.write_table(table, folder / f"{stem}.parquet", write_page_checksum=True)


@sample("parquet-numbers", read_import())
def _make_parquet_numbers(folder: Path) -> None:
    rng = np.random.default_rng(0)
    pq.write_table(
        pa.table({"src": rng.integers(0, N, 60), "dst": rng.integers(0, N, 60)}), folder / "edges.parquet"
    )
    lists = pa.array(rng.random((N, 3)).tolist(), pa.list_(pa.float32()))
    nodes = pa.table({"id": np.arange(N), "x": lists, "y": rng.integers(0, 3, N)})
    pq.write_table(nodes, folder / "nodes.parquet", compression="none")


@sample("snap", read_import("graph.txt"))
def _make_snap(folder: Path) -> None:
    ends = np.random.default_rng(0).integers(0, 10 * N, (60, 2))
    (folder / "graph.txt").write_text("# Directed graph\n# a\tb\n" + "".join(f"{u}\t{v}\n" for u, v in ends))


@sample("snap-gz", read_import("graph.txt.gz"), checked=True)
@sample("snap-gz-repacked", read_import("graph.txt.gz"), vouched=True)
def _make_snap_gz(folder: Path) -> None:
    text = "".join(f"{i} {(i * 7) % N}\n" for i in range(N))
    (folder / "graph.txt.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def _write_lines(path: Path, rows: Any) -> None:
    text = "".join(",".join(map(str, np.atleast_1d(row).tolist())) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def _write_split(folder: Path) -> None:
    for i, name in enumerate(("train", "valid", "test")):
        _write_lines(folder / "split" / "time" / f"{name}.csv.gz", np.arange(i, N, 3))


@sample("ogb", read_import(), checked=True)
@sample("ogb-repacked", read_import(), vouched=True)
def _make_ogb(folder: Path) -> None:
    rng = np.random.default_rng(0)
    raw = folder / "raw"
    _write_lines(raw / "edge.csv.gz", rng.integers(0, N, (60, 2)))
    _write_lines(raw / "num-node-list.csv.gz", [N])
    _write_lines(raw / "node-feat.csv.gz", rng.random((N, 3)).round(3))
    _write_lines(raw / "node-label.csv.gz", rng.integers(0, 3, N))
    _write_split(folder)


@sample("ogb-binary", read_import(), checked=True)
@sample("ogb-binary-repacked", read_import(), vouched=True)
def _make_ogb_binary(folder: Path) -> None:
    rng = np.random.default_rng(0)
    raw = folder / "raw"
    raw.mkdir()
    x = rng.random((N, 3), np.float32)
    np.savez(raw / "data.npz", edge_index=rng.integers(0, N, (2, 60)), node_feat=x, num_nodes_list=[N])
    np.savez(raw / "node-label.npz", node_label=rng.integers(0, 3, (N, 1)))
    _write_split(folder)


@sample("graphsage", read_import(standardize=True))
def _make_graphsage(folder: Path) -> None:
    nodes = [{"id": f"n{i}", "val": i % 4 == 1, "test": i % 4 == 2} for i in range(12)]
    links = [{"source": i, "target": (i * 5 + 1) % 12} for i in range(12)]
    texts = {"G": {"directed": False, "nodes": nodes, "links": links}}
    texts |= {"id_map": {f"n{i}": i for i in range(12)}, "class_map": {f"n{i}": i % 3 for i in range(12)}}
    for name, value in texts.items():
        (folder / f"toy-{name}.json").write_text(json.dumps(value))
    np.save(folder / "toy-feats.npy", np.random.default_rng(0).random((12, 2)))


@sample("graphsaint", read_import())
def _make_graphsaint(folder: Path) -> None:
    full = sp.random(12, 12, 0.3, "csr", np.float32, random_state=0)
    train = full.copy()
    sp.save_npz(folder / "adj_full.npz", full)
    sp.save_npz(folder / "adj_train.npz", train)
    roles = {role: list(range(i, 12, 3)) for i, role in enumerate(("tr", "va", "te"))}
    (folder / "role.json").write_text(json.dumps(roles))
    (folder / "class_map.json").write_text(json.dumps({str(i): [i % 2, 1] for i in range(12)}))
    np.save(folder / "feats.npy", np.random.default_rng(0).random((12, 2)))
