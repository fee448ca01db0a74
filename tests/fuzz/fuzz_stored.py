"""Valid stored graphs, parts, runs and archives."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from fuzz_sample import N, Read, digest, digest_graph, make_graph, sample

from shoal.analysis.machine import read_machine
from shoal.datasets.archive import unpack_archive
from shoal.names import Names
from shoal.partitioning.partition import Partition
from shoal.partitioning.stored import open_part, store_parts
from shoal.runs.config import RunConfig, read_config
from shoal.runs.folder import read_metrics
from shoal.runs.repeat import Repeat, summarize_scores
from shoal.runs.run import Run
from shoal.store import open_graph, save_graph
from shoal.training import tensor_files
from shoal.training.checkpoint import HALO_FORMAT, read_own, save_own


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
    return Read(digest(run.config.to_yaml(), records, *weights, *state, *counters), tuple(run.notices))


@sample("run", read_run)
def _make_run(folder: Path) -> None:
    Run.create(folder / "run", _tell_config(RunConfig())).train()


@sample("run-sharded", read_run)
def _make_sharded_run(folder: Path) -> None:
    whole, tensor_files.SHARD_BYTES = tensor_files.SHARD_BYTES, 200
    config = _tell_config(RunConfig())
    config.training.update({"epochs": 2}, "here")  # with a checkpoint before the last
    try:
        Run.create(folder / "run", config).train()
    finally:
        tensor_files.SHARD_BYTES = whole


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
