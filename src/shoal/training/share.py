"""Share: this rank's share of training. What differs between ways of training is what it answers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.distributed.costs import summarize_costs
from shoal.distributed.gradients import average_buffers
from shoal.distributed.ledger import SAMPLING, Ledger
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.label_columns import KnownLabels, LabelledBatch
from shoal.models.calling import call_model
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler
from shoal.sampling.shard import ShardedSampler
from shoal.scratch import Scratch
from shoal.training.checkpoint import BUFFER_FORMAT, read_own, save_own
from shoal.training.fitness import check_same_graph
from shoal.training.inference import count_held, embed_nodes, open_scratch, predict_logits
from shoal.training.label_reuse import LabelReuse
from shoal.wording import count

SPLITS = ("train", "val", "test")
Record = dict[str, Any]
Progress = Callable[[int, int], None]


@dataclass
class EpochState:
    """How far an epoch has come: its batches, what they lost, their nodes, the seconds they took."""

    batches: int = 0
    losses: list[float] = field(default_factory=list)
    nodes: int = 0
    seconds: float = 0.0

    def add(self, loss: float, nodes: int) -> None:
        """One more batch."""
        self.batches += 1
        self.losses.append(loss)
        self.nodes += nodes

    def to_record(self, epoch: int, lr: float, compiling: float = 0.0) -> Record:
        """The record of an epoch that has ended, `compiling` seconds of it; a loss that is not finite is refused."""
        mean = sum(self.losses) / len(self.losses)
        if not math.isfinite(mean):
            raise ShoalError(
                f"the loss became {mean} in epoch {epoch}: lower the learning rate, or clip gradients"
            )
        compiling = min(compiling, self.seconds)
        rate = self.nodes / max(self.seconds - compiling, 0.01 * self.seconds)
        return {
            "epoch": epoch,
            "loss": mean,
            "batches": len(self.losses),
            "lr": lr,
            "seconds": self.seconds,
            "compile_seconds": compiling,
            "nodes_per_second": rate,
        }


class Share(ABC):
    """What one rank does of every step and of every evaluation.

    Attributes:
        graph: the rows whose labels and scores are this rank's: all of them, or those of its part.
        n_id: their numbers in the whole graph, None if all.
        sampler: draws this rank's batches.
        whole: all of this rank's rows as one batch, which evaluation works on.
        loss_weight: factor on a batch's loss, with which the ranks' gradients add up to those of the step.
        can_prefetch: whether threads may draw batches ahead.
        to_train: whether steps will follow; what only they need is then read from a checkpoint.
        reuse: what is shown of labels as input, None for nothing.
        scratch_folder: where evaluation puts what does not fit in memory; None for temporary files.
        ledger: counts messages and waiting.
    """

    graph: Graph
    sampler: Sampler
    whole: Batch
    n_id: Tensor | None = None
    loss_weight = 1.0
    can_prefetch = True
    to_train = True
    reuse: LabelReuse | None = None
    scratch_folder: Path | None = None

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.ledger = Ledger()

    def prepare(self, model: nn.Module) -> None:  # noqa: B027 (most have nothing to do)
        """Do what is done once, before the first step, when all ranks have the same weights."""

    def begin(self, epochs: int, *, saves: bool = False) -> None:  # noqa: B027
        """Prepare to train up to epoch `epochs`."""

    def end(self) -> None:  # noqa: B027
        """Drain pending messages after the last epoch."""

    def release(self) -> None:  # noqa: B027
        """Free what only steps need, without messages; called after an exception too."""

    def stepping(self, step: int) -> AbstractContextManager[None]:
        """What is exchanged inside the block belongs to an optimizer step."""
        return nullcontext()

    def save(self, folder: Path, step: int, model: nn.Module, *, keep: int, in_epoch: bool = False) -> None:  # noqa: B027
        """Write what the checkpoint after a step lacks of this rank; it is complete when that is written.

        The files of `keep` checkpoints stay. `in_epoch`: the epoch is not finished.
        """

    def resume(self, folder: Path, step: int, model: nn.Module, *, in_epoch: bool = False) -> None:  # noqa: B027
        """Read what `save` wrote."""

    def adopt(self, ranks: int, done: EpochState | None) -> list[str]:
        """Go on with what another number of ranks trained, `done` so far of the epoch; returns what changes by it."""
        return []

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """This rank's batches of an epoch, from the `first` on."""
        return self.sampler.epoch(epoch, first)

    def differentiate(
        self, model: nn.Module, batch: Batch, measure: Callable[[Tensor, Batch], Tensor]
    ) -> Tensor:
        """Put this rank's gradients of a step into the weights' `.grad`; answers its loss, `measure` of the logits."""
        if self.reuse is not None:
            hidden = self.reuse.hide(batch, self.find_labels(batch))
            batch = self._predict_labels(hidden, lambda one: call_model(model, one, one.graph.num_classes))
        loss = measure(call_model(model, batch, batch.graph.num_classes), batch)
        if self.loss_weight != 1:
            loss = loss * self.loss_weight
        loss.backward()
        return loss.detach()

    def find_labels(self, batch: Batch) -> KnownLabels:
        """What may be shown of the rows of a batch's x, and of those that a known `A x` reads."""
        return KnownLabels.of(batch.graph, batch.nodes, batch.n_id)

    def spread(self, rows: Tensor, batch: Batch) -> Tensor:
        """One row for each row of `find_labels`, from those of the batch's own nodes."""
        return rows

    def show_labels(self, compute: Callable[[Batch], Tensor]) -> Batch:
        """`whole` as evaluation sees it: with labels, and with predictions by `compute`, where those are reused."""
        if self.reuse is None:
            return self.whole
        shown = self.reuse.show_all(self.whole, self.find_labels(self.whole))
        return self._predict_labels(shown, compute)

    def _predict_labels(self, batch: LabelledBatch, compute: Callable[[Batch], Tensor]) -> LabelledBatch:
        assert self.reuse is not None
        return self.reuse.predict(batch, compute, lambda rows: self.spread(rows, batch.base))

    def sum(self, counts: Tensor) -> Tensor:
        """Counts over the rows of all ranks, from those over this rank's."""
        return counts

    def collect(self, rows: Tensor) -> Tensor:
        """One row for each of some nodes of every rank, from those of this rank."""
        return rows

    def count_nodes(self, split: str) -> int:
        """Nodes of a split, on all ranks."""
        mask = getattr(self.graph, f"{split}_mask")
        return int(self.sum(torch.tensor([0 if mask is None else int(mask.sum())])))

    def agree(self, score: float) -> float:
        """One score for all ranks, so that they decide alike whatever the rounding on each."""
        return score

    def align_buffers(self, model: nn.Module) -> None:  # noqa: B027
        """Give all ranks one state of what layers have measured."""

    @abstractmethod
    def embed(
        self,
        model: nn.Module,
        progress: Progress | None = None,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        """The embedding of this rank's rows, in evaluation mode on the whole graph, in `out` where given.

        Matrices of all nodes are kept in `scratch`: by default within the memory budget, beyond it in temporary files.
        """

    @abstractmethod
    def take_costs(self, epoch: int, nodes: int, seconds: float) -> Record:
        """What an epoch of `nodes` rows and `seconds` on this rank cost all ranks: where the time went, and messages."""

    def example(self) -> Batch:
        """A batch such as steps work on, made without messages."""
        return self.sampler.sample(0)

    def explain(self, model: nn.Module) -> list[str]:
        """What the scheduler decides for each layer of a step, a line each."""
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
        """The logits of this rank's rows, or of those in the mask `rows`; or what `take` makes of them, by chunks."""


class ReplicaShare(Share):
    """Every rank has the whole graph and draws batches of its own; a step works on as many batches as there are ranks.

    A single process is its one rank. Evaluation is everybody's on the whole graph.
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
        """Inside an epoch every rank has buffers of its own, such as means of what its batches had."""
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
        if done is not None:  # so many of the common sequence are trained
            done.batches = min(-(-done.batches * ranks // size), self.sampler.num_batches)
        is_full = isinstance(self.sampler, FullSampler)  # the same step on however many ranks
        return [
            f"a step takes a batch of each of {count(size, 'rank')} from now on, before it was {ranks}: scores will differ from those of {ranks}"
        ][is_full:]

    def agree(self, score: float) -> float:
        return float(self.transport.broadcast(torch.tensor([score], dtype=torch.float64), 0))

    def align_buffers(self, model: nn.Module) -> None:
        if self.transport.size > 1:
            average_buffers(model, self.transport)

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
