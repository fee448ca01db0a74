"""A run: its folder (config.yaml, graph.json, metrics.jsonl, checkpoints) and how a configuration becomes a trainer."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from shoal.runs.config import RunConfig, read_config
from shoal.datasets import load
from shoal.datasets.places import check_place, find_graph, is_plain_name, is_stored
from shoal.home import home_folder
from shoal.datasets.registry import BUILT_IN
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import replace_file
from shoal.graph import Graph
from shoal.kernels.plan import explain_products
from shoal.models.gnn import GNN, parse_orders
from shoal.sampling.registry import default_options, make_sampler
from shoal.threads import set_threads
from shoal.training.trainer import Record, Trainer, check_trainable

CONFIG = "config.yaml"
GRAPH = "graph.json"
METRICS = "metrics.jsonl"
PLAN = "plan.txt"
CHECKPOINTS = "checkpoints"


class Run:
    """A run folder and the graph, model and trainer that its configuration describes.

    `notices` says what this run did to the graph; what its import said long ago is not repeated.
    """

    writes = True  # whether this process writes the folder; of several ranks one does

    def __init__(self, folder: Path, config: RunConfig) -> None:
        config.validate()
        self.folder = folder
        self.config = config
        self._made_folder = False
        set_threads(config.training.threads)
        loaded = load(config.data, **config.data_options)
        self.graph = with_split(loaded)
        self.notices = self.graph.notices[len(loaded.notices) if is_data_stored(config.data) else 0 :]
        if (folder / GRAPH).is_file():
            self._check_graph()
        self.trainer = make_trainer(config, self.graph, folder / CHECKPOINTS)

    @classmethod
    def create(cls, folder: Path, config: RunConfig) -> Run:
        """Start a new run. Everything is checked before the folder is made, which holds every setting."""
        if folder.exists():
            raise ShoalError(f"{folder} exists already: choose another --out, or continue it with --resume")
        check_place(folder)
        make_paths_absolute(config)
        run = cls(folder, config)
        fill_defaults(config)
        run.make_folder()
        return run

    def make_folder(self) -> None:
        """Make the folder of a new run, with every setting and what tells its graph from another."""
        with explain_full_disk(self.folder):
            self.folder.mkdir(parents=True)
            self._made_folder = True
            with self._remove_unless_trained():
                (self.folder / CONFIG).write_text(self.config.to_yaml())
                (self.folder / GRAPH).write_text(json.dumps(self.identify(), indent=2) + "\n")

    def identify(self) -> dict[str, Any]:
        """What tells the run's graph from another one under the same path."""
        return identify(self.graph)

    def describe(self) -> str:
        """The graph in a line."""
        graph = self.graph
        sizes = f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges"
        return f"{graph.name}: {sizes}, {graph.num_features:,} features, {graph.num_classes} classes"

    @classmethod
    def open(cls, folder: Path, *, epochs: int | None = None) -> Run:
        """Open a run that was started before, with its last checkpoint loaded."""
        if not (folder / CONFIG).is_file():
            seeds = sorted(path.name for path in folder.glob("seed-*"))
            hint = f"; it holds repeated runs, name one: {folder / seeds[0]}" if seeds else ""
            raise ShoalError(f"{folder} is not a run folder: it has no {CONFIG}{hint}")
        config = read_config(folder / CONFIG)
        if epochs is not None:
            config.training.epochs = epochs
        _check_data(folder, config.data)
        run = cls(folder, config)
        if run.has_checkpoint:
            run.trainer.resume(folder / CHECKPOINTS)
        return run

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is something to resume from."""
        return (self.folder / CHECKPOINTS / "last.safetensors").is_file()

    def train(self, on_epoch: Callable[[Record], None] | None = None) -> dict[str, float]:
        """Train to the end, writing metrics as they come; returns and writes the test scores.

        A new run that ends before its first checkpoint leaves no folder.
        """
        with explain_full_disk(self.folder, self._say_kept), self._remove_unless_trained():
            return self._train(on_epoch)

    def _train(self, on_epoch: Callable[[Record], None] | None) -> dict[str, float]:
        self._replace(CONFIG, self.config.to_yaml())  # resuming may have asked for more epochs
        self._keep_metrics(self.trainer.epoch)

        def write(record: Record) -> None:
            self._append(record)
            if on_epoch is not None:
                on_epoch(record)

        self.trainer.fit(self.config.training.epochs, write)
        self._replace(PLAN, "\n".join(self.explain()) + "\n")
        final: Record = {"best_epoch": self.trainer.best_epoch}
        if self.trainer.has_nodes("test"):
            final |= {f"test_{name}": value for name, value in self.trainer.evaluate("test").items()}
        self._append(final)
        return final

    def summarize_memory(self) -> str | None:
        """What training took of the ranks' memory; None where one process trained."""
        return None

    def explain_end(self) -> str | None:
        """Why there is nothing left to train and what to change; None if there is."""
        trainer, asked = self.trainer, self.config.training.epochs
        if trainer.epoch >= asked:
            return f"all {trainer.epoch:,} epochs are trained: give a larger --epochs to go on"
        if trainer.is_out_of_patience():
            return (
                f"stopped by patience in epoch {trainer.epoch:,}, nothing left to train: "
                f"give a larger training.patience in {self.folder / CONFIG} to go on"
            )
        return None

    def explain(self) -> list[str]:
        """What the scheduler decided: the order of products in each layer, the variant of each kind of product."""
        return [*self.trainer.model.explain(self.trainer.sampler.sample(0)), *explain_products()]

    @contextmanager
    def _remove_unless_trained(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            if self._made_folder and not self.has_checkpoint:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _say_kept(self) -> str:
        if not self.has_checkpoint:
            return "nothing was left there"
        return f"what was trained is kept, `shoal train --resume {self.folder}` goes on"

    def _check_graph(self) -> None:
        """Refuse to go on with another graph than the run began with."""
        found = self.identify()
        try:
            began = json.loads((self.folder / GRAPH).read_text())
            began.setdefault("content", found["content"])  # older runs do not tell
            began = {key: type(value)(began[key]) for key, value in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ShoalError(
                f"{self.folder / GRAPH} is damaged: expected JSON with {', '.join(found)}; without the file the graph is not checked"
            ) from None
        differ = {
            "checksum": "its edges or its split differ",
            "content": "its features, its labels or its split differ",
        }
        for key in ("num_nodes", "num_features", "num_classes", *differ):
            if began[key] != found[key]:
                said = differ.get(key)
                if said is None:
                    said = f"it has {found[key]:,} {key.removeprefix('num_')} where the run began with {began[key]:,}"
                raise ShoalError(
                    f"{self.folder} was trained on another graph than {self.config.data} is now: {said}; put the graph back, or start a new run"
                )

    def _append(self, record: Record) -> None:
        if self.writes:
            with open(self.folder / METRICS, "a") as file:
                file.write(json.dumps(record) + "\n")

    def _keep_metrics(self, epoch: int) -> None:
        """Drop records past the checkpoint that training resumes from."""
        path = self.folder / METRICS
        if path.is_file():
            kept = [line for line in read_metrics(path) if line.get("epoch", epoch + 1) <= epoch]
            self._replace(METRICS, "".join(json.dumps(line) + "\n" for line in kept))

    def _replace(self, name: str, text: str) -> None:
        if self.writes:
            with replace_file(self.folder / name) as scratch:
                scratch.write_text(text)


def read_metrics(path: Path) -> list[Record]:
    """The records of a metrics.jsonl; a last line cut short by a kill is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def identify(graph: Graph) -> dict[str, Any]:
    """What tells a run's graph from another one under the same path."""
    sizes = {name: getattr(graph, name) for name in ("num_nodes", "num_features", "num_classes")}
    return {"name": graph.name, "checksum": graph.checksum, "content": graph.content_checksum, **sizes}


def fill_defaults(config: RunConfig) -> None:
    """Put in what was left to the defaults of the sampler and the model, so that the file shows every setting."""
    if config.method == "sampled" or config.partition.sampled:
        config.sampler.options = default_options(config.sampler.name) | config.sampler.options
    if config.model.orders is None:
        config.model.num_layers = len(parse_orders(None, config.model.num_layers))


def make_paths_absolute(config: RunConfig) -> None:
    """Name the data's files in full, so that the run can be opened from any folder."""
    config.data = _make_absolute(config.data)
    if isinstance(nodes := config.data_options.get("nodes"), str):
        config.data_options["nodes"] = _make_absolute(nodes)


def _make_absolute(data: str) -> str:
    """An existing path in full; a name stays a name."""
    path = Path(data).expanduser()
    return os.path.abspath(path) if path.exists() else data


def _find_data(data: str) -> Path | None:
    """Where `load` finds the graph; None for one that is embedded or gone."""
    path = Path(data).expanduser()
    if path.exists():
        return path
    return None if data in BUILT_IN else find_graph(data)


def is_data_stored(data: str) -> bool:
    path = _find_data(data)
    return path is not None and is_stored(path)


def _check_data(folder: Path, data: str) -> None:
    """Refuse a run whose data is gone, saying where it was looked for."""
    if data in BUILT_IN or _find_data(data) is not None:
        return
    where = data
    if is_plain_name(data):
        where = f"{data} in $SHOAL_DATA and {home_folder() / 'graphs'}"
    raise ShoalError(
        f"the data of run {folder} was not found: looked for {where}; put it back, or change `data` in {folder / CONFIG}"
    )


def with_split(graph: Graph) -> Graph:
    """The graph a run trains on, with a drawn split if it has none."""
    check_trainable(graph)
    return graph if graph.has_split else graph.with_split(seed=0)


def make_trainer(config: RunConfig, graph: Graph, checkpoints: Path | None = None) -> Trainer:
    """The trainer a configuration describes. The seed decides the initial weights and every batch."""
    config.validate()
    training = config.training
    options: dict[str, Any] = {"setting": training.setting, "seed": training.seed}
    if config.method != "sampled":
        sampler = make_sampler("full", graph, **options)
    else:
        sampler = make_sampler(config.sampler.name, graph, **options, **config.sampler.options)
    model = make_model(config, graph.num_features, graph.num_classes)
    return Trainer(model, graph, sampler, checkpoints=checkpoints, **trainer_settings(config))


def make_model(config: RunConfig, num_features: int, num_classes: int) -> GNN:
    """The model a configuration describes."""
    settings = asdict(config.model)
    name, hidden = settings.pop("name"), settings.pop("hidden")
    return GNN(name, num_features, hidden, num_classes, seed=config.training.seed, **settings)


def trainer_settings(config: RunConfig) -> dict[str, Any]:
    """What of the training's settings the trainer takes."""
    kept = {"epochs", "setting", "seed", "threads"}  # what others than the trainer need
    return {name: value for name, value in asdict(config.training).items() if name not in kept}
