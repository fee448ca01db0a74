"""Training by PyG's NeighborLoader, some batches at a time, with Shoal's SAGE over PyG's message passing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import shoal
from pyg_model import PygModel
from shoal.training.metrics import score_predictions


class PygNeighbours:
    """One thread; the loader's C++ sampler is torch-sparse's `neighbor_sample`, loaded by torch.ops.load_library."""

    def __init__(
        self, graph: shoal.Graph, hidden: int, fanouts: list[int], seed: int, lr: float = 0.01
    ) -> None:
        import torch_geometric.typing
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader

        torch_geometric.typing.WITH_TORCH_SPARSE = (
            True  # the operator is there; the rest of the package is not needed
        )
        torch.manual_seed(seed)
        self.graph, self.metric = graph, "f1_micro" if graph.multi_label else "accuracy"
        whole = shoal.FullSampler(graph).sample(0)
        self.data = Data(x=whole.dense_x, edge_index=whole.edge_index, y=whole.y)
        nodes = torch.from_numpy(np.flatnonzero(graph.train_mask))
        size = max(512, len(nodes) // 100)
        self.loader: Any = NeighborLoader(self.data, fanouts, nodes, batch_size=size, shuffle=True)
        self.model = PygModel(graph.num_features, hidden, graph.num_classes, len(fanouts), 0.2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)
        self._batches = self._cycle()

    def _cycle(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def train(self, steps: int) -> None:
        self.model.train()
        for _ in range(steps):
            batch = next(self._batches)
            logits, y = self.model(batch.x, batch.edge_index)[: batch.batch_size], batch.y[: batch.batch_size]
            if y.dim() == 2:
                loss = functional.binary_cross_entropy_with_logits(logits, y.float())
            else:
                loss = functional.cross_entropy(logits, y.long())
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def score(self) -> list[float]:
        """[validation, test] from one pass over the graph."""
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self.data.x, self.data.edge_index)
        masks = (torch.from_numpy(np.asarray(mask)) for mask in (self.graph.val_mask, self.graph.test_mask))
        return [
            score_predictions(logits[mask], self.data.y[mask], [self.metric])[self.metric] for mask in masks
        ]
