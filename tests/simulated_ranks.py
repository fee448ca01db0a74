"""Trainings of real ranks beside what the simulator says of them, for tests/distributed/test_simulated_ranks.py."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any

import numpy as np
import torch

import shoal
from rank_jobs import Job, assign_nodes, make_graph, make_model
from shoal.analysis.batches import predict_replicas, predict_shared
from shoal.analysis.machine import Machine
from shoal.analysis.prediction import Prediction
from shoal.analysis.simulate import predict_epoch
from shoal.distributed.exchange import EXCHANGES
from shoal.distributed.transport import Transport
from shoal.partitioning.part import make_part, split_graph
from shoal.sampling.base import make_sampler

MESSAGES = ("float32", "bfloat16", "int8", "int4")
BOTH = (("directions", "both"),)
ITERATED = (("label_reuse", 0.5), ("label_iterations", 2))
PLACED = (("norm_place", "input"),)
WALK = {"name": "random-walk", "roots": 20, "depth": 2}
NODES = {"name": "node", "budget": 50}


@dataclass(frozen=True)
class Case:
    """A training: the exchange's settings, and the sampler's where ranks share batches."""

    job: Job
    exchange: dict[str, Any] = field(default_factory=dict)
    sampler: dict[str, Any] | None = None


WHOLE = [
    *(
        Case(Job(model, directed=directed), {"messages": messages, "cover": cover, "staleness": stale})
        for model, directed, messages, cover, stale in product(
            ("sage", "gat"), (False, True), MESSAGES, (None, False), (0, 1)
        )
    ),
    *(
        Case(Job(model, sparse=sparse), {"messages": messages, "cover": True})
        for model, sparse, messages in product(("gcn", "mixhop"), (False, True), ("float32", "int8"))
    ),
    Case(Job("gcn", exchange="broadcast")),
    Case(Job("mlp")),
    Case(Job("sage", orders="0-1-1", head_layers=0), {"messages": "int4", "staleness": 1, "smoothing": 0.5}),
    Case(Job("gcn", directed=True, settings=BOTH), {"messages": "int8"}),
    Case(Job("sage", weighted=True, partition="empty"), {"messages": "bfloat16"}),
    Case(Job("sage", setting="inductive"), {"messages": "int8", "staleness": 1}),
    Case(Job("gcn", training=ITERATED), {"messages": "int8"}),
    Case(Job("gat", sparse=True, training=ITERATED)),
    Case(Job("gcn"), {"boundary_rate": 0.0}),
    Case(Job("gcn"), {"boundary_rate": 1.0, "cover": False}),
]
SHARED = [
    *(
        Case(Job(model, directed=directed), {"messages": messages, "cover": cover}, sampler)
        for model, directed, messages, cover, sampler in product(
            ("sage", "gat"), (False, True), MESSAGES, (None, False), (NODES, WALK)
        )
    ),
    *(
        Case(Job(model, sparse=sparse), {"messages": messages, "cover": True}, NODES)
        for model, sparse, messages in product(("gcn", "mixhop"), (False, True), ("float32", "int8"))
    ),
    Case(Job("gcn", directed=True, settings=BOTH), {"messages": "int8"}, NODES),
    Case(Job("sage", directed=True, weighted=True, settings=BOTH), {"cover": False}, WALK),
    Case(Job("sage", setting="inductive", partition="empty"), {"messages": "int8"}, NODES),
    Case(Job("sage", input_dropout=0.2, orders="0-1-1"), {"messages": "bfloat16"}, NODES | {"coverage": 5}),
    Case(Job("gcn", training=ITERATED), {"messages": "int8"}, NODES),
    Case(Job("sage", sparse=True, training=ITERATED), {}, NODES),
    Case(Job("gat", training=ITERATED, settings=PLACED), {}, WALK),
    Case(Job("mlp"), {}, NODES),
]
REPLICAS = [
    Case(Job("sage"), {}, NODES),
    Case(Job("gcn", sparse=True), {}, {"name": "neighbor", "batch_size": 16}),
]
CASES = {"whole": WHOLE, "shared": SHARED, "replicas": REPLICAS}
NORMS = [
    ("whole", Case(Job("gcn", norm="batch", orders="1-1-0-1-1-1"))),
    ("whole", Case(Job("sage", norm="batch", settings=PLACED), {"messages": "int8", "staleness": 1})),
    ("whole", Case(Job("gat", norm="batch", double=True, head_layers=3), {"boundary_rate": 0.5})),
    ("whole", Case(Job("gcn", norm="batch", training=ITERATED), {"cover": True})),
    ("whole", Case(Job("sage", norm="batch", partition="empty", setting="inductive"))),
    ("whole", Case(Job("mlp", norm="batch"))),
    ("whole", Case(Job("sage"))),
    ("shared", Case(Job("sage", norm="batch", head_layers=0), {}, NODES)),
    ("shared", Case(Job("gcn", norm="batch", training=ITERATED), {}, WALK)),
    ("replicas", Case(Job("sage", norm="batch"), {}, NODES)),
]


def compare(transport: Transport, kind: str, first: int, every: int) -> list[dict[str, Any]]:
    """Of some cases what ranks counted in two epochs and what was predicted: bytes, messages, steps; bytes of BNS-GCN's model."""
    return [_compare(transport, kind, case) for case in CASES[kind][first::every]]


def count_norm_sums(transport: Transport, number: int) -> dict[str, Any]:
    """Bytes of the all-reduces of batch norm in every step of two epochs, in order, and those predicted for a step."""
    kind, case = NORMS[number]
    said, trainer = _prepare(transport, kind, case)
    counted: list[list[int]] = [[]]
    add_up = transport.sum

    def count(tensor: torch.Tensor) -> torch.Tensor:
        if transport.phase == "the sums of batch norm":
            counted[-1].append(tensor.nbytes)
        elif transport.phase.startswith("the gradients"):
            counted.append([])
        return add_up(tensor)

    vars(transport)["sum"] = count
    try:
        records = [trainer.train_epoch() for _ in range(2)]
        trainer.share.end()
    finally:
        del vars(transport)["sum"]
    return {
        "counted": counted,
        "predicted": list(said.norm_sums),
        "steps": [sum(one["batches"] for one in records), 2 * said.steps],
    }


def _compare(transport: Transport, kind: str, case: Case) -> dict[str, Any]:
    said, trainer = _prepare(transport, kind, case)
    records = trainer.fit(2)
    ranks = trainer.share.describe_ranks()
    return {
        "case": str(asdict(case)),
        "counted": [[one.get("bytes", 0), one.get("messages", 0), one["batches"]] for one in records],
        "predicted": [said.num_bytes, said.num_messages, said.steps],
        "modelled": [[one["model"] for one in ranks], list(said.modelled)],
        "held": bool(np.all(np.array(said.memory) > 0)),
    }


def _prepare(transport: Transport, kind: str, case: Case) -> tuple[Prediction, shoal.Trainer]:
    job = case.job
    graph, model = make_graph(job), make_model(job)
    assignment = assign_nodes(job, graph, transport.size)
    method = EXCHANGES[job.exchange](**case.exchange)
    iterations = dict(job.training).get("label_iterations", 0)
    settings = {"sparse_features": job.sparse, "label_iterations": iterations}
    wire = Machine(1, 1)
    sampler = None
    if case.sampler is not None:
        options = {key: value for key, value in case.sampler.items() if key != "name"}
        sampler = make_sampler(case.sampler["name"], graph, setting=job.setting, **options)
    if kind == "replicas":
        assert sampler is not None
        said = predict_replicas(sampler, model, wire, transport.size, **settings)
        trainer = shoal.Trainer(model, graph, sampler, transport=transport, **dict(job.training))
    else:
        seen, own = graph, assignment
        if job.setting == "inductive" and sampler is None:
            seen, own = graph.train_graph(job.setting), assignment[graph.train_mask]
        parts = split_graph(seen, own, transport.size)
        if sampler is None:
            said = predict_epoch(parts, model, wire, exchange=method, **settings)
        else:
            said = predict_shared(parts, sampler, model, wire, exchange=method, **settings)
        part = make_part(graph, assignment, transport.size, transport.rank)
        more = {"setting": job.setting} if sampler is None else {}
        trainer = shoal.Trainer(
            model, part, sampler, transport=transport, exchange=method, **more, **dict(job.training)
        )
    return said, trainer
