"""load_run: a trained run for prediction, on its graph or on another with the same features."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from shoal.datasets import load
from shoal.datasets.importers import detect_format
from shoal.datasets.places import find_path
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.names import name_classes
from shoal.notebook import show_facts
from shoal.runs.data import check_data, hold_whole_graph, make_paths_absolute
from shoal.runs.folder import CONFIG, read_run_config
from shoal.runs.run import Run
from shoal.store import is_stored_graph
from shoal.training.records import History
from shoal.training.trainer import Trainer


class TrainedRun:
    """A run with the weights of its best epoch. `load_run` makes it.

    Methods take another `graph` with the same features instead of the run's own: a Graph, an argument of `shoal.load`, or
    a PyG `Data` object. New nodes and new edges need no training. New tables are encoded like those of the run. Methods
    return NumPy arrays; the trainer's methods of the same names return tensors.

    Args:
        run: the run, opened with its last checkpoint.

    Attributes:
        folder, config: the run's folder and configuration.
        graph, model, trainer: the run's graph, model and trainer. `trainer.fit` continues from the last epoch and does not
            change the folder.
        notices: notices from opening the run, one sentence each.
    """

    def __init__(self, run: Run) -> None:
        assert isinstance(run.data.graph, Graph)
        self.folder, self.config = run.folder, run.config
        self.graph: Graph = run.data.graph
        self.trainer: Trainer = run.trainer
        self.model: nn.Module = run.trainer.model
        self.notices = run.notices

    @property
    def history(self) -> History:
        """One record per epoch: epoch, loss, seconds, and val_<metric> if it was evaluated."""
        return self.trainer.history

    @property
    def best_epoch(self) -> int:
        """The epoch whose weights are loaded; 0 if none was evaluated and the last weights are loaded."""
        return self.trainer.best_epoch

    def predict(self, graph: Any = None, *, names: bool = True) -> np.ndarray:
        """Every node's class, (num_nodes,), by name if the graph has class names, as in NodeClassifier.

        It is a 0/1 matrix for multi-label graphs, and numbers for a regression. `trainer.predict` returns class numbers as
        a tensor.

        Args:
            graph: another graph with the same features. None: the run's own.
            names: whether to return class names. False: class numbers, positions in `graph.class_names`.
        """
        numbers = self.trainer.predict(graph=find_graph(graph, self.graph)).numpy()
        return name_classes(numbers, self.graph.class_names) if names else numbers

    def predict_proba(self, graph: Any = None) -> np.ndarray:
        """Every node's probability of each class, (num_nodes, num_classes).

        Args:
            graph: another graph with the same features. None: the run's own.
        """
        return self.trainer.predict_proba(graph=find_graph(graph, self.graph)).numpy()

    def embed(self, graph: Any = None) -> np.ndarray:
        """Every node's embedding, (num_nodes, embedding_width).

        Args:
            graph: another graph with the same features. None: the run's own.
        """
        return self.trainer.embed(graph=find_graph(graph, self.graph)).numpy()

    def evaluate(self, split: str = "test", graph: Any = None) -> dict[str, float]:
        """Scores on a split's nodes. If another graph has no split, all its labelled nodes are test nodes.

        Args:
            split: `train`, `val` or `test`.
            graph: another graph with the same features. None: the run's own.
        """
        return self.trainer.evaluate(split, graph=find_graph(graph, self.graph))

    def __repr__(self) -> str:
        said = f"model {self.config.model.name}, epoch {self.trainer.epoch}, best {self.best_epoch}"
        return f"TrainedRun({str(self.folder)!r}, {self.graph.name!r}, {said})"

    def _repr_html_(self) -> str:
        """The run's folder and its trainer as an HTML table."""
        return show_facts("TrainedRun", {"folder": str(self.folder), **self.trainer.list_facts()})


def load_run(folder: str | Path, *, data: str | Path | None = None) -> TrainedRun:
    """Open a finished or interrupted run with the weights of its best epoch, in this process alone.

        run = shoal.load_run("runs/first")
        run.evaluate("test")
        run.predict_proba(graph=new_graph)

    Args:
        folder: the run folder.
        data: the run's graph, if it has moved since, or if the run was trained on stored parts. It must be the same graph.
            None: as in the run's configuration.
    """
    folder = Path(os.path.expanduser(folder))
    config = read_run_config(folder)
    if data is not None:
        config.data = str(data)
        make_paths_absolute(config)
    hold_whole_graph(config)
    check_data(config, folder / CONFIG)
    run = Run(folder, config, to_train=False)
    if not run.has_checkpoint:
        raise ShoalError(explain_untrained(folder))
    run.resume()
    run.trainer.checkpoints = None
    run.trainer.switch_to_best()
    return TrainedRun(run)


def explain_untrained(folder: Path) -> str:
    """The message for a run without a checkpoint."""
    return f"{folder} has no checkpoint yet: train it first with `shoal train --resume {folder}`"


def find_graph(data: Any, like: Graph | None = None, **options: Any) -> Graph | None:
    """A Graph from a Graph, a PyG `Data` object, or an argument of `shoal.load`; None for None.

    Tables are encoded like those of `like`, and are directed if it is.
    """
    if data is None or isinstance(data, Graph):
        return data
    if not isinstance(data, str | Path):
        return Graph.from_pyg(data)
    path = find_path(data)
    is_table = path is not None and not is_stored_graph(path) and detect_format(path) == "table"
    if like is not None and is_table:
        options = {"directed": like.directed, **options}
        options |= {} if like.encoding is None else {"like": options.get("like", like)}
    return load(data, **options)
