"""Small training jobs that run alone and, the same ones, on ranks: `python rank_jobs.py FOLDER` is one rank."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import shoal
from shoal.distributed.launch import joined_ranks
from shoal.distributed.operator import PartAdjacency
from shoal.distributed.runtime import share_cores
from shoal.partitioning.part import make_part
from shoal.training.partitioned import PartitionedTrainer

NUM_NODES, NUM_CLASSES = 160, 3


@dataclass(frozen=True)
class Job:
    """One training. `partition` names how nodes are given to ranks; `empty` leaves the last rank without any."""

    model: str = "sage"
    norm: str = "layer"
    directed: bool = False
    double: bool = False
    sparse: bool = False
    multi_label: bool = False
    partition: str = "random"
    exchange: str = "p2p"
    half: bool = False
    orders: str | None = None
    input_dropout: float = 0.0
    epochs: int = 6
    deep: bool = False  # three layers with residual and jumping connections
    eval_every: int = 1
    head_layers: int = 1

    @property
    def name(self) -> str:
        return "-".join(str(value) for value in asdict(self).values())


def make_graph(job: Job) -> shoal.Graph:
    """Communities, a hub, self loops and isolated nodes, with noisy features of the class."""
    generator = np.random.default_rng(7)
    y = generator.integers(0, NUM_CLASSES, NUM_NODES)
    ends = generator.integers(0, NUM_NODES - 5, (2, 8 * NUM_NODES))
    same = y[ends[0]] == y[ends[1]]
    ends = ends[:, same | (generator.random(len(same)) < 0.1)]
    hub = np.stack([np.full(60, 3), np.arange(60)])
    ends = np.concatenate([ends, hub if job.directed else hub[::-1], [[5, 9], [5, 9]]], axis=1)
    x = np.eye(NUM_CLASSES, 12)[y] + generator.normal(0, 0.8, (NUM_NODES, 12))
    x = x.astype(np.float64 if job.double else np.float32)
    features: Any = sp.csr_array(np.where(x > 0.5, x, 0)) if job.sparse else x
    labels = np.eye(NUM_CLASSES, dtype=np.uint8)[y] if job.multi_label else y
    graph = shoal.Graph.from_edge_index(ends, NUM_NODES, directed=job.directed, x=features, y=labels)
    graph._x = features  # float64 stays float64
    return graph.with_split(0.5, 0.25, seed=0)


def make_model(job: Job) -> shoal.GNN:
    layers: dict[str, Any] = {"orders": job.orders} if job.orders else {"num_layers": 2}
    if job.deep:
        layers = {"num_layers": 3, "residual": True, "jumping": "concat"}
    model = shoal.GNN(
        job.model,
        12,
        16,
        NUM_CLASSES,
        norm=job.norm,
        dropout=0.3,
        seed=3,
        input_dropout=job.input_dropout,
        head_layers=job.head_layers,
        **layers,
    )
    return model.double() if job.double else model


def assign_nodes(job: Job, graph: shoal.Graph, num_parts: int) -> np.ndarray:
    generator = np.random.default_rng(num_parts)
    if job.partition == "random":
        return generator.integers(0, num_parts, graph.num_nodes)
    if job.partition == "empty":
        return generator.integers(0, max(num_parts - 1, 1), graph.num_nodes)
    return shoal.partition_graph(graph, num_parts, job.partition, seed=0, imbalance=0.1).assignment


def summarize(trainer: shoal.Trainer, job: Job) -> dict[str, Any]:
    records = trainer.fit(job.epochs)
    return {
        "losses": [record["loss"] for record in records],
        "test": trainer.evaluate("test"),
        "first": records[0],
        "last": records[-1],
    }


def train_alone(job: Job) -> dict[str, Any]:
    trainer = shoal.Trainer(make_model(job), make_graph(job), None, eval_every=job.eval_every)
    return summarize(trainer, job) | {"embedding": trainer.embed().tolist()}


def train_here(job: Job, transport: Any, folder: Path) -> dict[str, Any]:
    """This rank's share of a job; rank 0's answer is what the test reads."""
    graph = make_graph(job)
    assignment = np.load(folder / f"{job.partition}-{job.directed}-{transport.size}.npy")
    part = make_part(graph, assignment, transport.size, transport.rank)
    dtype = torch.bfloat16 if job.half else None
    trainer = PartitionedTrainer(
        make_model(job),
        part,
        transport,
        exchange=job.exchange,
        message_dtype=dtype,
        eval_every=job.eval_every,
    )
    result = summarize(trainer, job)
    adj = trainer.batch.block(1).adjacency("attention") if job.model == "gat" else None
    parted = isinstance(adj, PartAdjacency) and adj.pattern.inner is not None
    result["parted"] = int(transport.gather(np.array([int(parted)])).sum())  # ranks that attend in two steps
    result["rows"] = transport.gather(np.diff(part.send_offsets)).tolist()
    everywhere = np.full(transport.size, part.num_local)
    everywhere[transport.rank] = 0
    result["broadcast"] = transport.gather(everywhere).tolist()
    vectors = torch.zeros(graph.num_nodes, trainer.model.embedding_width, dtype=torch.float64)
    vectors[torch.from_numpy(part.n_id)] = trainer.embed().double()
    result["embedding"] = transport.sum(vectors).tolist() if job.double else None
    return result


def run_rank(folder: Path) -> None:
    """Every job in turn. TROUBLE=die:1:2 ends rank 1 after its second job, hang:1:2 after a long sleep."""
    trouble, rank, number = os.environ.get("TROUBLE", "none:-1:-1").split(":")
    with joined_ranks() as transport:
        share_cores(transport, 1)
        answers: list[dict[str, Any]] = []
        for content in json.loads((folder / "jobs.json").read_text()):
            if (transport.rank, len(answers)) == (int(rank), int(number)):
                if trouble == "hang":
                    time.sleep(20)
                os._exit(9)
            answers.append(train_here(Job(**content), transport, folder))
        if transport.rank == 0:
            (folder / "answers.json").write_text(json.dumps(answers))
        transport.barrier()


if __name__ == "__main__":
    run_rank(Path(sys.argv[1]))
