"""LearningShare: steps that also train the sampler (AS-GCN)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from shoal.batch import Batch
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.models.gnn import GNN
from shoal.sampling.adaptive import AdaptiveSampler
from shoal.sampling.base import Sampler
from shoal.training.checkpoint import SAMPLER_FORMAT, read_own, save_own
from shoal.training.share import ReplicaShare


def require_one_process(sampler: Sampler, num_ranks: int) -> None:
    """Raise if a sampler is trained and there are several ranks."""
    if isinstance(sampler, AdaptiveSampler) and num_ranks > 1:
        raise ShoalError(
            f"sampler {sampler.name} is trained by one process and there are {num_ranks} ranks: use another sampler"
        )


class LearningShare(ReplicaShare):
    """One process whose sampler is trained after each step.

    Batch k depends on earlier steps, so it is drawn when step k begins, never ahead. The sampler's weights are part of a
    checkpoint.
    """

    def __init__(
        self, graph: Graph, sampler: AdaptiveSampler, transport: Transport, model: nn.Module
    ) -> None:
        require_one_process(sampler, transport.size)
        if not isinstance(model, GNN) or not model.num_aggregations:
            raise ShoalError(
                f"sampler {sampler.name} learns from the last aggregation of a stack of convs: use another sampler"
            )
        super().__init__(graph, sampler, transport)
        self._adaptive, self._squares = sampler, list[Tensor]()
        last = [layer.linear for layer in model.list_layers() if layer.kind is not None][-1]
        last.register_forward_pre_hook(self._keep_squares)

    def _keep_squares(self, conv: nn.Module, given: tuple[Any, ...]) -> None:
        if conv.training:
            h = given[1].to_dense() if isinstance(given[1], Adjacency) else given[1].detach()
            self._squares[:] = [h.square().sum(1)]

    def differentiate(
        self, model: nn.Module, batch: Batch, measure: Callable[[Tensor, Batch], Tensor]
    ) -> Tensor:
        loss = super().differentiate(model, batch, measure)
        self._adaptive.learn(batch, self._squares.pop())
        return loss

    def save(self, folder: Path, step: int, model: nn.Module, *, keep: int, in_epoch: bool = False) -> None:
        save_own(folder, SAMPLER_FORMAT, step, self.transport.rank, self._adaptive.export(), keep)

    def resume(self, folder: Path, step: int, model: nn.Module, *, in_epoch: bool = False) -> None:
        if self.to_train:
            self._adaptive.restore(read_own(folder, SAMPLER_FORMAT, step, self.transport.rank))
