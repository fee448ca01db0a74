"""Trainer: one loop for every way of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shoal.batch import Batch
from shoal.distributed.gradients import (
    average_buffers,
    average_gradients,
    average_number,
    broadcast_weights,
    get_rank,
)
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.kernels.adam import FusedAdam
from shoal.memory import keep_freed_memory
from shoal.models.gnn import GNN
from shoal.runs.config import TrainingConfig
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler
from shoal.sampling.prefetch import Prefetcher
from shoal.sampling.shard import ShardedSampler
from shoal.training.checkpoint import load_checkpoint, save_checkpoint
from shoal.training.inference import classify_nodes, embed_nodes
from shoal.training.loss import compute_loss, weigh_classes
from shoal.training.metrics import known_metrics, score_predictions
from shoal.training.schedule import scale_learning_rate

SPLITS = ("train", "val", "test")
Record = dict[str, Any]


def check_trainable(graph: Graph) -> None:
    """Refuse a graph without features or labels; a split can be drawn."""
    lacks = [
        what for what, there in (("features", graph.num_features), ("labels", graph.num_classes)) if not there
    ]
    if lacks:
        raise ShoalError(
            f"graph {graph.name!r} has no {' and no '.join(lacks)}: training needs features and labels"
        )


class Trainer:
    """Trains `model` on batches that `sampler` draws, evaluates on the full graph.

    In a process group of R ranks (`torch.distributed`) every rank draws its own batches, the gradients are
    averaged, and all ranks hold the same weights: a step works on R batches. Rank 0 writes checkpoints.

    Args:
        sampler: full-batch training if None.
        optimizer, lr, weight_decay: `"adam"` or `"adamw"` and its settings.
        schedule, warmup: how the learning rate changes over the epochs (`training/schedule.py`).
        class_weights: one number a class, or `"balanced"`: every class counts the same.
        clip: largest gradient norm, None for no limit.
        patience: stop after this many evaluations without a better validation score, None for never.
        eval_every: epochs between evaluations; without any, the last weights are the result.
        metric: the validation score that decides which weights are best; micro F1 for several labels a node,
            accuracy for one, if None.
        sampling_threads: threads that draw batches ahead of the step (0: none); the run is the same.
        checkpoints: folder for `last.safetensors` (every epoch) and `best.safetensors`, None for none.
    """

    def __init__(
        self,
        model: GNN,
        graph: Graph,
        sampler: Sampler | None = None,
        *,
        optimizer: str = "adam",
        lr: float = 0.01,
        schedule: str = "constant",
        warmup: int = 0,
        weight_decay: float = 0.0,
        class_weights: str | Sequence[float] | None = None,
        clip: float | None = None,
        patience: int | None = None,
        eval_every: int = 1,
        metric: str | None = None,
        sampling_threads: int = 0,
        checkpoints: Path | None = None,
    ) -> None:
        check_trainable(graph)
        if graph.train_mask is None:
            raise ShoalError(f"graph {graph.name!r} has no split: training needs train_mask")
        TrainingConfig(
            optimizer=optimizer,
            lr=lr,
            schedule=schedule,
            warmup=warmup,
            weight_decay=weight_decay,
            clip=clip,
            patience=patience,
            eval_every=eval_every,
            metric=metric,
            sampling_threads=sampling_threads,
        ).validate()
        for what, takes, has in (
            ("features", model.in_features, graph.num_features),
            ("classes", model.num_classes, graph.num_classes),
        ):
            if takes != has:
                raise ShoalError(
                    f"the model is made for {takes:,} {what} but graph {graph.name!r} has {has:,}: make it with graph.num_{what}"
                )
        self.model = model
        self.graph = graph
        self.sampler = sampler if sampler is not None else FullSampler(graph)
        _check_same_graph(self.sampler, graph)
        self.rank, self.num_ranks = get_rank()
        if self.num_ranks > 1:
            if not self.sampler.is_for_one_rank:
                self.sampler = ShardedSampler(self.sampler, self.rank, self.num_ranks)
            broadcast_weights(model)
        self.optimizer = FusedAdam(
            model.parameters(), lr=lr, weight_decay=weight_decay, decoupled=optimizer == "adamw"
        )
        self.lr = lr
        self.schedule = schedule
        self.warmup = warmup
        self.class_weights = weigh_classes(graph, class_weights)
        self.clip = clip
        self.patience = patience
        self.eval_every = eval_every
        self.sampling_threads = sampling_threads
        self.checkpoints = checkpoints
        known = known_metrics(graph.num_classes, multi_label=graph.multi_label)
        self.metric = metric or ("f1_micro" if graph.multi_label else "accuracy")
        if self.metric == "roc_auc" and self.metric not in known:
            raise ShoalError(
                f"roc_auc needs two classes and graph {graph.name!r} has {graph.num_classes}: use {', '.join(known)}"
            )
        if self.metric not in known:
            raise unknown_name(f"score of graph {graph.name!r}", self.metric, known)
        self.epoch = 0
        self.best_epoch = 0
        self.best_score = float("-inf")
        self._whole = FullSampler(graph).sample(0)
        self._best_weights: dict[str, Tensor] | None = None
        self._last_weights: dict[str, Tensor] | None = None
        self._ahead: Prefetcher | None = None

    def fit(self, epochs: int, on_epoch: Callable[[Record], None] | None = None) -> list[Record]:
        """Train until epoch `epochs` (a resumed trainer goes on from where it was) or until patience ends.

        `on_epoch` receives every epoch's record: epoch, loss, seconds, nodes_per_second and, where the epoch
        was evaluated, val_<metric>. At the end the weights of the best evaluation are put in; another call
        goes on from the last ones.
        """
        if epochs < 1:
            raise ShoalError(f"epochs is {epochs}: expected at least 1")
        keep_freed_memory()
        self._take_last_weights()
        try:
            return self._fit(epochs, on_epoch)
        finally:
            if self._ahead is not None:
                self._ahead.close()
                self._ahead = None

    def _fit(self, epochs: int, on_epoch: Callable[[Record], None] | None) -> list[Record]:
        records = []
        has_val = self.has_nodes("val")
        while self.epoch < epochs and not self.is_out_of_patience():
            factor = scale_learning_rate(self.schedule, self.epoch, epochs, self.warmup)
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr * factor
            record = self._train_epoch()
            if has_val and self.epoch % self.eval_every == 0:
                self._evaluate_epoch(record)
            records.append(record)
            if (
                on_epoch is not None
            ):  # before the checkpoint: a record past it is dropped, a missing one is lost
                on_epoch(record)
            if self.checkpoints is not None and self.rank == 0:
                self.save(self.checkpoints / "last.safetensors")
        self._last_weights = self._copy_weights()
        self.restore_best()
        return records

    def evaluate(self, split: str = "test") -> dict[str, float]:
        """Scores on a split's nodes, computed on the full graph: `f1_micro`, `f1_macro`, and with one label a node
        `accuracy`, with two classes `roc_auc`."""
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        if not self.has_nodes(split):
            raise ShoalError(f"graph {self.graph.name!r} has no {split} nodes to evaluate on")
        return self._score(split)

    def has_nodes(self, split: str) -> bool:
        """Whether the graph has nodes to evaluate in a split."""
        mask = getattr(self.graph, f"{split}_mask")
        return mask is not None and bool(mask.any())

    def _score(self, split: str) -> dict[str, float]:
        mask = getattr(self.graph, f"{split}_mask")
        assert self.graph.y is not None
        logits = classify_nodes(self.model, self.embed()[torch.from_numpy(mask)])
        return score_predictions(logits, torch.from_numpy(self.graph.y[mask]))

    def embed(
        self, progress: Callable[[int, int], None] | None = None, *, out: Tensor | None = None
    ) -> Tensor:
        """Every node's embedding, (num_nodes, embedding_width), layer by layer in bounded memory.

        It is written to `out` where given, which may be mapped to a file.
        """
        return embed_nodes(self.model, self._whole, out=out, progress=progress)

    def predict(self, progress: Callable[[int, int], None] | None = None) -> Tensor:
        """Every node's predicted class, or 0/1 matrix for multi-label graphs."""
        logits = classify_nodes(self.model, self.embed(progress))
        return (logits > 0).to(torch.uint8) if self.graph.multi_label else logits.argmax(1)

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

    def restore_best(self) -> None:
        """Put back the weights of the best evaluation; fit does so at its end."""
        if self._best_weights is not None:
            self.model.load_state_dict(self._best_weights)

    def is_out_of_patience(self) -> bool:
        """Whether so many evaluations brought no better score that training has ended."""
        if self.patience is None or self.best_epoch == 0:
            return False
        return self.epoch - self.best_epoch >= self.patience * self.eval_every

    def _take_last_weights(self) -> None:
        """Undo `restore_best`: training goes on from the weights it stopped at."""
        if self._last_weights is not None:
            self.model.load_state_dict(self._last_weights)
            self._last_weights = None

    def _train_epoch(self) -> Record:
        self.model.train()
        started, nodes, losses = time.perf_counter(), 0, []
        first_step = self.epoch * self.sampler.num_batches
        for step, batch in enumerate(self._batches(), first_step):
            number = step if batch.fixed else batch.index
            loss = compute_loss(self.model(batch, number), batch, self.class_weights)
            self.optimizer.zero_grad()
            loss.backward()
            losses.append(self._join_step(loss.detach()))
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            self.optimizer.step()
            nodes += batch.num_nodes
        seconds = time.perf_counter() - started
        self.epoch += 1
        mean = self._join_number(sum(losses) / len(losses))
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
            **self._take_costs(seconds),
        }

    # -- what ranks do together; a way of sharing the work overrides it ------------------------------------

    def _join_step(self, loss: Tensor) -> float:
        """Make the gradients of a step those of all ranks; returns the loss to record."""
        if self.num_ranks > 1:
            average_gradients(self.model.parameters())
        return float(loss)

    def _join_number(self, value: float) -> float:
        """One number for all ranks, so that they decide alike whatever the rounding on each."""
        return average_number(value) if self.num_ranks > 1 else value

    def _join_buffers(self) -> None:
        """One state for all ranks of what layers have measured."""
        if self.num_ranks > 1:
            average_buffers(self.model)

    def _take_costs(self, seconds: float) -> Record:
        """What the epoch's record tells about communication."""
        return {}

    def _batches(self) -> Iterator[Batch]:
        """The epoch's batches. Threads go on to the next epoch's while this one is evaluated."""
        if self.sampling_threads == 0 or isinstance(self.sampler, FullSampler):
            return self.sampler.epoch(self.epoch)
        count = self.sampler.num_batches
        start = self.epoch * count
        if self._ahead is None:
            self._ahead = Prefetcher(self.sampler, start, num_threads=self.sampling_threads)
        assert self._ahead.position == start
        return islice(self._ahead, count)

    def _evaluate_epoch(self, record: Record) -> None:
        started = time.perf_counter()
        self._join_buffers()
        scores = self.evaluate("val")
        record |= {f"val_{name}": value for name, value in scores.items()}
        record["eval_seconds"] = time.perf_counter() - started
        score = self._join_number(scores[self.metric])
        if score > self.best_score:
            self.best_score, self.best_epoch = score, self.epoch
            self._best_weights = self._copy_weights()
            if self.checkpoints is not None and self.rank == 0:
                save_checkpoint(self.checkpoints / "best.safetensors", self.model.state_dict())

    def _copy_weights(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self.model.state_dict().items()}


def _check_same_graph(sampler: Sampler, graph: Graph) -> None:
    """Refuse a sampler of another graph, or of this one before it had its split: it would train on test labels."""
    drawn = sampler.graph
    while drawn.parent is not None:
        drawn = drawn.parent
    if drawn is not graph and (drawn.num_nodes != graph.num_nodes or drawn.checksum != graph.checksum):
        raise ShoalError(
            f"the sampler was made for another graph than {graph.name!r}, or before its split was drawn: make it from the graph the trainer gets"
        )
