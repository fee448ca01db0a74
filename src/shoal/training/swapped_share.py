"""SwappedShare: full-batch training in one process that holds one part of the graph at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import scipy.sparse as sp
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.distributed.batch_norm import share_batch_norms
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import keep_freed_memory, return_blocks
from shoal.models.gnn import GNN
from shoal.models.stages import list_stages
from shoal.partitioning.filed import measure_parts
from shoal.partitioning.part import check_assignment
from shoal.partitioning.partition import Partition
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler
from shoal.scratch import Scratch
from shoal.training.epoch_state import Record
from shoal.training.label_reuse import LabelReuse
from shoal.training.norm_statistics import collecting
from shoal.training.share import ReplicaShare
from shoal.training.swap import Swap
from shoal.training.swap_norm import SwappedBatchNorm
from shoal.training.swap_plan import SwapPlan
from shoal.wording import count


class SwappedShare(ReplicaShare):
    """Full-batch training with the same steps, to rounding, as with everything in memory.

    The parts of `partition` are computed one after the other. Activations and gradients are in files of `scratch_folder`
    (`shoal.training.swap`). Evaluation is as in `ReplicaShare`, within the memory budget.
    """

    can_prefetch = False

    def __init__(
        self,
        graph: Graph,
        partition: Partition,
        sampler: Sampler | None,
        transport: Transport,
        model: nn.Module,
        reuse: LabelReuse | None = None,
    ) -> None:
        if transport.size > 1:
            raise ShoalError(
                f"swapped parts need a single process and there are {transport.size} ranks: give each rank its Part"
            )
        if sampler is not None and not (
            isinstance(sampler, FullSampler) and sampler.setting == "transductive"
        ):
            raise ShoalError("swapped parts train on the whole graph every step: leave out the sampler")
        super().__init__(graph, sampler, transport)
        check_assignment(partition.assignment, graph.num_nodes, partition.num_parts)
        share_batch_norms(model, transport, self.ledger, SwappedBatchNorm)
        sparse = isinstance(graph.find_features(partition.assignment[:0])[0], sp.csr_array)
        self.partition = partition
        self.reuse = reuse
        self._stages = list_stages(model, sparse=sparse or reuse is not None)  # without `A x`, if so
        self._model = model
        self._swap: Swap | None = None

    @cached_property
    def plan(self) -> SwapPlan:
        """Traffic and memory of a step. Computing it takes a pass over the graph's edges."""
        assert isinstance(self._model, GNN)
        kind = next(iter(self._model.kinds), None)
        sizes = measure_parts(self.graph, self.partition, kind)
        further = 0 if self.reuse is None else self.reuse.num_classes
        return SwapPlan(self.graph, self._stages, sizes, next(self._model.parameters()).itemsize, further)

    def begin(self, epochs: int, *, saves: bool = False) -> None:
        self._open_swap()

    def release(self) -> None:
        if self._swap is not None:
            self._swap.close()
            self._swap = None
            keep_freed_memory()

    def differentiate(
        self, model: nn.Module, batch: Batch, measure: Callable[[Tensor, Batch], Tensor]
    ) -> Tensor:
        return self._open_swap().take_step(batch.step, measure)

    def measure_norms(self, model: nn.Module, step: int) -> None:
        with collecting(model):
            self._open_swap().run_forward()

    def take_costs(self, epoch: int, nodes: int, seconds: float) -> Record:
        return {} if self._swap is None else self._swap.take_traffic().to_record()

    def example(self) -> Batch:
        """All rows as one batch, for counting; its operator is never built."""
        return self.whole

    def explain(self, model: nn.Module) -> list[str]:
        """What each stage computes, from the sizes of the parts, without building operators."""
        entries = (
            f"{int(self.plan.sizes.entries.sum()):,} entries of {count(self.partition.num_parts, 'part')}"
        )
        lines = []
        for stage in self._stages:
            decision = f"{stage.kind} over {entries}" if stage.is_wide else "a dense product"
            lines.append(f"layer {stage.layer}: {decision}{', of A x computed once' if stage.knows else ''}")
        return lines

    def _open_swap(self) -> Swap:
        if self._swap is None:
            folder = self.scratch_folder
            scratch = Scratch(0, folder if folder is not None and Path(folder).is_dir() else None)
            assert isinstance(self._model, GNN)
            return_blocks()
            self._swap = Swap(self._model, self.partition, self.plan, scratch, self.reuse)
            weakref.finalize(self._swap, scratch.close)
        return self._swap
