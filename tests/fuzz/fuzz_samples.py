"""Valid files of everything that is read, small enough to be read a thousand times a second, and how they are read."""

from __future__ import annotations

import gzip
import hashlib
import json
import pickle
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
import torch

from shoal.analysis.machine import read_machine
from shoal.datasets.archive import unpack_archive
from shoal.datasets.importers import import_graph
from shoal.graph import MASKS, Graph
from shoal.kernels.encoding import EncodedRows
from shoal.names import Names
from shoal.partitioning.partition import Partition
from shoal.partitioning.stored import open_part, store_parts
from shoal.runs.config import RunConfig, read_config
from shoal.runs.folder import read_metrics
from shoal.runs.repeat import Repeat, summarize_scores
from shoal.runs.run import Run
from shoal.sampling.neighbor import NeighborSampler
from shoal.store import open_graph, save_graph
from shoal.training.checkpoint import HALO_FORMAT, read_own, save_own

N = 40


class Read(NamedTuple):
    """What a reader made of its files: a digest of the content, and what was said about it."""

    content: str
    notices: tuple[str, ...] = ()


class Sample(NamedTuple):
    """How valid files are made in a folder and how they are read.

    `checked`: damage cannot be taken for other content, as there are checksums.
    `vouched`: files are changed by somebody who mends the checksums too, so that other content is to be expected.
    Neither: there are no checksums.
    """

    make: Callable[[Path], Any]
    read: Callable[[Path], Read]
    checked: bool = False
    vouched: bool = False

    @property
    def checksums(self) -> str:
        """What the files' checksums are after a change: wrong, mended, or none that they have."""
        return "wrong" if self.checked else "mended" if self.vouched else "none"


_used: set[str] = set()
SAMPLES: dict[str, Sample] = {}


def sample(name: str, read: Callable[[Path], Read], **kinds: bool) -> Callable[[Any], Any]:
    def add(make: Callable[[Path], Any]) -> Any:
        SAMPLES[name] = Sample(make, read, **kinds)
        return make

    return add


def digest(*values: Any) -> str:
    """A digest of arrays, texts and numbers."""
    total = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.numpy()
        if isinstance(value, np.ndarray):
            total.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
        else:
            total.update(repr(value).encode())
    return total.hexdigest()


def digest_graph(graph: Graph) -> Read:
    """All of a graph but its name; kernels read it the first time."""
    x, ids = graph.x, graph.node_ids
    if isinstance(x, EncodedRows):
        x = x.codes
    parts = (x.data, x.indices, x.indptr, x.shape) if sp.issparse(x) else (x,)
    named = list(ids) if isinstance(ids, Names) else ids
    masks = [getattr(graph, mask) for mask in MASKS]
    facts = (graph.directed, graph.num_classes, graph.class_names, graph.num_edges)
    content = digest(graph.indptr, graph.indices, *parts, graph.y, *masks, named, *facts)
    if content not in _used:
        _used.add(content)
        NeighborSampler(graph, fanouts=[2, 2], batch_size=8).sample(0)
        graph.subgraph(np.arange(graph.num_nodes // 2))
    return Read(content, graph.notices)


def read_import(path: str = "", **options: Any) -> Callable[[Path], Read]:
    return lambda folder: digest_graph(import_graph(folder / path, name="g", **options))


def make_graph(**changes: Any) -> Graph:
    rng = np.random.default_rng(0)
    fields = {"x": rng.random((N, 4), np.float32), "y": rng.integers(0, 3, N), "name": "small", **changes}
    return Graph.from_edge_index(rng.integers(0, N, (2, 90)), N, directed=False, **fields).with_split()


def arrays_of(graph: Graph) -> dict[str, Any]:
    return {name: getattr(graph, name) for name in ("indptr", "indices", "y", *MASKS)}


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


def read_stored(folder: Path) -> Read:
    return digest_graph(open_graph(folder / "graph"))


@sample("stored", read_stored, checked=True)
@sample("stored-vouched", read_stored, vouched=True)
def _make_stored(folder: Path) -> None:
    save_graph(make_graph(), folder / "graph")


@sample("stored-sparse", read_stored, checked=True)
@sample("stored-sparse-vouched", read_stored, vouched=True)
def _make_stored_sparse(folder: Path) -> None:
    x = np.random.default_rng(0).random((N, 6), np.float32)
    y = np.random.default_rng(1).integers(0, 2, (N, 3))
    names = Names.from_texts([f"node {i}" for i in range(N)])
    save_graph(make_graph(x=sp.csr_array(np.where(x > 0.5, x, 0)), y=y, node_ids=names), folder / "graph")


@sample("stored-int8", read_stored, checked=True)
@sample("stored-int8-vouched", read_stored, vouched=True)
def _make_stored_int8(folder: Path) -> None:
    save_graph(make_graph(), folder / "graph", features="int8")


def read_parts(folder: Path) -> Read:
    contents = []
    for rank in range(2):
        part = open_part(folder / "parts", rank)
        for name, value in sorted(vars(part).items()):
            parts = (value.data, value.indices, value.indptr) if sp.issparse(value) else (value,)
            contents += [name, *parts]
    return Read(digest(*contents))


@sample("parts", read_parts, checked=True)
@sample("parts-vouched", read_parts, vouched=True)
def _make_parts(folder: Path) -> None:
    graph = make_graph()
    store_parts(graph, Partition(graph, np.arange(N, dtype=np.int32) % 2, 2), folder / "parts")


@sample("parts-sparse", read_parts, checked=True)
@sample("parts-sparse-vouched", read_parts, vouched=True)
def _make_parts_sparse(folder: Path) -> None:
    x = np.random.default_rng(0).random((N, 6), np.float32)
    graph = make_graph(x=sp.csr_array(np.where(x > 0.5, x, 0)), y=np.eye(3, dtype=np.uint8)[np.arange(N) % 3])
    store_parts(graph, Partition(graph, np.arange(N, dtype=np.int32) // 20, 2), folder / "parts")


def _tell_config(config: RunConfig) -> RunConfig:
    config.data, config.method = "blocks", "sampled"
    config.data_options = {"num_nodes": 60, "num_classes": 3, "num_features": 4, "seed": 0}
    for section, settings in (
        (config.model, {"name": "sage", "hidden": 4}),
        (config.sampler, {"name": "node", "budget": 30}),
        (config.training, {"epochs": 1, "threads": 1}),
    ):
        section.update(settings, "here")
    return config


def read_run(folder: Path) -> Read:
    run = Run.open(folder / "run", to_train=False)
    records = read_metrics(folder / "run" / "metrics.jsonl")
    weights = [value for _, value in sorted(run.trainer.model.state_dict().items())]
    state = [value for kept in run.trainer.optimizer.state.values() for value in kept.values()]
    counters = (run.trainer.epoch, run.trainer.best_epoch, run.explain_end())
    return Read(digest(run.config.to_yaml(), records, *weights, *state, *counters))


@sample("run", read_run)
def _make_run(folder: Path) -> None:
    Run.create(folder / "run", _tell_config(RunConfig())).train()


def read_repeat(folder: Path) -> Read:
    repeat = Repeat.open(folder / "run")
    seeds = [folder / "run" / f"seed-{seed}" for seed in repeat.seeds]
    return Read(digest(repeat.config.to_yaml(), summarize_scores(seeds)))


@sample("repeat", read_repeat)
def _make_repeat(folder: Path) -> None:
    config = _tell_config(RunConfig())
    config.repeat = 2
    repeat = Repeat.create(folder / "run", config)
    for run in repeat.runs():
        run.train()
    for seed in repeat.seeds:
        for path in (folder / "run" / f"seed-{seed}").rglob("*.safetensors"):
            path.unlink()


def _read_recipe(folder: Path) -> Read:
    config = read_config(folder / "recipe.yaml")
    config.validate()
    return Read(digest(config.to_yaml()))


@sample("recipe", _read_recipe)
def _make_recipe(folder: Path) -> None:
    (folder / "recipe.yaml").write_text(_tell_config(RunConfig()).to_yaml())


def _read_halo(folder: Path) -> Read:
    return Read(
        digest(*(item for pair in sorted(read_own(folder, HALO_FORMAT, 3, 1).items()) for item in pair))
    )


@sample("halo", _read_halo, checked=True)
def _make_halo(folder: Path) -> None:
    save_own(folder, HALO_FORMAT, 3, 1, {"sent.0": torch.arange(6.0), "step": torch.tensor(3)}, keep=2)


def _read_machine(folder: Path) -> Read:
    return Read(digest(read_machine(folder / "machine.json")))


@sample("machine", _read_machine)
def _make_machine(folder: Path) -> None:
    about = {"latency": 1e-5, "bandwidth": 1e9, "dense_rate": 1e10, "sparse_rate": 1e9, "ranks": 2}
    (folder / "machine.json").write_text(json.dumps({**about, "crowd": [[1024.0, 1e-4], [1e6, 1e-2]]}))


def _read_archive(name: str) -> Callable[[Path], Read]:
    def read(folder: Path) -> Read:
        target = unpack_archive(folder / name, folder / "unpacked")
        files = sorted(path for path in target.rglob("*") if path.is_file())
        return Read(digest(*(item for path in files for item in (path.name, path.read_bytes()))))

    return read


@sample("zip", _read_archive("files.zip"), checked=True)
@sample("zip-repacked", _read_archive("files.zip"), vouched=True)
def _make_zip(folder: Path) -> None:
    with zipfile.ZipFile(folder / "files.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        for i in range(3):
            packed.writestr(f"folder/{i}.txt", f"content {i}\n" * 20)


@sample("tar-gz", _read_archive("files.tar.gz"), checked=True)
@sample("tar-gz-repacked", _read_archive("files.tar.gz"), vouched=True)
def _make_tar(folder: Path) -> None:
    for i in range(3):
        (folder / f"{i}.txt").write_text(f"content {i}\n" * 20)
    with tarfile.open(folder / "files.tar.gz", "w:gz") as packed:
        for i in range(3):
            packed.add(folder / f"{i}.txt", f"folder/{i}.txt")
            (folder / f"{i}.txt").unlink()
