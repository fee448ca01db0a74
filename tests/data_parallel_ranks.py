"""Data-parallel training, on ranks that each draw their own batches and in one process that takes the same steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

import shoal
from shoal.analysis.batches import predict_replicas
from shoal.analysis.machine import Machine
from shoal.distributed.moving import MovingSampler
from shoal.distributed.transport import Transport
from shoal.runs.config import FROM_GRAPH, make_config
from shoal.runs.data import open_data
from shoal.sampling.dealt import DealtSampler
from shoal.training.loss import compute_loss
from shoal.training.norm_statistics import read_statistics

EPOCHS, DROPOUT = 2, 0.2


def make_model(graph: shoal.Graph) -> shoal.GNN:
    torch.manual_seed(0)
    return shoal.GNN("sage", graph.num_features, 32, graph.num_classes, dropout=DROPOUT)


def make_sampler(graph: shoal.Graph) -> shoal.RandomWalkSampler:
    return shoal.RandomWalkSampler(graph, roots=100, depth=2)


def make_parts(graph: shoal.Graph, rank: int, num_ranks: int) -> DealtSampler:
    clusters = np.arange(graph.num_nodes) % 6
    return DealtSampler(
        graph, "random-walk", assignment=clusters, rank=rank, num_ranks=num_ranks, roots=100, depth=2
    )


def make_trainer(
    model: shoal.GNN, graph: shoal.Graph, sampler: shoal.Sampler, transport: Transport, folder: Path
) -> shoal.Trainer:
    """Rank 0's transport is given; the others find the ranks by torch.distributed's default group."""
    given = transport if transport.rank == 0 else None
    return shoal.Trainer(model, graph, sampler, transport=given, checkpoints=folder)


def train_here(transport: Transport, folder: str, own_part: bool) -> dict[str, Any]:
    """Every rank's weights and losses; rank r's checkpoints would go to run-r."""
    graph = shoal.load("blocks", num_nodes=1000)
    model = make_model(graph)
    if transport.rank > 0:  # another start: rank 0's weights count
        torch.nn.init.ones_(model.classifier.weight)
    sampler = make_parts(graph, transport.rank, transport.size) if own_part else make_sampler(graph)
    trainer = make_trainer(model, graph, sampler, transport, Path(folder) / f"run-{transport.rank}")
    records = trainer.fit(EPOCHS)
    assert all(record["batches"] == trainer.sampler.num_batches for record in records)
    assert not own_part or trainer.sampler is sampler
    weights = torch.cat([value.reshape(-1) for value in trainer.last_weights.values()])
    losses = np.array([record["loss"] for record in records])
    return {
        "weights": transport.gather(weights.numpy()).tolist(),
        "losses": transport.gather(losses).tolist(),
    }


def save_on_rank_0_alone(transport: Transport, folder: str) -> int:
    """The steps trained where only rank 0 has a folder, with a checkpoint due after each."""
    graph = shoal.load("blocks", num_nodes=1000)
    trainer = shoal.Trainer(
        make_model(graph),
        graph,
        make_sampler(graph),
        transport=transport,
        checkpoints=Path(folder) if transport.rank == 0 else None,
        checkpoint_minutes=1e-9,
    )
    trainer.fit(1)
    return trainer.step


def make_blind_trainer(transport: Transport, folder: Path | None = None) -> shoal.Trainer:
    """A trainer of a model with batch norm, on a graph without validation nodes."""
    graph = shoal.load("blocks", num_nodes=1000)
    graph = graph._copy(val_mask=np.zeros(graph.num_nodes, bool))
    model = shoal.GNN("sage", graph.num_features, 32, graph.num_classes, norm="batch", seed=0)
    return shoal.Trainer(model, graph, make_sampler(graph), transport=transport, checkpoints=folder)


def train_blind(transport: Transport, folder: str) -> list[list[float]]:
    """The statistics of batch norm that ranks end with."""
    trainer = make_blind_trainer(transport, Path(folder))
    trainer.fit(EPOCHS)
    return [one.tolist() for one in read_statistics(trainer.model)]


def train_alone(num_ranks: int) -> list[float]:
    """What R ranks should do, in one process: one step with the mean gradient of R batches."""
    graph = shoal.load("blocks", num_nodes=1000)
    model, sampler = make_model(graph).train(), make_sampler(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    for step in range(EPOCHS * -(-sampler.num_batches // num_ranks)):
        optimizer.zero_grad()
        for k in range(step * num_ranks, (step + 1) * num_ranks):
            batch = sampler.sample(k)
            (compute_loss(model(batch, step=k), batch) / num_ranks).backward()
        optimizer.step()
    return torch.cat([value.reshape(-1) for value in model.state_dict().values()]).tolist()


def move_here(transport: Transport) -> dict[str, Any]:
    """Batches of three deals with rows that move between ranks, beside those that read the whole graph's, and bytes sent."""
    graph = shoal.load("blocks", num_nodes=1000)
    options: dict[str, Any] = {"assignment": np.arange(1000) % 7, "roots": 100, "depth": 2}
    moving = MovingSampler(graph, "random-walk", transport=transport, **options)
    plain = DealtSampler(graph, "random-walk", rank=transport.rank, num_ranks=transport.size, **options)
    same = True
    for k in range(3 * moving.num_batches):
        one, other = moving.sample(k), plain.sample(k)
        same &= torch.equal(one.x, other.x) and np.array_equal(one.n_id, other.n_id)
    moved = sum(moving.count_moved(deal) for deal in (1, 2))
    sent = np.zeros(transport.size, np.int64)
    for (_, _, peer), (num_bytes, _) in moving.ledger.sent.items():
        sent[peer] += num_bytes
    trainers = [shoal.Trainer(make_model(graph), graph, one, transport=transport) for one in (moving, plain)]
    losses = [[record["loss"] for record in trainer.fit(2)] for trainer in trainers]
    return {
        "same": bool(transport.gather(np.array([same])).all()),
        "sent": transport.gather(sent).tolist(),
        "counted": (moved * graph.num_features * 4).tolist(),
        "losses": losses,
    }


def predict_moves(transport: Transport) -> dict[str, Any]:
    """Bytes, messages and steps of seventeen epochs in which clusters are dealt eight times again, and those predicted."""
    graph = shoal.load("blocks", num_nodes=1000)
    given: dict[str, Any] = {
        "assignment": np.arange(1000) % 7,
        "reshuffle_every": 2,
        "roots": 20,
        "depth": 1,
    }
    moving = MovingSampler(graph, "random-walk", transport=transport, **given)
    alone = DealtSampler(graph, "random-walk", rank=0, num_ranks=transport.size, **given)
    model, machine = make_model(graph), Machine(1e-3, 1e6)
    said = [
        predict_replicas(alone, model, machine, transport.size, moves_features=True),
        predict_replicas(moving, model, machine, transport.size),
        predict_replicas(alone, model, machine, transport.size),
    ]
    records = shoal.Trainer(model, graph, moving, transport=transport, eval_every=100).fit(17)
    sent = np.array([moving.ledger.num_bytes, moving.ledger.num_messages])
    return {
        "sent": transport.gather(sent).sum(0).tolist(),
        "steps": records[0]["batches"],
        "said": [[one.num_bytes, one.num_messages, one.steps, one.communication] for one in said],
        "moved": [(4 * graph.num_features * moving.count_moved(deal)).tolist() for deal in range(1, 9)],
    }


def open_here(transport: Transport, content: dict[str, Any]) -> tuple[str, int]:
    """The method and depth that a run's defaults take."""
    config = make_config(content)
    config.defaults = FROM_GRAPH
    open_data(config, None, transport)
    return config.method, config.model.num_layers
