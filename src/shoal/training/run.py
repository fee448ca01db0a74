"""A run: its folder (config.yaml, metrics.jsonl, checkpoints) and how a configuration becomes a trainer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from shoal.config import METHODS, RunConfig, read_config
from shoal.datasets import load
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.kernels.plan import explain_products
from shoal.models.gnn import GNN
from shoal.sampling.registry import make_sampler
from shoal.threads import set_threads
from shoal.training.trainer import Record, Trainer

CONFIG = "config.yaml"
METRICS = "metrics.jsonl"
PLAN = "plan.txt"
CHECKPOINTS = "checkpoints"


class Run:
    """A run folder and the graph, model and trainer that its configuration describes."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder = folder
        self.config = config
        set_threads(config.training.threads)
        self.graph = load_with_split(config)
        self.trainer = make_trainer(config, self.graph, folder / CHECKPOINTS)

    @classmethod
    def create(cls, folder: Path, config: RunConfig) -> Run:
        """Start a new run. Everything is checked before the folder is made."""
        if folder.exists():
            raise ShoalError(f"{folder} exists already: choose another --out, or continue it with --resume")
        run = cls(folder, config)
        folder.mkdir(parents=True)
        (folder / CONFIG).write_text(config.to_yaml())
        return run

    @classmethod
    def open(cls, folder: Path, *, epochs: int | None = None) -> Run:
        """Open a run that was started before, with its last checkpoint loaded."""
        if not (folder / CONFIG).is_file():
            raise ShoalError(f"{folder} is not a run folder: it has no {CONFIG}")
        config = read_config(folder / CONFIG)
        if epochs is not None:
            config.training.epochs = epochs
        run = cls(folder, config)
        if (folder / CHECKPOINTS / "last.safetensors").is_file():
            run.trainer.resume(folder / CHECKPOINTS)
        return run

    def train(self, on_epoch: Callable[[Record], None] | None = None) -> dict[str, float]:
        """Train to the end, writing metrics as they come; returns and writes the test scores."""
        self._keep_metrics(self.trainer.epoch)

        def write(record: Record) -> None:
            self._append(record)
            if on_epoch is not None:
                on_epoch(record)

        self.trainer.fit(self.config.training.epochs, write)
        (self.folder / PLAN).write_text("\n".join(self.explain()) + "\n")
        final: Record = {"best_epoch": self.trainer.best_epoch}
        if self.graph.test_mask is not None and self.graph.test_mask.any():
            final |= {f"test_{name}": value for name, value in self.trainer.evaluate("test").items()}
        self._append(final)
        return final

    def explain(self) -> list[str]:
        """What the scheduler decided: the order of products in each layer, the variant of each kind of product."""
        return [*self.trainer.model.explain(self.trainer.sampler.sample(0)), *explain_products()]

    def _append(self, record: Record) -> None:
        with open(self.folder / METRICS, "a") as file:
            file.write(json.dumps(record) + "\n")

    def _keep_metrics(self, epoch: int) -> None:
        """Drop records past the checkpoint that training resumes from."""
        path = self.folder / METRICS
        if path.is_file():
            kept = [line for line in read_metrics(path) if line.get("epoch", epoch + 1) <= epoch]
            path.write_text("".join(json.dumps(line) + "\n" for line in kept))


def read_metrics(path: Path) -> list[Record]:
    """The records of a metrics.jsonl; a last line cut short by a kill is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def load_with_split(config: RunConfig) -> Graph:
    """The run's graph, with a drawn split if it has none."""
    graph = load(config.data, **config.data_options)
    return graph if graph.has_split else graph.with_split(seed=0)


def make_trainer(config: RunConfig, graph: Graph, checkpoints: Path | None = None) -> Trainer:
    """The trainer a configuration describes. The seed decides the initial weights and every batch."""
    if config.method not in METHODS:
        raise unknown_name("method", config.method, METHODS)
    training = config.training
    options: dict[str, Any] = {"setting": training.setting, "seed": training.seed}
    if config.method == "full":
        sampler = make_sampler("full", graph, **options)
    else:
        sampler = make_sampler(config.sampler.name, graph, **options, **config.sampler.options)
    torch.manual_seed(training.seed)
    settings = asdict(config.model)
    model = GNN(
        settings.pop("name"), graph.num_features, settings.pop("hidden"), graph.num_classes, **settings
    )
    return Trainer(
        model,
        graph,
        sampler,
        lr=training.lr,
        weight_decay=training.weight_decay,
        clip=training.clip,
        patience=training.patience,
        eval_every=training.eval_every,
        sampling_threads=training.sampling_threads,
        checkpoints=checkpoints,
    )
