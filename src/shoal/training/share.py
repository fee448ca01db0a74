"""Share: this rank's share of training. Its subclasses are the ways of training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.distributed.costs import summarize_costs
from shoal.distributed.gradients import average_buffers
from shoal.distributed.ledger import SAMPLING, Ledger
from shoal.distributed.transport import Transport
from shoal.graph import Graph
from shoal.label_columns import KnownLabels, LabelledBatch
from shoal.memory import keep_freed_memory, return_blocks
from shoal.models.calling import call_model
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler
from shoal.sampling.shard import ShardedSampler
from shoal.scratch import Scratch
from shoal.training.checkpoint import BUFFER_FORMAT, read_own, save_own
from shoal.training.epoch_state import EpochState, Record
from shoal.training.fitness import check_same_graph
from shoal.training.inference import count_held, embed_nodes, open_scratch, predict_logits
from shoal.training.label_reuse import LabelReuse
from shoal.training.norm_statistics import MOST_BATCHES, collecting
from shoal.wording import count

SPLITS = ("train", "val", "test")
Progress = Callable[[int, int], None]


class Share(ABC):
    """One rank's share of every step and every evaluation.

    Attributes:
        graph: this rank's rows, with labels: the whole graph, or the rows of its part.
        n_id: global ids of these rows; None for the whole graph.
        sampler: draws this rank's batches.
        whole: all of this rank's rows as one batch, for evaluation.
        loss_weight: factor on a batch's loss, so that the sum of the ranks' gradients is the gradient of the step.
        can_prefetch: whether threads may draw batches ahead.
        keeps_freed: whether freed memory stays with the process for the next step, which is faster; False if `--memory` is too small for a fragmented heap.
        to_train: whether training follows. If not, state that only steps need is not read from a checkpoint.
        reuse: label reuse; None if labels are not input.
        scratch_folder: folder for what does not fit in memory in evaluation; None for temporary files.
        ledger: counts messages, bytes and waiting time.
    """

    graph: Graph
    sampler: Sampler
    whole: Batch
    n_id: Tensor | None = None
    loss_weight = 1.0
    can_prefetch = True
    keeps_freed = True
    to_train = True
    reuse: LabelReuse | None = None
    scratch_folder: Path | None = None

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.ledger = Ledger()

    def prepare(self, model: nn.Module) -> None:  # noqa: B027 (most have nothing to do)
        """Called once before the first step, when all ranks have the same weights."""

    def settle_memory(self) -> None:
        """Keep freed memory for the next steps, or return it."""
        (keep_freed_memory if self.keeps_freed else return_blocks)()

    def begin(self, epochs: int, *, saves: bool = False) -> None:  # noqa: B027
        """Prepare to train up to epoch `epochs`."""

    def end(self) -> None:  # noqa: B027
        """Drain pending messages after the last epoch."""

    def release(self) -> None:  # noqa: B027
        """Free what only steps need, without messages. Also called after an exception."""

    def stepping(self, step: int) -> AbstractContextManager[None]:
        """A context in which exchanges belong to an optimizer step."""
        return nullcontext()

    def save(self, folder: Path, step: int, model: nn.Module, *, keep: int, in_epoch: bool = False) -> None:  # noqa: B027
        """Write this rank's own state after a step, which the checkpoint with the weights does not hold.

        It is written before that checkpoint. The files of `keep` checkpoints stay. `in_epoch`: the epoch is not finished.
        """

    def resume(self, folder: Path, step: int, model: nn.Module, *, in_epoch: bool = False) -> None:  # noqa: B027
        """Read what `save` wrote."""

    def adopt(self, ranks: int, done: EpochState | None) -> list[str]:
        """Resume a checkpoint of another number of ranks; `done` is the state of its epoch. Returns notices."""
        return []

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """This rank's batches of an epoch, starting with number `first`."""
        return self.sampler.epoch(epoch, first)

    def differentiate(
        self, model: nn.Module, batch: Batch, measure: Callable[[Tensor, Batch], Tensor]
    ) -> Tensor:
        """Forward and backward pass of a step: this rank's gradients go to the weights' `.grad`. Returns its loss.

        `measure(logits, batch)` computes the loss.
        """
        loss = measure(*self.compute(model, batch))
        if self.loss_weight != 1:
            loss = loss * self.loss_weight
        loss.backward()
        return loss.detach()

    def compute(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Batch]:
        """The logits of a step's batch, and the batch, with the step's label columns if labels are reused."""
        if self.reuse is not None:
            hidden = self.reuse.hide(batch, self.find_labels(batch))
            batch = self._predict_labels(hidden, lambda one: call_model(model, one, one.graph.num_classes))
        return call_model(model, batch, batch.graph.num_classes), batch

    def measure_norms(self, model: nn.Module, step: int) -> None:
        """Replace the running statistics of batch norms by those of training batches, computed without dropout.

        `step` is the number of steps so far: the first batches of the last step's epoch are measured.
        """
        with self.ledger.aside(), collecting(model):
            for batch in self.draw_measured(max(step - 1, 0) // self.sampler.num_batches):
                batch.step = batch.index
                self.compute(model, batch)

    def draw_measured(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch that are measured."""
        start = epoch * self.sampler.num_batches
        return map(self.sampler.sample, range(start, start + self.count_measured()))

    def count_measured(self) -> int:
        """Number of batches that are measured."""
        return min(self.sampler.num_batches, MOST_BATCHES)

    def find_labels(self, batch: Batch) -> KnownLabels:
        """The labels of the rows of a batch's x, and of the rows that a precomputed `A x` reads."""
        return KnownLabels.of(batch.graph, batch.nodes, batch.n_id)

    def spread(self, rows: Tensor, batch: Batch) -> Tensor:
        """`rows` of the batch's nodes, extended to one row for each row of `find_labels`."""
        return rows

    def show_labels(self, compute: Callable[[Batch], Tensor]) -> Batch:
        """The input of evaluation: `whole`, with label columns if labels are reused, and with predictions by `compute`."""
        if self.reuse is None:
            return self.whole
        shown = self.reuse.show_all(self.whole, self.find_labels(self.whole))
        return self._predict_labels(shown, compute)

    def _predict_labels(self, batch: LabelledBatch, compute: Callable[[Batch], Tensor]) -> LabelledBatch:
        assert self.reuse is not None
        return self.reuse.predict(batch, compute, lambda rows: self.spread(rows, batch.base))

    def sum(self, counts: Tensor) -> Tensor:
        """Counts summed over all ranks that hold parts."""
        return counts

    def collect(self, rows: Tensor) -> Tensor:
        """The rows of all ranks that hold parts, gathered."""
        return rows

    def count_nodes(self, split: str) -> int:
        """Number of nodes of a split, over all ranks."""
        mask = getattr(self.graph, f"{split}_mask")
        return int(self.sum(torch.tensor([0 if mask is None else int(mask.sum())])))

    def agree(self, score: float) -> float:
        """The same score on all ranks, so that rounding cannot make them decide differently."""
        return score

    def align_buffers(self, model: nn.Module) -> None:  # noqa: B027
        """Average the model's buffers, such as running statistics, over ranks."""

    @abstractmethod
    def embed(
        self,
        model: nn.Module,
        progress: Progress | None = None,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        """The embedding of this rank's rows, in eval mode on the whole graph, written to `out` if given.

        Matrices of all nodes are kept in `scratch`: by default within the memory budget, beyond it in temporary files.
        """

    @abstractmethod
    def take_costs(self, epoch: int, nodes: int, seconds: float) -> Record:
        """Costs of an epoch for its record: where the time went, and messages, over all ranks.

        `nodes` and `seconds` are those of this rank.
        """

    def example(self) -> Batch:
        """A batch like those of training, made without messages."""
        return self.sampler.sample(0)

    def explain(self, model: nn.Module) -> list[str]:
        """The scheduler's decision for each layer of a step, one line per layer."""
        explain: Callable[[Batch], list[str]] = getattr(model, "explain", lambda batch: [])
        return explain(self.example())

    def describe_ranks(self) -> list[dict[str, int]]:
        """Rows and memory of every rank that holds a part; empty for others."""
        return []

    @abstractmethod
    def predict(
        self,
        model: nn.Module,
        rows: Tensor | None = None,
        progress: Progress | None = None,
        *,
        take: Callable[[Tensor], Tensor] = lambda logits: logits,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        """The logits of this rank's rows, or of those in the mask `rows`; `take` maps chunks of logits to the result."""


class ReplicaShare(Share):
    """Data-parallel training: every rank has the whole graph, and a step takes one batch per rank.

    A single process is one rank. Every rank evaluates on the whole graph.
    """

    def __init__(self, graph: Graph, sampler: Sampler | None, transport: Transport) -> None:
        super().__init__(transport)
        self.graph = graph
        self.sampler = sampler if sampler is not None else FullSampler(graph)
        check_same_graph(self.sampler, graph)
        if transport.size > 1:
            if not self.sampler.is_for_one_rank:
                self.sampler = ShardedSampler(self.sampler, transport.rank, transport.size)
            self.loss_weight = 1 / transport.size
        self.can_prefetch = self.sampler.can_prefetch
        own = isinstance(self.sampler, FullSampler) and self.sampler.graph is graph
        self.whole = (self.sampler if own else FullSampler(graph)).sample(0)

    def save(self, folder: Path, step: int, model: nn.Module, *, keep: int, in_epoch: bool = False) -> None:
        """Inside an epoch, write this rank's buffers, such as running statistics of its batches."""
        if in_epoch and (buffers := self._own_buffers(model)):
            save_own(folder, BUFFER_FORMAT, step, self.transport.rank, buffers, keep)
            self.transport.phase = "the buffers of a checkpoint"
            self.transport.barrier()

    def resume(self, folder: Path, step: int, model: nn.Module, *, in_epoch: bool = False) -> None:
        if in_epoch and self._own_buffers(model):
            model.load_state_dict(read_own(folder, BUFFER_FORMAT, step, self.transport.rank), strict=False)

    def _own_buffers(self, model: nn.Module) -> dict[str, Tensor]:
        if self.transport.size == 1:
            return {}
        kept = model.state_dict()
        return {name: kept[name].contiguous() for name, _ in model.named_buffers() if name in kept}

    def adopt(self, ranks: int, done: EpochState | None) -> list[str]:
        size = self.transport.size
        if done is not None:  # batches of the common sequence that are trained
            done.batches = min(-(-done.batches * ranks // size), self.sampler.num_batches)
        is_full = isinstance(self.sampler, FullSampler)  # a step is the same on any number of ranks
        return [
            f"a step now takes one batch from each of {count(size, 'rank')}, before it was {ranks}: scores will differ from those of {ranks}"
        ][is_full:]

    def agree(self, score: float) -> float:
        return float(self.transport.broadcast(torch.tensor([score], dtype=torch.float64), 0))

    def align_buffers(self, model: nn.Module) -> None:
        if self.transport.size > 1:
            average_buffers(model, self.transport)

    def measure_norms(self, model: nn.Module, step: int) -> None:
        """Every rank measures the same batches, without messages, or its own if no other rank can draw them."""
        super().measure_norms(model, step)
        if isinstance(self._source, FullSampler) and getattr(model, "input_dropout", 0.0) > 0:
            self._source.sample(0).forget_input()  # steps have no use for it
        if self._source is self.sampler:
            self.align_buffers(model)

    def draw_measured(self, epoch: int) -> Iterator[Batch]:
        size = self.transport.size if self._source is not self.sampler else 1
        start = epoch * self.sampler.num_batches * size
        return map(self._source.sample, range(start, start + self.count_measured()))

    def count_measured(self) -> int:
        return min(self._source.num_batches, MOST_BATCHES)

    @property
    def _source(self) -> Sampler:
        """The sampler of the sequence that ranks share."""
        return self.sampler.source if isinstance(self.sampler, ShardedSampler) else self.sampler

    def embed(
        self,
        model: nn.Module,
        progress: Progress | None = None,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        whole = self.show_labels(partial(self._predict_once, model))
        return embed_nodes(model, whole, out=out, progress=progress, scratch=self._open(model, scratch))

    def predict(
        self,
        model: nn.Module,
        rows: Tensor | None = None,
        progress: Progress | None = None,
        *,
        take: Callable[[Tensor], Tensor] = lambda logits: logits,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        whole = self.show_labels(partial(self._predict_once, model))
        scratch = self._open(model, scratch)
        return predict_logits(model, whole, rows=rows, progress=progress, take=take, out=out, scratch=scratch)

    def _predict_once(self, model: nn.Module, whole: Batch) -> Tensor:
        return predict_logits(model, whole, scratch=self._open(model, None))

    def _open(self, model: nn.Module, scratch: Scratch | None) -> Scratch:
        if scratch is not None:
            return scratch
        return open_scratch(self.scratch_folder, promised=count_held(model, self.whole))

    def take_costs(self, epoch: int, nodes: int, seconds: float) -> Record:
        if self.transport.size == 1:
            sampling = self.ledger.take().seconds[SAMPLING]
            return {"time": {"compute": max(seconds - sampling, 0.0), SAMPLING: sampling}}
        record, slowest = summarize_costs(self.ledger, self.transport, epoch, seconds)
        total = int(self.transport.sum(torch.tensor([nodes])))
        return record | {"nodes_per_second": total / slowest}
