"""What tests/distributed/test_messages.py and test_stale.py ask of real ranks."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

import shoal
from boundary_ranks import assign, dense_operator
from rank_jobs import Job, make_graph, make_model
from shoal.analysis.simulate import Machine, predict_epoch
from shoal.commands.node_files import write_rows
from shoal.distributed.block import PartBlock
from shoal.distributed.codec import CODECS
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.distributed.ledger import Ledger
from shoal.distributed.transport import Transport
from shoal.graph import Graph
from shoal.kernels.spmm import spmm
from shoal.partitioning.part import Part, make_part, split_graph
from shoal.runs.config import make_config
from shoal.runs.run import Run

WIDTH = 7


def open_part(transport: Transport, job: Job) -> tuple[Graph, np.ndarray, Part]:
    graph = make_graph(job)
    parts = max(transport.size - 1, 1) if job.partition == "empty" else transport.size
    assignment = assign(graph.num_nodes, parts)
    return graph, assignment, make_part(graph, assignment, transport.size, transport.rank)


def open_trainer(
    transport: Transport, content: dict[str, Any], settings: dict[str, Any], folder: str | None = None
) -> shoal.Trainer:
    job = Job(**content)
    part = open_part(transport, job)[2]
    checkpoints = None if folder is None else Path(folder)
    exchange = PointToPoint(**settings)
    return shoal.Trainer(
        make_model(job), part, transport=transport, exchange=exchange, checkpoints=checkpoints
    )


def digest(trainer: shoal.Trainer) -> str:
    """The weights at the end of training, bit by bit; with the embedding, in which those of other ranks have a part."""
    held = trainer.last_weights
    found = hashlib.sha256(b"".join(value.numpy().tobytes() for value in held.values()))
    return found.hexdigest()


def train(
    transport: Transport, content: dict[str, Any], settings: dict[str, Any], epochs: int
) -> dict[str, Any]:
    """Losses, weights, bytes beside those predicted, and how far evaluation is from one process with the same weights."""
    job = Job(**content)
    trainer = open_trainer(transport, content, settings)
    records = trainer.fit(epochs)
    graph, assignment, part = open_part(transport, job)
    parts = split_graph(graph, assignment, transport.size)
    said = predict_epoch(
        parts,
        make_model(job),
        Machine(1, 1),
        exchange=PointToPoint(**settings),
        item_bytes=8 if job.double else 4,
    )
    alone = shoal.Trainer(make_model(job), graph)
    alone.model.load_state_dict(trainer.model.state_dict())
    off = (trainer.embed() - alone.embed()[torch.from_numpy(part.n_id)]).abs().sum()
    return {
        "losses": [record["loss"] for record in records],
        "counted": [[record["bytes"], record["messages"]] for record in records],
        "predicted": [said.num_bytes, said.num_messages],
        "off": float(transport.sum(off.double().reshape(1))),
        "weights": digest(trainer),
    }


def average_products(
    transport: Transport, settings: dict[str, Any], directed: bool, kind: str, steps: int
) -> list[float]:
    """Over many steps: the largest deviation of mean product and gradient from the exact ones in standard errors,
    and the largest standard error in the distance between neighbouring whole numbers."""
    graph, _, part = open_part(transport, Job(directed=directed))
    plan = PointToPoint(**settings).make_plan(part, transport, Ledger(), [kind])
    h, g = _draw(graph, 2, 0)
    operator = torch.from_numpy(dense_operator(graph, kind))
    own = torch.from_numpy(part.n_id)
    wanted = torch.cat([(operator @ h)[own], (operator.T @ g)[own]])
    found = []
    for step in range(steps):
        with plan.wire.training(step):
            found.append(_multiply(plan, kind, h[own], g[own]))
    values = torch.stack(found)
    assert not torch.equal(values[0], values[1])
    error = values.std(0) / steps**0.5
    step = max(float(one.abs().max()) for one in (h, g)) / CODECS[settings["messages"]].limit
    off = ((values.mean(0) - wanted).abs() - 0.03 * step).clamp_min(0)  # rare roundings may not be seen
    worst = (off / (error + 1e-9)).max()
    answer = transport.gather(np.array([float(worst), float((error / step).max())]))
    return answer.max(0).tolist()


def follow_stale(
    transport: Transport, settings: dict[str, Any], directed: bool, kind: str, steps: int
) -> float:
    """The largest difference of stale products and gradients from those of the whole graph's matrices.

    Entries between ranks read what was there one step before, averaged. In between, exact products are made.
    """
    graph, assignment, part = open_part(transport, Job(directed=directed))
    plan = PointToPoint(staleness=1, **settings).make_plan(part, transport, Ledger(), [kind])
    operator = torch.from_numpy(dense_operator(graph, kind))
    same = torch.from_numpy(assignment[:, None] == assignment)
    own, gamma, worst = torch.from_numpy(part.n_id), settings.get("smoothing", 0.0), 0.0
    pairs = [_draw(graph, 2, step) for step in range(steps)]
    used: list[torch.Tensor] = []
    for step, (h, g) in enumerate(pairs):
        if step < 2:
            used = list(pairs[0])
        else:
            used = [gamma * old + (1 - gamma) * new for old, new in zip(used, pairs[step - 1])]
        inner, outer = operator * same, operator * ~same
        wanted = torch.cat([inner @ h + outer @ used[0], inner.T @ g + outer.T @ used[1]])
        with plan.wire.training(step):
            found = _multiply(plan, kind, h[own], g[own])
        exact = _multiply(plan, kind, h[own], g[own])
        n = graph.num_nodes
        worst = max(
            worst,
            float(
                (found - torch.cat([wanted[:n][own], wanted[n:][own]])).abs().amax() if found.numel() else 0
            ),
        )
        wanted = torch.cat([(operator @ h)[own], (operator.T @ g)[own]])
        worst = max(worst, float((exact - wanted).abs().amax() if found.numel() else 0))
    assert plan.wire.stale is not None
    plan.wire.stale.settle()
    return float(transport.gather(np.array([worst])).max())


def resume(transport: Transport, content: dict[str, Any], settings: dict[str, Any], folder: str) -> list[str]:
    """Digests of the weights after five epochs: at once; by two calls of fit; resumed after three; resumed after three with
    a fourth killed between the files of ranks and the weights."""
    found = []
    trainer = open_trainer(transport, content, settings)
    trainer.fit(5)
    found.append(digest(trainer))
    trainer = open_trainer(transport, content, settings)
    trainer.fit(1)
    trainer.evaluate()
    trainer.fit(5)
    found.append(digest(trainer))
    open_trainer(transport, content, settings, folder).fit(3)
    transport.barrier()
    names = sorted(path.name for path in Path(folder).glob("halo-*"))
    wanted = [f"halo-{epoch}-{rank}.safetensors" for epoch in (2, 3) for rank in range(transport.size)]
    assert names == wanted, names
    trainer = open_trainer(transport, content, settings)
    trainer.resume(Path(folder))
    trainer.train_epoch()
    trainer.share.save(Path(folder), 4, trainer.model, keep=2)
    trainer.share.end()
    for keeps in (None, folder):
        trainer = open_trainer(transport, content, settings, keeps)
        trainer.resume(Path(folder))
        assert trainer.epoch == 3
        trainer.fit(5)
        found.append(digest(trainer))
        transport.barrier()
    return found


def refuse_missing(transport: Transport, folder: str) -> str:
    """What is said of a checkpoint without the halo of this rank."""
    settings = {"staleness": 1}
    trainer = open_trainer(transport, {}, settings, folder)
    trainer.fit(1)
    transport.barrier()
    if transport.rank == 0:
        (Path(folder) / "halo-1-0.safetensors").unlink()
    trainer = open_trainer(transport, {}, settings)
    try:
        trainer.resume(Path(folder))
    except shoal.ShoalError as error:
        return str(error)
    return ""


def _draw(graph: Graph, count: int, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randn(graph.num_nodes, WIDTH, generator=generator, dtype=torch.float64) for _ in range(count)
    ]


def _multiply(plan: Any, kind: str, h: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    """The product over h and, below it, the gradient for g."""
    local = h.clone().requires_grad_()
    out = spmm(PartBlock(plan, 1).adjacency(kind), local)
    out.backward(g)
    assert local.grad is not None
    return torch.cat([out.detach(), local.grad])


def train_and_write(transport: Transport, data: str, nodes: str, folder: str) -> None:
    """Train a partitioned run for an epoch and write what it predicts, as an array and as a table.

    What it knows of stale halos is gone by then: only training needs it.
    """
    content = {"data": data, "data_options": {"nodes": nodes}, "method": "partitioned"}
    content |= {"model": {"hidden": 8}, "training": {"epochs": 1}, "partition": {"staleness": 1}}
    Run.create(Path(folder) / "run", make_config(content), transport).train()
    for own in Path(folder).glob(f"run/checkpoints/halo-*-{transport.rank}.safetensors"):
        own.unlink()
    for name in ("y.npy", "y.parquet"):
        write_rows(Path(folder) / "run", Path(folder) / name, "label", transport)
    for name in ("p.npy", "p.csv"):
        write_rows(Path(folder) / "run", Path(folder) / name, "probability", transport)
