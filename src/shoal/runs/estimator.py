"""NodeClassifier and NodeRegressor: estimators in scikit-learn's style, configured like `shoal train`."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph
from shoal.models.hops import StackedGraph
from shoal.names import name_classes
from shoal.runs.build import make_trainer, note_settings
from shoal.runs.choose import leave_open, settle_method
from shoal.runs.config import FROM_GRAPH, RunConfig, update_config
from shoal.runs.data import prepare_graph
from shoal.runs.defaults import follow_graph
from shoal.runs.sections import Section
from shoal.runs.trained import find_graph
from shoal.training.records import History
from shoal.training.trainer import Trainer

_NAMED = ("model", "method", "sampler", "epochs", "seed")


class NodeEstimator:
    """The base of NodeClassifier and NodeRegressor: settings, `fit` and embeddings."""

    def __init__(
        self,
        model: str | None = None,
        *,
        method: str | None = None,
        sampler: str | None = None,
        epochs: int | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self._parameters: dict[str, Any] = dict(zip(_NAMED, (model, method, sampler, epochs, seed)))
        self._trainer: Trainer | None = None
        self.set_params(**settings)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments of the constructor.

        Args:
            deep: for scikit-learn; has no effect.
        """
        return dict(self._parameters)

    def set_params(self, **parameters: Any) -> Self:
        """Change arguments for the next `fit`.

        Args:
            parameters: arguments by name, as the constructor takes them.
        """
        sections = [name for name, value in RunConfig().items() if isinstance(value, Section)]
        for name in parameters:
            if name not in _NAMED and name.partition("__")[0] not in sections:
                raise unknown_name("argument", name, [*_NAMED, *(f"{one}__NAME" for one in sections)])
        self._parameters |= parameters
        return self

    def configure(self) -> RunConfig:
        """The configuration of a run with these arguments, before the graph decides the rest. Raises for unknown
        settings."""
        given = dict(self._parameters)
        model, method, sampler, epochs, seed = (given.pop(name) for name in _NAMED)
        config = RunConfig(method=method or RunConfig().method, defaults=FROM_GRAPH)
        if config.method not in ("sampled", "full"):
            raise ShoalError(
                f"method is {config.method!r}: expected sampled or full; use `shoal train` for the others"
            )
        named = (("model__name", model), ("sampler__name", sampler), ("training__epochs", epochs))
        for name, value in [*named, ("training__seed", seed), *given.items()]:
            if value is not None or name in given:
                section, _, key = name.partition("__")
                update_config(config, {section: {key: value}}, name)
        if method is None:
            leave_open(config)
        config.validate()
        return config

    def fit(self, graph: Any, y: Any = None, *, progress: bool | None = None) -> Self:
        """Train on a graph and keep the best weights.

        A split is drawn if the graph has none, as in `shoal train`.

        Args:
            graph: a Graph, what `shoal.load` takes, or a PyG `Data` object; labels are part of it.
            y: scikit-learn's; expected to be None.
            progress: whether to show a bar. None: in a notebook or on a terminal.
        """
        if y is not None:
            raise ShoalError(
                "fit was given a y: pass a graph, which has features and labels, such as fit(Graph.from_edge_index(edge_index, x=X, y=y))"
            )
        config = self.configure()
        found = find_graph(graph)
        if found is None:
            raise ShoalError("no graph was given: expected a Graph, such as shoal.load returns")
        if not config.training.edge_weights and found.edge_weight is not None:
            found = found.without_weights()
        prepared = prepare_graph(found)
        self._check_labels(prepared)
        self.notices_: tuple[str, ...] = (*follow_graph(config, prepared), *settle_method(config, prepared))
        trainer = make_trainer(config, prepared)
        self.notices_ += note_settings(config, trainer)
        trainer.fit(config.training.epochs, progress=progress)
        self._trainer, self.config_ = trainer, config
        return self

    def embed(self, graph: Any = None) -> np.ndarray:
        """Every node's embedding, (num_nodes, embedding_width).

        Args:
            graph: another graph with the same features. None: the one it was fitted on.
        """
        return self.trainer_.embed(graph=find_graph(graph, self.graph_)).numpy()

    def _predict(self, graph: Any) -> np.ndarray:
        return self.trainer_.predict(graph=find_graph(graph, self.graph_)).numpy()

    def _score(self, graph: Any, split: str, metric: str) -> float:
        return self.trainer_.evaluate(split, graph=find_graph(graph, self.graph_))[metric]

    def _check_labels(self, graph: Graph) -> None:
        """Raise if the labels are not for this kind of estimator."""

    @property
    def trainer_(self) -> Trainer:
        """The trainer after `fit`."""
        if self._trainer is None:
            raise ShoalError(f"this {type(self).__name__} is not fitted yet: call fit(graph) first")
        return self._trainer

    @property
    def model_(self) -> Any:
        """The trained model."""
        return self.trainer_.model

    @property
    def graph_(self) -> Graph:
        """The graph that was trained on, with its split."""
        graph = self.trainer_.graph
        return graph.source if isinstance(graph, StackedGraph) else graph

    @property
    def history_(self) -> History:
        """One record for every epoch."""
        return self.trainer_.history

    def __repr__(self) -> str:
        said = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items() if value is not None)
        return f"{type(self).__name__}({said})"


class NodeClassifier(NodeEstimator):
    """Classifies the nodes of a graph. Settings that are not given follow from the graph, as in `shoal train`.

        found = shoal.NodeClassifier().fit(graph)
        found.score()        # on the test nodes
        found.predict()      # every node's class, by name if the graph has class names
        found.predict(new)   # of another graph with the same features

    Args:
        model: name of the model. None: the one that fits the graph.
        method: `sampled` or `full`. None: the one that fits the graph.
        sampler: name of the sampler. None: the default.
        epochs: most epochs to train. None: as fits the graph.
        seed: random seed of initial weights and batches.
        settings: any other setting of `shoal train --set`, its dot written as two underscores: `model__hidden=64`,
            `training__lr=0.003`, `sampler__roots=500`.

    Attributes (after `fit`):
        classes_: the values that `predict` returns: class names, or class numbers.
        trainer_, model_, graph_, config_: trainer, model, graph and configuration of the training.
        notices_: what the graph decided.
        history_: the records of all epochs.
    """

    @property
    def classes_(self) -> np.ndarray:
        """Names of the classes, or their numbers if the graph has no class names."""
        names = self.graph_.class_names
        return np.arange(self.graph_.num_classes) if names is None else np.array(names)

    def predict(self, graph: Any = None, *, names: bool = True) -> np.ndarray:
        """Every node's class as in `classes_`; a 0/1 matrix for multi-label graphs.

        Args:
            graph: another graph with the same features. None: the one it was fitted on.
            names: whether to return class names. False: class numbers, positions in `classes_`.
        """
        numbers = self._predict(graph)
        return name_classes(numbers, self.graph_.class_names) if names else numbers

    def predict_proba(self, graph: Any = None) -> np.ndarray:
        """Every node's probability of each of `classes_`, (num_nodes, num_classes).

        Args:
            graph: another graph with the same features. None: the one it was fitted on.
        """
        return self.trainer_.predict_proba(graph=find_graph(graph, self.graph_)).numpy()

    def score(self, graph: Any = None, split: str = "test") -> float:
        """Accuracy on a split's nodes; micro F1 for multi-label graphs, or `training__metric`.

        If another graph has no split, all its labelled nodes are test nodes.

        Args:
            graph: another graph with the same features. None: the one it was fitted on.
            split: `train`, `val` or `test`.
        """
        return self._score(graph, split, self.trainer_.metric)

    def _check_labels(self, graph: Graph) -> None:
        if graph.regression:
            raise ShoalError(
                f"the labels of graph {graph.name!r} are numbers, not classes: use NodeRegressor"
            )


class NodeRegressor(NodeEstimator):
    """Predicts numbers for the nodes of a graph. Settings that are not given follow from the graph, as in `shoal train`.

    shoal.NodeRegressor().fit(graph).predict()

    Args:
        model: name of the model. None: the one that fits the graph.
        method: `sampled` or `full`. None: the one that fits the graph.
        sampler: name of the sampler. None: the default.
        epochs: most epochs to train. None: as fits the graph.
        seed: random seed of initial weights and batches.
        settings: any other setting of `shoal train --set`, its dot written as two underscores: `model__hidden=64`.
    """

    def predict(self, graph: Any = None) -> np.ndarray:
        """Every node's number, (num_nodes,), or numbers, (num_nodes, targets), in the labels' units.

        Args:
            graph: another graph with the same features. None: the one it was fitted on.
        """
        return self._predict(graph)

    def score(self, graph: Any = None, split: str = "test") -> float:
        """R², the share of explained variance, on a split's nodes.

        Args:
            graph: another graph with the same features. None: the one it was fitted on.
            split: `train`, `val` or `test`.
        """
        return self._score(graph, split, "r2")

    def _check_labels(self, graph: Graph) -> None:
        if not graph.regression:
            raise ShoalError(
                f"the labels of graph {graph.name!r} are classes, not numbers: use NodeClassifier"
            )
