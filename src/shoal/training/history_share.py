"""HistoryShare: steps on sampled batches that read neighbours outside the batch from histories (GAS, VR-GCN)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from torch import Tensor, nn

from shoal.aggregation import find_aggregation
from shoal.batch import Batch
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.models.gnn import GNN
from shoal.models.stages import FEATURES, list_stages
from shoal.sampling.adaptive import AdaptiveSampler
from shoal.sampling.base import Sampler
from shoal.sampling.histories import HistorySampler
from shoal.scratch import Scratch
from shoal.training.checkpoint import HISTORY_FORMAT, read_own, save_own
from shoal.training.history import Histories
from shoal.training.inference import free_for_matrices
from shoal.training.share import ReplicaShare


class HistoryShare(ReplicaShare):
    """One process whose steps compute `S h + (A - S) h̄`: sampled edges S with current activations h, the others with
    histories h̄.

    A step reads histories, and writes its activations after the backward pass. Threads that prefetch batches do not read
    them. Histories are part of a checkpoint. Evaluation computes the whole graph without histories.
    """

    def __init__(self, graph: Graph, sampler: Sampler | None, transport: Transport, model: nn.Module) -> None:
        if transport.size > 1:
            raise ShoalError(
                f"histories work in one process and there are {transport.size} ranks: leave out history"
            )
        if sampler is None:
            raise ShoalError("full-batch training reads no histories: leave out history")
        if isinstance(sampler, AdaptiveSampler):
            raise ShoalError(
                f"sampler {sampler.name} cannot learn from steps with histories: leave out history, or use ladies"
            )
        sparse = isinstance(sampler.graph.find_features(np.empty(0, np.int64))[0], sp.csr_array)
        stages = list_stages(model, sparse=sparse)
        aggregated = [stage for stage in stages if stage.kind is not None]
        if not any(stage.is_wide for stage in aggregated[1:]):
            raise ShoalError(
                "the model reads neighbours in its first layer only, which needs no histories: leave out history"
            )
        drawn = HistorySampler(sampler, len(aggregated), wide=aggregated[0].is_wide)
        for stage in aggregated if drawn.is_layered else ():
            assert stage.kind is not None
            if not find_aggregation(stage.kind).weighted:
                raise ShoalError(
                    f"{stage.kind} is not a weighted sum, which control variates need: leave out history, or use a subgraph sampler"
                )
        super().__init__(graph, drawn, transport)
        assert isinstance(model, GNN)
        self._model, self._stages = model, stages
        self._histories: Histories | None = None

    @property
    def histories(self) -> Histories:
        """The histories, made on first use: in memory if they fit in half of what is free, else in files."""
        if self._histories is None:
            folder = self.scratch_folder
            place = folder if folder is not None and folder.is_dir() else None
            scratch = Scratch(free_for_matrices() // 2, place)  # steps and evaluation need room too
            self._histories = Histories(self._model, self._stages, self.sampler.graph, scratch)
            weakref.finalize(self._histories, scratch.close)
        return self._histories

    def count_bytes(self) -> int:
        """Bytes of the histories, and of the precomputed `A x`, if any."""
        values = {stage.source for stage in self._stages if stage.is_wide} - {FEATURES}
        width = sum(self._stages[value - 1].width for value in values)
        width += self.graph.num_features if self._stages[0].knows else 0
        return self.sampler.graph.num_nodes * width * next(self._model.parameters()).itemsize

    def differentiate(
        self, model: nn.Module, batch: Batch, measure: Callable[[Tensor, Batch], Tensor]
    ) -> Tensor:
        loss = measure(*self.compute(model, batch))
        loss.backward()
        self.histories.write(batch)
        return loss.detach()

    def compute(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Batch]:
        return self.histories.run(batch), batch

    def count_measured(self) -> int:
        """None without the histories of training: running statistics stay."""
        return super().count_measured() if self.to_train else 0

    def save(self, folder: Path, step: int, model: nn.Module, *, keep: int, in_epoch: bool = False) -> None:
        save_own(folder, HISTORY_FORMAT, step, self.transport.rank, self.histories.export(), keep)

    def resume(self, folder: Path, step: int, model: nn.Module, *, in_epoch: bool = False) -> None:
        if self.to_train:
            self.histories.restore(read_own(folder, HISTORY_FORMAT, step, self.transport.rank))
