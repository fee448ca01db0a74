"""Trainer: one loop for every way of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, SupportsIndex

import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.checks import MAX_THREADS
from shoal.distributed.exchange import ExchangeMethod
from shoal.distributed.gradients import GradientBucket
from shoal.distributed.ledger import IDLE, REDUCE, SAMPLING
from shoal.distributed.runtime import default_transport
from shoal.distributed.transport import Transport
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.jit import compile_seconds
from shoal.partitioning.part import Part
from shoal.partitioning.partition import Partition
from shoal.sampling.base import Sampler
from shoal.sampling.feature_cache import FeatureCaching
from shoal.sampling.stream import BatchStream
from shoal.settings import Above, AtLeast, Null, Range, Rate, check_settings
from shoal.training.callback import Callback, make_callbacks, show_epochs
from shoal.training.checkpoint import save_checkpoint
from shoal.training.epoch_state import EpochState, Record
from shoal.training.evaluation import EvalShare, choose_interval
from shoal.training.fitness import check_fit
from shoal.training.interruption import Interruption
from shoal.training.keeper import BEST, Resumable, save_last
from shoal.training.label_reuse import Iterations, ShownShare, make_reuse
from shoal.training.loss import ChosenLoss
from shoal.training.metrics import Deciding, choose_metric, is_better, worst_score
from shoal.training.optimizer import Optimizing, make_optimizer
from shoal.training.predictor import Predictor
from shoal.training.profile import StepProfile
from shoal.training.records import History, Recorded
from shoal.training.schedule import LearningRates, Schedule, scale_learning_rate
from shoal.training.seeding import seeded
from shoal.training.shares import make_share
from shoal.training.split_sample import EvalSample, draw_sample
from shoal.training.start import PriorBias, start_weights
from shoal.training.task import Task
from shoal.training.weights import KeptWeights


class Trainer(Predictor, Recorded, Resumable):
    """Trains `model` on the sampler's batches and evaluates it on the full graph.

    One process trains on a Graph. Several ranks, connected by `transport`, train one model together. Given the Graph, each
    rank draws its own batches: gradients are averaged, and a step takes one batch per rank. Given a Part, each rank computes
    its rows of every batch: steps are the same as in one process. Rank 0 writes checkpoints.

    Args:
        model: any module that returns one row of logits per node. If its forward has a required parameter `edge_index`, it
            is called as PyG models are, with `(x, edge_index)`, and with `edge_weight` if it has that parameter. Any other
            is called with the Batch. Without layer-wise inference, as GNN has it, evaluation computes the whole graph in
            one pass and holds all of it in memory.
        graph: the graph, or this rank's Part of it.
        sampler: draws batches of the graph. None: full-batch training.
        transport: connects the ranks. None: the process group of `torch.distributed` if the program has initialised one,
            else this process alone.
        exchange: how halo rows of a Part are sent, by name or as an object.
        swapped: parts of the Graph for exact full-batch training that computes one part at a time, activations in files.
        features: how features on disk are read if they exceed their share of memory.
        checkpoints: folder of the last checkpoints (every epoch, `last.safetensors`) and the best one. None: none.
        setting: the graph of full-batch training without a sampler: `transductive`, or `inductive` for training nodes only.

    The other arguments are settings (`shoal train --help` lists them). `loss` and `metric` may be functions of
    (logits, y): a loss returns one number per node, a metric one number. `optimizer` may be an optimizer of torch, or a class
    or function that makes one from the parameters; `schedule` a function from the epoch to the factor on the learning rate.
    `train_step` is one step, for your own loops.

    Attributes:
        history: the records of all epochs so far, a list; `to_pandas()` makes a table of it, `plot()` a figure.
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
        swapped: Partition | None = None,
        setting: str = "transductive",
        features: FeatureCaching | None = None,
        optimizer: Optimizing = "adam",
        lr: Annotated[float, Above(0), "learning rate"] = 0.01,
        schedule: Schedule = "constant",
        warmup: Annotated[int, AtLeast(0), "epochs in which the learning rate rises"] = 0,
        weight_decay: Annotated[float, Range(0, said="0 or more"), "L2 penalty on weights"] = 0.0,
        loss: ChosenLoss = None,
        class_weights: Annotated[
            str | Sequence[float] | None, Null("none"), "balanced, or one factor for each class's loss"
        ] = None,
        prior_bias: PriorBias = False,
        clip: Annotated[float | None, Above(0), Null("no limit"), "largest gradient norm"] = None,
        label_reuse: ShownShare = None,
        label_iterations: Iterations = 0,
        ema: Annotated[
            float | None, Rate, Null("none"), "decay of the moving average of weights used in evaluation"
        ] = None,
        patience: Annotated[
            int | None, AtLeast(1), Null("never"), "evaluations without a better score after which to stop"
        ] = None,
        eval_every: Annotated[
            int | None,
            AtLeast(1),
            Null("1, on large graphs as eval_share allows"),
            "epochs between evaluations",
        ] = None,
        eval_share: EvalShare = 0.1,
        eval_sample: EvalSample = None,
        metric: Deciding = None,
        sampling_threads: Annotated[
            int, Range(0, MAX_THREADS), "threads that prefetch batches; results do not depend on it"
        ] = 0,
        history: Annotated[
            bool,
            "read neighbours outside a batch from histories of activations (GAS; layered samplers: VR-GCN)",
        ] = False,
        callbacks: Annotated[Sequence[str | Callback] | Callback, "callbacks by name or as objects"] = (),
        checkpoint_minutes: Annotated[
            float | None, Above(0), Null("none"), "minutes between checkpoints inside an epoch"
        ] = 10.0,
        keep_checkpoints: Annotated[int, Range(1, 100), "number of last checkpoints to keep"] = 2,
        checkpoints: str | Path | None = None,
    ) -> None:
        check_fit(model, graph, reuses_labels=label_reuse is not None)
        self.model = model
        self.transport = transport if transport is not None else default_transport()
        reuse = make_reuse(model, graph, sampler, label_reuse, label_iterations)
        chosen = (exchange, swapped, setting, history, reuse)
        self.share = make_share(model, graph, sampler, self.transport, *chosen)
        self.graph, self.sampler = self.share.graph, self.share.sampler
        self.optimizer = make_optimizer(optimizer, list(model.parameters()), lr=lr, weight_decay=weight_decay)
        self.rates = LearningRates(self.optimizer, schedule)
        self.schedule, self.warmup, self.clip = schedule, warmup, clip
        self.task = Task(self.graph, loss, class_weights, self.share.sum)
        self.sampling_threads = sampling_threads
        self.patience, self.eval_every, self.eval_share = patience, eval_every, eval_share
        self.features = features if features is not None else FeatureCaching()
        self._stream = BatchStream(self.sampler, num_threads=sampling_threads, caching=self.features)
        self.callbacks = make_callbacks(callbacks)
        self._batch_callbacks = [one for one in self.callbacks if type(one).on_batch is not Callback.on_batch]
        self.history, self.profile = History(), StepProfile(model, self.share.ledger)
        self.checkpoints = None if checkpoints is None else Path(checkpoints).expanduser()
        self.keep_checkpoints = keep_checkpoints
        self.weights = KeptWeights(model, ema, partial(self.share.measure_norms, model))
        self.asked = Interruption(checkpoint_minutes)
        self.notices: list[str] = []  # of `resume`
        self.unreadable: list[Path] = []  # damaged checkpoints, newer than the one it resumed from
        self.metrics = [] if metric is None else [metric]
        self.metric = choose_metric(metric, self.graph)
        self.eval_sample = draw_sample(self.share, "val", eval_sample, self.metric)
        self.epoch = self.epochs = self.step = self.best_epoch = 0
        self.best_score = worst_score(self.metric)
        self._resumed: EpochState | None = None  # of the epoch that a checkpoint was written in
        self._stopped = False
        start_weights(model, self.share, prior_bias=prior_bias, class_weights=self.task.class_weights)
        self._bucket = GradientBucket(model, self.transport)
        self.share.prepare(model)

    def fit(
        self, epochs: int, on_epoch: Callable[[Record], None] | None = None, *, progress: bool | None = None
    ) -> list[Record]:
        """Train up to epoch `epochs`, or until patience ends. Returns the records of the trained epochs.

        At the end the model has the weights of the best evaluation. Another call continues from the last weights.

        Args:
            epochs: number of the last epoch; earlier calls and a resumed checkpoint count.
            on_epoch: called with the record of every epoch: epoch, loss, seconds, nodes_per_second; val_<metric> if evaluated.
            progress: whether to show a bar (lines in a pipe). None: in a notebook or on a terminal, without `on_epoch`.
        """
        if not isinstance(epochs, SupportsIndex) or epochs < 1:
            raise ShoalError(f"epochs is {epochs!r}: expected at least 1, a whole number")
        self.share.settle_memory()
        self.epochs, self._stopped = epochs, False
        self.weights.take_up()
        self.share.begin(epochs, saves=self.checkpoints is not None)
        self.asked.begin(self.transport, saves=self.checkpoints is not None)
        try:
            for callback in self.callbacks:
                callback.on_start(self)
            with show_epochs(self, progress, on_epoch) as shown:
                records = self._fit(epochs, shown)
            self.share.end()
        finally:
            self._stream.close()
            self.share.release()
            for callback in self.callbacks:
                callback.on_close(self)
        for callback in self.callbacks:
            callback.on_end(self)
        return records

    def _fit(self, epochs: int, on_epoch: Callable[[Record], None] | None) -> list[Record]:
        records, has_val = list[Record](), self.has_nodes("val")
        ends = has_val and self.eval_every is None  # the last epoch is always evaluated
        while self.epoch < epochs and not self.is_out_of_patience() and not self._stopped:
            record = self.train_epoch(scale_learning_rate(self.schedule, self.epoch, epochs, self.warmup))
            if (ends and self.epoch == epochs) or (has_val and self.epoch % self.eval_interval == 0):
                record |= self.evaluate_epoch()
            records.append(record)
            self.history.append(record)
            for callback in self.callbacks:
                callback.on_epoch(self, record)
            if self.callbacks and self.transport.size > 1:  # any rank can stop all
                self._stopped = bool(self.transport.sum(torch.tensor([int(self._stopped)])))
            if ends and self._stopped and "eval_seconds" not in record:
                record |= self.evaluate_epoch()
            if on_epoch is not None:  # before the checkpoint, so that no record is missing after a resume
                on_epoch(record)
            self.share.align_buffers(self.model)
            if self._stopped or self.epoch == epochs:
                self.weights.measure_result()  # before the checkpoint, so that it has them
            if self.checkpoints is not None:
                save_last(self, self.checkpoints, self.keep_checkpoints)
        self.switch_to_best()
        return records

    def stop(self) -> None:
        """End `fit` after the current epoch; for callbacks."""
        self._stopped = True

    def train_epoch(self, lr_factor: float = 1.0, batches: Iterator[Batch] | None = None) -> Record:
        """Train one epoch without evaluation; returns its record.

        Args:
            lr_factor: factor on the learning rate.
            batches: the batches of the epoch. None: the sampler's.
        """
        self.rates.scale(lr_factor)
        done, self._resumed = self._resumed or EpochState(), None
        self.step = self.epoch * self.sampler.num_batches + done.batches
        started, compiled = time.perf_counter() - done.seconds, compile_seconds()
        for batch in self.batches(done.batches) if batches is None else batches:
            with self.profile.watching(self.epoch + 1):
                loss = self.train_step(batch)
            done.add(loss, batch.num_nodes)
            for callback in self._batch_callbacks:
                callback.on_batch(self, batch, loss)
            if self.asked.is_due:
                done.seconds = time.perf_counter() - started
                self._heed(done)
        done.seconds = time.perf_counter() - started
        self.epoch += 1
        lr, compiling = self.optimizer.param_groups[0]["lr"], compile_seconds() - compiled
        record = done.to_record(self.epoch, lr, compiling) | self._stream.take_counts()
        return record | self.share.take_costs(self.epoch, done.nodes, done.seconds)

    def train_step(self, batch: Batch) -> float:
        """One optimizer step; every rank passes its own batch. Returns the step's loss.

        Dropout depends on the batch's number, or on the step number if the batch is fixed; that of torch on the sampler's seed and the rank too.

        Args:
            batch: a batch of any sampler.
        """
        if not self.model.training:
            self.model.train()
        batch.step = self.step if batch.fixed else batch.index
        self.optimizer.zero_grad()
        with self.share.stepping(batch.step), seeded(self.sampler.seed, batch.step, self.transport.rank):
            loss = self.share.differentiate(self.model, batch, self.task.measure)
        value = self._join_ranks(loss)
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        self.step += 1
        self.weights.follow_step(self.step)
        return value

    def _join_ranks(self, loss: Tensor) -> float:
        """Sum loss and gradients over the ranks. The loss is one number, so its time is waiting for the slowest rank."""
        asks = self.asked.tell(keeps_time=self.transport.rank == 0)
        if self.transport.size == 1:
            self.asked.hear(asks)
            return float(loss)
        total, ledger = torch.tensor([float(loss), asks], dtype=torch.float64), self.share.ledger
        with ledger.timing(IDLE):
            self.transport.phase = f"the loss of epoch {self.epoch + 1}"
            self.transport.sum(total)
            self.asked.hear(int(total[1]))
        with ledger.timing(REDUCE):
            self.transport.phase = f"the gradients of epoch {self.epoch + 1}"
            self._bucket.sum()
        return float(total[0])

    def _heed(self, done: EpochState) -> None:
        """Write a checkpoint inside an epoch, on all ranks after the same step, and stop after a signal."""
        if self.checkpoints is not None and self.asked.saves:
            save_last(self, self.checkpoints, self.keep_checkpoints, done)
            self.transport.barrier()  # no rank may exit before the checkpoint is written
        self.asked.obey()

    def switch_to_best(self) -> None:
        """Load the weights of the best evaluation into the model. Another `fit` continues from the last weights."""
        self.weights.set_aside()

    def is_out_of_patience(self) -> bool:
        """Whether the last `patience` evaluations brought no better score."""
        if self.patience is None or self.best_epoch == 0:
            return False
        return self.epoch - self.best_epoch >= self.patience * self.eval_interval

    @cached_property
    def eval_interval(self) -> int:
        """Epochs between evaluations: `eval_every`, or such that evaluations take at most `eval_share` of the work."""
        return self.eval_every or choose_interval(self.share, self.model, self.eval_share, self.eval_sample)

    def batches(self, first: int = 0) -> Iterator[Batch]:
        """The epoch's batches. Threads prefetch the next epoch's batches during evaluation.

        Args:
            first: number of the first batch in the epoch.
        """
        if not self.share.can_prefetch:
            return self.share.batches(self.epoch, first)
        count = self.sampler.num_batches
        drawn = self._stream.take(self.epoch * count + first, count - first)
        return self.share.ledger.time_each(SAMPLING, drawn)

    def evaluate_epoch(self) -> Record:
        """Evaluate the validation nodes and keep the weights if they are the best. Returns scores and seconds."""
        started, compiled = time.perf_counter(), compile_seconds()
        self.share.align_buffers(self.model)
        with self.weights.averaged():
            scores = self.evaluate("val", sample=self.eval_sample)
            record: Record = {f"val_{name}": value for name, value in scores.items()}
            record["eval_seconds"] = spent = time.perf_counter() - started
            record["eval_compile_seconds"] = min(compile_seconds() - compiled, spent)
            score = self.share.agree(scores[self.metric])
            if is_better(self.metric, score, self.best_score):
                self.best_score, self.best_epoch = score, self.epoch
                self.weights.keep_best()
                if self.checkpoints is not None and self.transport.rank == 0:
                    save_checkpoint(self.checkpoints / BEST, self.model.state_dict())
        return record
