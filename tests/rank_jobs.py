"""Small training jobs that run alone and, the same ones, on ranks: `python rank_jobs.py die 1` is a rank of some of which 1 dies."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import shoal
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.launch import joined_ranks
from shoal.distributed.operator import PartAdjacency
from shoal.distributed.runtime import share_cores
from shoal.distributed.transport import Transport
from shoal.partitioning.part import Part, make_part, split_graph
from shoal.partitioning.stored import open_part

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
    targets: int = 0  # of a regression, 0 for classes
    partition: str = "random"
    exchange: str = "p2p"
    half: bool = False
    orders: str | None = None
    input_dropout: float = 0.0
    epochs: int = 6
    deep: bool = False  # three layers with residual and jumping connections
    eval_every: int = 1
    head_layers: int = 1
    cover: bool | None = None
    setting: str = "transductive"
    weighted: bool = False
    settings: tuple[tuple[str, Any], ...] = ()  # more of the model's
    training: tuple[tuple[str, Any], ...] = ()  # more of the trainer's

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
    if job.targets:
        labels = (
            5
            + y[:, None] * np.arange(1, job.targets + 1)
            + generator.normal(0, 0.1, (NUM_NODES, job.targets))
        )
        labels[::9, -1] = np.nan
    graph = shoal.Graph.from_edge_index(ends, NUM_NODES, directed=job.directed, x=features, y=labels)
    graph._x = features  # float64 stays float64
    if job.weighted:
        rows = np.repeat(np.arange(NUM_NODES), graph.degree)
        pair = (rows, graph.indices) if job.directed else np.sort([rows, graph.indices], axis=0)
        table = np.random.default_rng(2).uniform(0.1, 3, (NUM_NODES, NUM_NODES)).astype(np.float32)
        graph = graph._copy(edge_weight=table[pair[0], pair[1]])
        graph._x = features
    return graph.with_split(0.5, 0.25, seed=0)


def make_model(job: Job) -> shoal.GNN:
    layers: dict[str, Any] = {"orders": job.orders} if job.orders else {"num_layers": 2}
    if job.deep:
        layers = {"num_layers": 3, "residual": True, "jumping": "concat"}
    labels = NUM_CLASSES if "label_reuse" in dict(job.training) else 0
    model = shoal.GNN(
        job.model,
        12 + labels,
        16,
        job.targets or NUM_CLASSES,
        norm=job.norm,
        dropout=0.3,
        seed=3,
        input_dropout=job.input_dropout,
        head_layers=job.head_layers,
        **layers | dict(job.settings),
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
    settings = {"setting": job.setting, "eval_every": job.eval_every, **dict(job.training)}
    trainer = shoal.Trainer(make_model(job), make_graph(job), None, **settings)
    return summarize(trainer, job) | {"embedding": trainer.embed().tolist()}


def make_trainer(job: Job, part: Part, transport: Transport, sampler: Any = None, **settings: Any) -> Any:
    """The trainer of one rank: the only place that tests of ranks make one."""
    method = make_exchange(job, settings)
    settings |= dict(job.training)
    return shoal.Trainer(make_model(job), part, sampler, transport=transport, exchange=method, **settings)


def make_exchange(job: Job, settings: dict[str, Any]) -> ExchangeMethod:
    """A job's exchange, with those of `settings` that are its own, which are taken out of them."""
    exchange: dict[str, Any] = {"messages": "bfloat16"} if job.half else {}
    if job.exchange == "p2p":
        exchange["cover"] = job.cover
    for name in ("boundary_rate", "last_boundary_rate", "boundary_sampling", "sample_input", "seed"):
        if name in settings:
            exchange[name] = settings.pop(name)
    return EXCHANGES[job.exchange](**exchange)


def train_here(transport: Transport, content: dict[str, Any], assignment: list[int]) -> dict[str, Any]:
    """This rank's share of a job; rank 0's answer is what the test reads."""
    job = Job(**content)
    graph = make_graph(job)
    part = make_part(graph, np.array(assignment), transport.size, transport.rank)
    trainer = make_trainer(job, part, transport, setting=job.setting, eval_every=job.eval_every)
    result = summarize(trainer, job)
    adj = trainer.share.batch.block(1).adjacency("attention") if job.model == "gat" else None
    parted = isinstance(adj, PartAdjacency) and adj.pattern.inner is not None
    result["parted"] = int(transport.gather(np.array([int(parted)])).sum())  # ranks that attend in two steps
    seen, own = graph, np.array(assignment)
    if job.setting == "inductive":
        seen, own = graph.train_graph(job.setting), own[graph.train_mask]
    parts = split_graph(seen, own, transport.size)
    result["rows"] = make_exchange(job, {}).count_rows(parts, linear=job.model != "gat").tolist()
    result["halo"] = sum(part.num_halo for part in parts)
    vectors = torch.zeros(graph.num_nodes, trainer.model.embedding_width, dtype=torch.float64)
    vectors[torch.from_numpy(part.n_id)] = trainer.embed().double()
    result["embedding"] = transport.sum(vectors).tolist() if job.double else None
    return result


def send_two_gigabytes(transport: Transport) -> None:
    """Rank 0 sends rank 1 a message longer than an int counts."""
    rows = torch.zeros((1 << 31) + 4099, dtype=torch.uint8)
    if transport.rank == 0:
        rows[:: 1 << 20] = 7
    exchange = transport.start({0: rows} if transport.rank else {})
    if transport.rank == 0:
        exchange.send(1, rows)
    for _ in exchange.arrivals():
        pass
    exchange.finish()
    assert bool((rows[:: 1 << 20] == 7).all())
    assert int(torch.count_nonzero(rows[-1000:])) == 0


def run_rank(trouble: str, rank: int) -> None:
    """Train twice; between, one rank ends at once ("die") or after a long sleep ("hang")."""
    job = Job("gcn", epochs=3)
    with joined_ranks() as transport:
        share_cores(transport, 1)
        assignment = assign_nodes(job, make_graph(job), transport.size).tolist()
        train_here(transport, asdict(job), assignment)
        if transport.rank == rank:
            if trouble == "hang":
                time.sleep(20)
            os._exit(9)
        train_here(transport, asdict(job), assignment)


if __name__ == "__main__":
    run_rank(sys.argv[1], int(sys.argv[2]))


def train_stored_part(transport: Transport, folder: str) -> list[float]:
    """Losses of a few epochs on a stored part, by covers."""
    trainer = make_trainer(Job("gcn"), open_part(folder, transport.rank), transport)
    assert trainer.share.plan.items is not None
    return [record["loss"] for record in trainer.fit(2)]
