"""A model, a callback and a loss as users write them, for one process and for ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

import shoal
from shoal.distributed.transport import Transport
from shoal.partitioning.part import make_part


class TiedModel(nn.Module):
    """Two aggregations through one matrix, which two names have; batch norm without weights; a transposed
    parameter; a layer that nothing reaches."""

    def __init__(self, in_features: int, num_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(in_features, in_features, bias=False)
        self.again = self.first
        self.norm = nn.BatchNorm1d(in_features, affine=False)
        self.out = nn.Parameter(torch.randn(num_classes, in_features).t())
        self.unused = nn.Linear(3, 3)

    def embed(self, batch: shoal.Batch) -> torch.Tensor:
        h = self.first(shoal.spmm(batch.block(0).adjacency("mean"), batch.x))
        return self.norm(self.again(shoal.spmm(batch.block(1).adjacency("mean"), h)))

    def forward(self, batch: shoal.Batch) -> torch.Tensor:
        return self.embed(batch) @ self.out


class StopOnRankZero(shoal.Callback):
    """Ends training after the second epoch, as only rank 0 finds."""

    def on_epoch(self, trainer: shoal.Trainer, record: dict[str, Any]) -> None:
        if trainer.transport.rank == 0 and record["epoch"] == 2:
            trainer.stop()


def make_model(graph: Any) -> TiedModel:
    torch.manual_seed(0)
    return TiedModel(graph.num_features, graph.num_classes)


def train_here(transport: Transport, is_cut: bool) -> dict[str, Any]:
    """Losses and epochs of every rank, each with a part or with the whole graph."""
    graph: Any = shoal.load("blocks", num_nodes=300, seed=1)
    if is_cut:
        graph = make_part(graph, np.arange(300) % transport.size, transport.size, transport.rank)
    settings: Any = {"transport": transport, "callbacks": [StopOnRankZero()], "weight_decay": 0.1}
    trainer = shoal.Trainer(make_model(graph), graph, **settings)
    records = trainer.fit(5)
    return {
        "unused": trainer.model.unused.weight.tolist(),
        "epochs": transport.gather(np.array([len(records)])).tolist(),
        "losses": [record["loss"] for record in records],
    }
