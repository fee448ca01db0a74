"""Trainer: one loop for every way of training."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.checks import MAX_THREADS
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.gradients import GradientBucket, broadcast_weights
from shoal.distributed.ledger import IDLE, REDUCE
from shoal.distributed.runtime import default_transport
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import keep_freed_memory
from shoal.partitioning.part import Part
from shoal.sampling.base import Sampler
from shoal.sampling.feature_cache import FeatureCaching
from shoal.sampling.stream import BatchStream
from shoal.scratch import Scratch
from shoal.settings import Above, AtLeast, Choices, Null, Range, check_settings
from shoal.training.callback import Callback, make_callbacks
from shoal.training.checkpoint import load_checkpoint, save_checkpoint
from shoal.training.evaluation import choose_interval, score_split
from shoal.training.loss import LOSSES, Loss, compute_loss, weigh_classes
from shoal.training.metrics import METRICS, choose_metric, decide_class, decide_labels
from shoal.training.part_share import PartShare
from shoal.training.schedule import SCHEDULES, scale_learning_rate
from shoal.training.share import Progress, Record, ReplicaShare, Share, check_fit

OPTIMIZERS = ("adam", "adamw")


class Trainer:
    """Trains `model` on batches that `sampler` draws, evaluates on the full graph.

    One process trains on a Graph. Several ranks, joined by `transport`, train one model together, either each on
    batches of its own (given the Graph: gradients are averaged, a step works on as many batches as there are ranks),
    or each on its part of every batch (given a Part: the same steps as one process takes). Rank 0 writes checkpoints.

    Args:
        model: any module that maps a Batch to one row of logits for each of its output nodes.
        graph: the graph, or this rank's Part of it.
        sampler: draws batches of the graph; full-batch training if None.
        transport: joins the ranks; by default the process group of `torch.distributed` where the program has
            initialised one, else this process alone.
        exchange: how the rows of a Part's halo travel, by name or as an object.
        features: how features on disk are read where they exceed their share of memory.
        checkpoints: folder for `last.safetensors` (every epoch) and `best.safetensors`, None for none.

    The other arguments are settings (`shoal train --help` lists them). `train_step` is one step, for loops of your own.
    """

    @check_settings
    def __init__(
        self,
        model: nn.Module,
        graph: Graph | Part,
        sampler: Sampler | None = None,
        *,
        transport: Transport | None = None,
        exchange: ExchangeMethod | str = "p2p",
        features: FeatureCaching | None = None,
        optimizer: Annotated[str, Choices(OPTIMIZERS), "adam, or adamw: weight decay apart from it"] = "adam",
        lr: Annotated[float, Above(0), "learning rate"] = 0.01,
        schedule: Annotated[
            str, Choices(SCHEDULES), "how the learning rate changes over the epochs"
        ] = "constant",
        warmup: Annotated[int, AtLeast(0), "epochs in which the learning rate rises"] = 0,
        weight_decay: Annotated[float, Range(0, said="0 or more"), "L2 penalty on weights"] = 0.0,
        loss: Annotated[
            str | Callable[..., Tensor], Choices(LOSSES), "the loss of every node"
        ] = "cross_entropy",
        class_weights: Annotated[
            str | Sequence[float] | None, Null("none"), "balanced, or one factor for each class's loss"
        ] = None,
        clip: Annotated[float | None, Above(0), Null("no limit"), "largest gradient norm"] = None,
        patience: Annotated[
            int | None, AtLeast(1), Null("never"), "evaluations without a better score after which to stop"
        ] = None,
        eval_every: Annotated[
            int | None,
            AtLeast(1),
            Null("1, on large graphs as eval_share allows"),
            "epochs between evaluations",
        ] = None,
        eval_share: Annotated[
            float,
            Range(0, 1, open_low=True, said="above 0, up to 1"),
            "largest share of the work that goes into evaluations while training",
        ] = 0.1,
        metric: Annotated[
            str | Callable[..., float] | None,
            Choices(METRICS),
            Null("accuracy, multi-label f1_micro"),
            "validation score that decides which weights are best",
        ] = None,
        sampling_threads: Annotated[
            int, Range(0, MAX_THREADS), "threads that draw batches ahead of the step; the run is the same"
        ] = 0,
        callbacks: Annotated[Sequence[str | Callback] | Callback, "callbacks by name or as objects"] = (),
        checkpoints: Path | None = None,
    ) -> None:
        check_fit(model, graph)
        self.model = model
        self.transport = transport if transport is not None else default_transport()
        self.share: Share
        if isinstance(graph, Part):
            method = EXCHANGES[exchange]() if isinstance(exchange, str) else exchange
            self.share = PartShare(graph, sampler, self.transport, method, model)
        else:
            self.share = ReplicaShare(graph, sampler, self.transport)
        self.graph, self.sampler = self.share.graph, self.share.sampler
        adam = torch.optim.AdamW if optimizer == "adamw" else torch.optim.Adam
        self.optimizer = adam(model.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
        self.lr, self.schedule, self.warmup = lr, schedule, warmup
        self.loss: Loss = LOSSES[loss] if isinstance(loss, str) else loss
        self.class_weights = weigh_classes(self.graph, class_weights, self.share.sum)
        if self.class_weights is not None and "class_weights" not in inspect.signature(self.loss).parameters:
            raise ShoalError(
                f"loss {loss!r} takes no class_weights: leave them out, or give it that argument"
            )
        self.clip = clip
        self.patience, self.eval_every, self.eval_share = patience, eval_every, eval_share
        self.sampling_threads = sampling_threads
        caching = features if features is not None else FeatureCaching()
        self._stream = BatchStream(self.sampler, num_threads=sampling_threads, caching=caching)
        self.callbacks = make_callbacks(callbacks)
        self.checkpoints = checkpoints
        self._metrics = [] if metric is None else [metric]
        self.metric = choose_metric(metric, self.graph)
        self.epoch = self.step = self.best_epoch = 0
        self.best_score = float("-inf")
        self._best_weights: dict[str, Tensor] | None = None
        self._last_weights: dict[str, Tensor] | None = None
        self._stopped = False
        if self.transport.size > 1:
            broadcast_weights(model, self.transport)
        self._bucket = GradientBucket(model, self.transport)
        self.share.prepare(model)

    def fit(self, epochs: int, on_epoch: Callable[[Record], None] | None = None) -> list[Record]:
        """Train until epoch `epochs` (a resumed trainer goes on from where it was) or until patience ends.

        `on_epoch` receives every epoch's record: epoch, loss, seconds, nodes_per_second and, where it was evaluated,
        val_<metric>. At the end the weights of the best evaluation are put in; another call goes on from the last ones.
        """
        if epochs < 1:
            raise ShoalError(f"epochs is {epochs}: expected at least 1")
        keep_freed_memory()
        self._take_last_weights()
        self.share.begin(epochs, saves=self.checkpoints is not None)
        self._stopped = False
        for callback in self.callbacks:
            callback.on_start(self)
        try:
            records = self._fit(epochs, on_epoch)
        finally:
            self._stream.close()
        self.share.end()
        for callback in self.callbacks:
            callback.on_end(self)
        return records

    def _fit(self, epochs: int, on_epoch: Callable[[Record], None] | None) -> list[Record]:
        records, has_val = list[Record](), self.has_nodes("val")
        ends = has_val and self.eval_every is None  # the last epoch is evaluated, wherever it lies
        while self.epoch < epochs and not self.is_out_of_patience() and not self._stopped:
            record = self.train_epoch(scale_learning_rate(self.schedule, self.epoch, epochs, self.warmup))
            if (ends and self.epoch == epochs) or (has_val and self.epoch % self.eval_interval == 0):
                self._evaluate_epoch(record)
            records.append(record)
            for callback in self.callbacks:
                callback.on_epoch(self, record)
            if self.callbacks and self.transport.size > 1:  # one rank is enough to stop all
                self._stopped = bool(self.transport.sum(torch.tensor([int(self._stopped)])))
            if ends and self._stopped and "eval_seconds" not in record:
                self._evaluate_epoch(record)
            if on_epoch is not None:  # a record past the checkpoint is dropped, a missing one is lost
                on_epoch(record)
            self.share.align_buffers(self.model)
            if self.checkpoints is not None:
                self.share.save(self.checkpoints, self.epoch)
                if self.transport.rank == 0:
                    self.save(self.checkpoints / "last.safetensors")
        self._last_weights = self._copy_weights()
        self.restore_best()
        return records

    def stop(self) -> None:
        """End `fit` after the epoch that is being trained; callbacks call it."""
        self._stopped = True

    def train_epoch(self, lr_factor: float = 1.0, batches: Iterator[Batch] | None = None) -> Record:
        """One epoch of steps, on `batches` or on the sampler's; returns its record. Nothing is evaluated."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr * lr_factor
        self.step = self.epoch * self.sampler.num_batches
        started, nodes, losses = time.perf_counter(), 0, []
        for batch in self._batches() if batches is None else batches:
            losses.append(self.train_step(batch))
            nodes += batch.num_nodes
        seconds = time.perf_counter() - started
        self.epoch += 1
        mean = sum(losses) / len(losses)
        if not torch.isfinite(torch.tensor(mean)):
            raise ShoalError(
                f"the loss became {mean} in epoch {self.epoch}: lower the learning rate, or clip gradients"
            )
        return {
            "epoch": self.epoch,
            "loss": mean,
            "batches": len(losses),
            "lr": self.optimizer.param_groups[0]["lr"],
            "seconds": seconds,
            "nodes_per_second": nodes / seconds,
            **self._stream.take_counts(),
            **self.share.take_costs(self.epoch, nodes, seconds),
        }

    def train_step(self, batch: Batch) -> float:
        """One optimizer step on a batch, on every rank on its own; returns the step's loss.

        Dropout is keyed by the batch's number, or by the step where one batch serves many.
        """
        if not self.model.training:
            self.model.train()
        batch.step = self.step if batch.fixed else batch.index
        self.optimizer.zero_grad()
        with self.share.stepping(batch.step):
            loss = compute_loss(self.model(batch), batch, self.class_weights, self.loss)
            if self.share.loss_weight != 1:
                loss = loss * self.share.loss_weight
            loss.backward()
        value = self._join_ranks(loss.detach())
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.step += 1
        return value

    def _join_ranks(self, loss: Tensor) -> float:
        """Sum loss and gradients over the ranks. The loss is one number: what it takes is waiting for the slowest."""
        if self.transport.size == 1:
            return float(loss)
        total, ledger = loss.double().reshape(1).clone(), self.share.ledger
        with ledger.timing(IDLE):
            self.transport.phase = f"the loss of epoch {self.epoch + 1}"
            self.transport.sum(total)
        with ledger.timing(REDUCE):
            self.transport.phase = f"the gradients of epoch {self.epoch + 1}"
            self._bucket.sum()
        return float(total)

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Scores on a split's nodes, computed on the full graph: `f1_micro`, `f1_macro`, for single-label graphs
        `accuracy`, for two classes `roc_auc`, and the trainer's own metric."""
        return score_split(self.share, self.model, split, self._metrics)

    def has_nodes(self, split: str) -> bool:
        """Whether the graph has nodes to evaluate in a split."""
        return self.share.count_nodes(split) > 0

    def embed(
        self, progress: Progress | None = None, *, out: Tensor | None = None, scratch: Scratch | None = None
    ) -> Tensor:
        """Every node's embedding, (num_nodes, embedding_width), layer by layer within the memory budget.

        It is written to `out` where given, which may be mapped to a file. Trained on a Part: that of its rows.
        """
        return self.share.embed(self.model, progress, out, scratch)

    def predict(
        self, progress: Progress | None = None, *, out: Tensor | None = None, scratch: Scratch | None = None
    ) -> Tensor:
        """Every node's predicted class, or 0/1 matrix for multi-label graphs; trained on a Part: of its rows."""
        take = decide_labels if self.graph.multi_label else decide_class
        return self.share.predict(self.model, progress=progress, take=take, out=out, scratch=scratch)

    def save(self, path: Path) -> None:
        """Write a checkpoint from which `resume` goes on exactly."""
        progress = {"epoch": self.epoch, "best_epoch": self.best_epoch, "best_score": self.best_score}
        weights = self._last_weights or self.model.state_dict()  # after fit the model has the best ones
        save_checkpoint(path, weights, self.optimizer, progress)

    def resume(self, folder: Path) -> None:
        """Go on from the last checkpoint in `folder`."""
        self._last_weights = None
        best = folder / "best.safetensors"
        if best.is_file():
            load_checkpoint(best, self.model)
            self._best_weights = self._copy_weights()
        progress = load_checkpoint(folder / "last.safetensors", self.model, self.optimizer)
        self.epoch, self.best_epoch = progress["epoch"], progress["best_epoch"]
        self.best_score = progress["best_score"]
        self.share.resume(folder, self.epoch)

    def restore_best(self) -> None:
        """Put back the weights of the best evaluation; fit does so at its end."""
        if self._best_weights is not None:
            self.model.load_state_dict(self._best_weights)

    def is_out_of_patience(self) -> bool:
        """Whether so many evaluations brought no better score that training has ended."""
        if self.patience is None or self.best_epoch == 0:
            return False
        return self.epoch - self.best_epoch >= self.patience * self.eval_interval

    @cached_property
    def eval_interval(self) -> int:
        """Epochs from one evaluation to the next: as set, else so many that evaluations take at most `eval_share`."""
        return self.eval_every or choose_interval(self.share, self.model, self.eval_share)

    def _take_last_weights(self) -> None:
        """Undo `restore_best`: training goes on from the weights it stopped at."""
        if self._last_weights is not None:
            self.model.load_state_dict(self._last_weights)
            self._last_weights = None

    def _batches(self) -> Iterator[Batch]:
        """The epoch's batches. Threads go on to the next epoch's while this one is evaluated."""
        if not self.share.can_prefetch:
            return self.share.batches(self.epoch)
        count = self.sampler.num_batches
        return self._stream.take(self.epoch * count, count)

    def _evaluate_epoch(self, record: Record) -> None:
        started = time.perf_counter()
        self.share.align_buffers(self.model)
        scores = self.evaluate("val")
        record |= {f"val_{name}": value for name, value in scores.items()}
        record["eval_seconds"] = time.perf_counter() - started
        score = self.share.agree(scores[self.metric])
        if score > self.best_score:
            self.best_score, self.best_epoch = score, self.epoch
            self._best_weights = self._copy_weights()
            if self.checkpoints is not None and self.transport.rank == 0:
                save_checkpoint(self.checkpoints / "best.safetensors", self.model.state_dict())

    def _copy_weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}
