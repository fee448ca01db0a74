"""Swap: full-batch steps that compute one part at a time, with activations and gradients in files."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from shoal.batch import Batch
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.gather import gather_rows
from shoal.kernels.spmm import multiply
from shoal.label_columns import KnownLabels, LabelColumns, LabelledBatch
from shoal.models.gnn import GNN
from shoal.models.layerwise import Input
from shoal.models.stages import FEATURES, Stage, StageInput
from shoal.partitioning.filed import FiledParts
from shoal.partitioning.partition import Partition
from shoal.scratch import Matrix, Scratch
from shoal.training.label_reuse import LabelReuse
from shoal.training.swap_norm import SwappedBatchNorm
from shoal.training.swap_plan import BACKWARD, FORWARD, SwapPlan, Traffic, count_features

Measure = Callable[[Tensor, Batch], Tensor]


@dataclass
class _Work:
    """Input of a stage's pass over one part. A thread reads it while the previous part is computed.

    Attributes:
        values: local rows of every value that the stage reads; those of an aggregated source are followed by halo rows.
        known: local rows of the precomputed `A x`, if the stage starts from it.
        gradient: gradient of the stage's result, in a backward pass.
    """

    part: int
    batch: Batch
    values: dict[int, Input]
    known: Tensor | None
    gradient: Tensor | None


class Swap:
    """The files and the steps of training with swapped parts.

    Forward: a stage is computed for every part before the next stage begins, and its result is written to a file. The
    last stage computes the loss; its forward and backward passes are one. Backward: every stage is recomputed part by
    part under autograd. Gradients of local rows go to one file, those of halo rows to another, from which the owner adds
    them. Memory holds one part, and what is read ahead for the next.
    """

    def __init__(
        self,
        model: GNN,
        partition: Partition,
        plan: SwapPlan,
        scratch: Scratch,
        reuse: LabelReuse | None = None,
    ) -> None:
        self.model, self.plan, self.scratch, self.reuse = model, plan, scratch, reuse
        self.traffic = Traffic()
        kind = next(iter(model.kinds), None)
        self.parts = FiledParts(plan.graph, partition, kind, plan.sizes, scratch)
        self._dtype = next(model.parameters()).dtype
        self._reader = ThreadPoolExecutor(1, "shoal-swap")
        rows, halo = int(self.parts.starts[-1]), int(self.parts.halo_starts[-1])
        self._values: dict[int, Matrix] = {}
        self._gradients: dict[int, Matrix] = {}
        self._returned: dict[
            int, Matrix
        ] = {}  # gradients of halo rows, in the order of the parts that read them
        for value in range(1, len(plan.stages)):
            width = plan.width(value)
            self._values[value] = scratch.make(rows, width, self._dtype)
            self._gradients[value] = scratch.make(rows, width, self._dtype)
            if plan.is_read_wide(value):
                self._returned[value] = scratch.make(halo, width, self._dtype)
        self._known = self._aggregate_input() if plan.stages[0].knows else None

    def close(self) -> None:
        """Delete the files."""
        self._reader.shutdown()
        self.scratch.close()

    def take_traffic(self) -> Traffic:
        """Bytes read and written since the last call."""
        taken, self.traffic = self.traffic, Traffic()
        return taken

    def take_step(self, step: int, measure: Measure) -> Tensor:
        """Forward and backward pass of a step: gradients go to the weights' `.grad`. Returns the loss, the sum over parts
        of `measure(logits, part)`."""
        losses: list[Tensor] = []
        for stage, way, measures in self.plan.list_passes():
            if measures or way == FORWARD:
                self._prepare(stage, way, step, measures=measures)
            elif way == BACKWARD:
                self._pass(stage, way, partial(self._differentiate, stage, way, step, lambda out, work: out))
            else:
                logits = partial(self._take_loss, measure, step, losses)
                self._pass(stage, way, partial(self._differentiate, stage, way, step, logits))
        self._forget_sums()
        return torch.stack(losses).sum()

    def run_forward(self, step: int = 0) -> None:
        """The forward passes of a step up to the last stage, which has no batch norm. They are no traffic of an epoch."""
        before, self.traffic = self.traffic, Traffic()
        for stage, way, measures in self.plan.list_passes():
            if way == FORWARD:
                self._prepare(stage, way, step, measures=measures)
        self._forget_sums()
        self.traffic = before

    def _prepare(self, stage: Stage, way: str, step: int, *, measures: bool) -> None:
        """Compute a stage's result for all parts; or only the sums of its batch norm, in a backward pass too."""
        if not measures:
            self._pass(stage, way, partial(self._compute, stage, step))
            return
        assert isinstance(stage.norm, SwappedBatchNorm)
        with stage.norm.measuring(backward=way == BACKWARD):
            self._pass(stage, way, partial(self._measure, stage, step))

    def _forget_sums(self) -> None:
        for stage in self.plan.stages:
            if isinstance(stage.norm, SwappedBatchNorm):
                stage.norm.forget()

    def _pass(self, stage: Stage, way: str, do: Callable[[_Work], None]) -> None:
        """Call `do` for every part in turn, while a thread reads the next part's input."""
        for matrix in (*self._values.values(), *self._gradients.values(), *self._returned.values()):
            matrix.settle()
        numbers = [part for part in range(self.parts.num_parts) if self.plan.sizes.local[part]]
        pending = self._reader.submit(self._read, stage, way, numbers[0])
        for following in (*numbers[1:], None):
            ready = [pending.result()]
            if following is None:
                del pending
            else:
                pending = self._reader.submit(self._read, stage, way, following)
            do(ready.pop())

    def _compute(self, stage: Stage, step: int, work: _Work) -> None:
        """Write a stage's result for a part."""
        with torch.no_grad():
            out = stage.run(self._give(stage, step, work))
        self._values[self._number(stage)].write(self.parts.slice_rows(work.part), out)
        self.traffic.count(stage.layer, FORWARD, written=out.nbytes)

    def _measure(self, stage: Stage, step: int, work: _Work) -> None:
        """Compute a part up to its batch norm, which adds up its sums; in a backward pass those of gradients."""
        assert isinstance(stage.norm, SwappedBatchNorm)
        with stage.norm.until_measured(), torch.set_grad_enabled(work.gradient is not None):
            out = stage.run(self._give(stage, step, work))
            if work.gradient is not None:
                torch.autograd.grad(out, self._list_weights(), work.gradient, allow_unused=True)

    def _differentiate(
        self, stage: Stage, way: str, step: int, take: Callable[[Tensor, _Work], Tensor], work: _Work
    ) -> None:
        """Recompute a part, add the gradients of weights, and write the gradients of its inputs."""
        leaves = {
            value: rows.requires_grad_()
            for value, rows in work.values.items()
            if value != FEATURES and isinstance(rows, Tensor)
        }
        weights = self._list_weights()
        with torch.enable_grad():
            out = take(stage.run(self._give(stage, step, work)), work)
        found = torch.autograd.grad(out, [*leaves.values(), *weights], work.gradient, allow_unused=True)
        for weight, gradient in zip(weights, found[len(leaves) :]):
            if gradient is not None:
                weight.grad = gradient.contiguous() if weight.grad is None else weight.grad.add_(gradient)
        for (value, rows), gradient in zip(leaves.items(), found):
            self._write_gradient(
                stage, way, work.part, value, torch.zeros_like(rows) if gradient is None else gradient
            )

    def _list_weights(self) -> list[Tensor]:
        return [weight for weight in self.model.parameters() if weight.requires_grad]

    def _take_loss(
        self, measure: Measure, step: int, losses: list[Tensor], logits: Tensor, work: _Work
    ) -> Tensor:
        rows = len(logits)
        work.batch.node_norm = torch.full((rows,), 1 / max(self._num_train, 1), dtype=torch.float64)
        if self.reuse is not None:
            self.reuse.count_hidden(work.batch, self._show(self.reuse, work, step))
        loss = measure(logits, work.batch)
        losses.append(loss.detach())
        return loss

    def _give(self, stage: Stage, step: int, work: _Work) -> StageInput:
        values, n_id = dict(work.values), work.batch.n_id
        if FEATURES in values:
            if self.reuse is not None:
                values[FEATURES] = LabelledBatch(work.batch, self._show(self.reuse, work, step)).x
            values[FEATURES] = self.model.prepare_input(values[FEATURES], n_id, step)[0]
        rows = work.batch.num_outputs
        adj = None if stage.kind is None else work.batch.blocks[0].adjacency(stage.kind)
        given = StageInput(adj, values[stage.source], [], work.known, n_id, rows, step)
        others = [given.own if value == stage.source else values[value] for value in stage.others]
        return given._replace(others=others)

    def _show(self, reuse: LabelReuse, work: _Work, step: int) -> LabelColumns:
        """The label columns of a part's rows in a step."""
        return reuse.draw(KnownLabels.of(work.batch.graph, work.batch.nodes, work.batch.n_id), step)

    def _read(self, stage: Stage, way: str, part: int) -> _Work:
        reads_halo = stage.draws or (stage.is_wide and stage.source == FEATURES)
        batch = self.parts.make_batch(part, with_halo=reads_halo)
        count = partial(self.traffic.count, stage.layer, way)
        values: dict[int, Input] = {}
        for value in {stage.source, *stage.others}:
            if value == FEATURES:
                values[value] = batch.x
                count(read=_count_gathered(batch))
            else:
                wide = stage.is_wide and value == stage.source
                values[value] = rows = self._read_rows(self._values[value], part, wide=wide)
                count(read=rows.nbytes)
        known = gradient = None
        if stage.knows:
            assert self._known is not None
            known = self._read_rows(self._known, part)
            count(read=known.nbytes)
        if way == BACKWARD:
            gradient, size = self._read_gradient(self._number(stage), part)
            count(read=size)
        if stage.is_wide:
            adj = batch.blocks[0].adjacency(stage.kind or "")
            count(
                read=_count_pattern(adj)
                + (0 if way == FORWARD else _count_pattern(adj.transpose()) + 4 * adj.num_entries)
            )
        _ = batch.n_id, batch.y, batch.train_mask
        return _Work(part, batch, values, known, gradient)

    def _read_rows(self, matrix: Matrix, part: int, *, wide: bool = False) -> Tensor:
        """A part's local rows of a matrix, followed by its halo rows if `wide`."""
        rows, halo = self.parts.slice_rows(part), self.parts.slice_halo(part)
        count = rows.stop - rows.start
        out = torch.empty(count + (halo.stop - halo.start if wide else 0), matrix.shape[1], dtype=self._dtype)
        out[:count] = matrix.tensor[rows]
        if wide:
            gather_rows(matrix.tensor, self.parts.halo_places(halo), out[count:], num_threads=1)
        return out

    def _read_gradient(self, value: int, part: int) -> tuple[Tensor, int]:
        """(the gradient of a part's rows of a value, including gradients from the parts that read them; bytes read)."""
        rows = self.parts.slice_rows(part)
        gradient = self._read_rows(self._gradients[value], part)
        size = gradient.nbytes
        if value in self._returned:
            for reader in self.plan.sizes.halo[:, part].nonzero()[0].tolist():
                span = self.parts.slice_halo(reader, part)
                returned = self._returned[value].tensor[span]
                gradient.index_add_(0, self.parts.halo_places(span) - rows.start, returned)
                size += returned.nbytes
        return gradient, size

    def _write_gradient(self, stage: Stage, way: str, part: int, value: int, gradient: Tensor) -> None:
        rows = self.parts.slice_rows(part)
        count = rows.stop - rows.start
        own, returned = gradient[:count], gradient[count:]
        if self.plan.adds_to(stage, value):
            own = own + self._gradients[value].tensor[rows]
            self.traffic.count(stage.layer, way, read=own.nbytes)
        self._gradients[value].write(rows, own)
        if len(returned):
            self._returned[value].write(self.parts.slice_halo(part), returned)
        self.traffic.count(stage.layer, way, written=own.nbytes + returned.nbytes)

    def _aggregate_input(self) -> Matrix:
        """`A x` of the first stage, computed once into a file."""
        known = self.scratch.make(int(self.parts.starts[-1]), self.plan.graph.num_features, self._dtype)
        for part in range(self.parts.num_parts):
            if self.plan.sizes.local[part]:
                batch = self.parts.make_batch(part, with_halo=True)
                assert isinstance(batch.x, Tensor)
                adj = batch.blocks[0].adjacency(self.plan.stages[0].kind or "")
                known.write(self.parts.slice_rows(part), multiply(adj, batch.x))
        known.settle()
        return known

    def _number(self, stage: Stage) -> int:
        """The number of the value that a stage computes."""
        return self.plan.stages.index(stage) + 1

    @cached_property
    def _num_train(self) -> int:
        mask = self.plan.graph.train_mask
        return len(self.plan.graph.indptr) - 1 if mask is None else int(mask.sum())


def _count_gathered(batch: Batch) -> int:
    """Bytes of a batch's features as they are stored."""
    if isinstance(batch.x, Adjacency):
        assert batch.x.values is not None
        return batch.x.values.nbytes + batch.x.indices.nbytes + 8 * batch.x.num_rows
    return count_features(batch.graph, len(batch.nodes))


def _count_pattern(adj: Adjacency) -> int:
    return adj.indptr.nbytes + adj.indices.nbytes + (0 if adj.values is None else adj.values.nbytes)
