"""Predictor: scores and predictions of a trained model, on its training graph or another with the same features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from shoal.distributed.transport import LocalTransport
from shoal.errors import ShoalError
from shoal.graph import MASKS, Graph, require_graph
from shoal.labels import describe_outputs, find_labelled
from shoal.models.calling import find_convention
from shoal.models.hops import StackedGraph
from shoal.scratch import Scratch
from shoal.training.evaluation import predict_split, score_split
from shoal.training.inference import has_embeddings
from shoal.training.metrics import score_predictions
from shoal.training.outcomes import tabulate_outcomes
from shoal.training.share import Progress, ReplicaShare, Share
from shoal.training.shares import check_weights
from shoal.training.split_sample import SplitSample
from shoal.training.task import Task
from shoal.training.weights import KeptWeights


class Predictor:
    """Scores, embeddings, classes and probabilities of nodes.

    Methods take another `graph` with the same features (new nodes, new edges). Only scores need its labels.
    """

    model: nn.Module
    graph: Graph
    share: Share
    task: Task
    weights: KeptWeights
    metrics: Sequence[str | Callable[..., float]]

    @property
    def last_weights(self) -> dict[str, Tensor]:
        """The weights of the last step. After `fit` the model has the best ones."""
        return self.weights.last or self.model.state_dict()

    def restore_best(self) -> None:
        """Load the weights of the best evaluation into the model; `fit` does so at its end."""
        self.weights.restore_best()

    def evaluate(
        self, split: str = "test", *, graph: Graph | None = None, sample: SplitSample | None = None
    ) -> dict[str, float]:
        """Scores on a split's nodes, computed on the full graph.

        These are `f1_micro` and `f1_macro`, for single-label graphs also `accuracy`, for two classes also `roc_auc`; for a
        regression `r2`, `mae` and `rmse`; and the trainer's own metric. If another graph has no split, all its labelled
        nodes are test nodes.

        Args:
            split: `train`, `val` or `test`.
            graph: another graph with the same features. None: the trainer's own.
            sample: nodes of the split to score; the result has the standard error of the metric. None: all nodes.
        """
        if graph is not None:
            graph = _prepare_scores(graph, self.graph)
        self._check_blind(split)
        with self.weights.averaged():
            share = self.find_share(graph)
            return score_split(share, self.model, split, self.metrics, self.task.targets, sample)

    def examine(self, split: str = "test") -> tuple[dict[str, float], dict[str, Any]]:
        """The scores of `evaluate`, and the outcomes they are computed from (`tabulate_outcomes`).

        Args:
            split: `train`, `val` or `test`.
        """
        self._check_blind(split)
        share = self.share
        with self.weights.averaged():
            predicted, y = predict_split(share, self.model, split, self.task.targets)
            scores = score_predictions(predicted, y, self.metrics, total=share.sum, collect=share.collect)
            nodes = share.count_nodes(split)
            return scores, tabulate_outcomes(
                predicted, y, total=share.sum, collect=share.collect, num_nodes=nodes
            )

    def _check_blind(self, split: str) -> None:
        """Raise if the split's labels are among the model's inputs."""
        if split == "train" and self.share.reuse is not None:
            raise ShoalError(
                "training nodes see their own labels, which are reused as input: score the val or test nodes"
            )

    def has_nodes(self, split: str) -> bool:
        """Whether the graph has nodes to evaluate in a split.

        Args:
            split: `train`, `val` or `test`.
        """
        return self.share.count_nodes(split) > 0

    def embed(
        self,
        progress: Progress | None = None,
        *,
        graph: Graph | None = None,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        """Every node's embedding, (num_nodes, embedding_width), computed layer by layer within the memory budget.

        On a Part these are the embeddings of its rows.

        Args:
            progress: called as `progress(done, total)` while layers are computed.
            graph: another graph with the same features. None: the trainer's own.
            out: tensor to write the result into, which may be mapped to a file. None: a new one.
            scratch: where activations are kept. None: in memory within the budget, beyond it in temporary files.
        """
        with self.weights.averaged():
            return self.find_share(graph).embed(self.model, progress, out, scratch)

    def predict(
        self,
        progress: Progress | None = None,
        *,
        graph: Graph | None = None,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        """Every node's predicted class, or a 0/1 matrix (multi-label) or numbers (regression); on a Part, of its rows.

        Args:
            progress: called as `progress(done, total)` while layers are computed.
            graph: another graph with the same features. None: the trainer's own.
            out: tensor to write the result into, which may be mapped to a file. None: a new one.
            scratch: where activations are kept. None: in memory within the budget, beyond it in temporary files.
        """
        take, share = self.task.decide, self.find_share(graph)
        with self.weights.averaged():
            return share.predict(self.model, progress=progress, take=take, out=out, scratch=scratch)

    def predict_proba(
        self,
        progress: Progress | None = None,
        *,
        graph: Graph | None = None,
        out: Tensor | None = None,
        scratch: Scratch | None = None,
    ) -> Tensor:
        """Every node's class probabilities, (num_nodes, num_classes): softmax of the logits, or sigmoid if multi-label.

        Args:
            progress: called as `progress(done, total)` while layers are computed.
            graph: another graph with the same features. None: the trainer's own.
            out: tensor to write the result into, which may be mapped to a file. None: a new one.
            scratch: where activations are kept. None: in memory within the budget, beyond it in temporary files.
        """
        if self.graph.regression:
            raise ShoalError(
                f"the labels of graph {self.graph.name!r} are numbers, which have no probabilities: predict the numbers instead"
            )
        take = torch.sigmoid if self.graph.multi_label else _softmax
        share = self.find_share(graph)
        with self.weights.averaged():
            return share.predict(self.model, progress=progress, take=take, out=out, scratch=scratch)

    def find_share(self, graph: Graph | None) -> Share:
        """The trainer's share, or for another graph a single-process share, after a check of its features.

        Args:
            graph: another graph with the same features. None: the trainer's own.
        """
        if graph is None:
            return self.share
        trained = self.graph.source if isinstance(self.graph, StackedGraph) else self.graph
        check_features(self.model, trained, graph)
        if (graph.edge_weight is None) != (trained.edge_weight is None):
            words = {True: "no edge weights", False: "edge weights"}
            raise ShoalError(
                f"graph {graph.name!r} has {words[graph.edge_weight is None]} and the model was trained with "
                f"{words[trained.edge_weight is None]}: give a graph like the one of training, or graph.without_weights()"
            )
        if graph.directed != trained.directed and graph.num_entries:
            words = {True: "directed", False: "undirected"}
            raise ShoalError(
                f"graph {graph.name!r} is {words[graph.directed]} and the model was trained on {words[trained.directed]} edges: "
                f"import it with --{words[trained.directed]}"
            )
        check_weights(self.model, graph)
        if isinstance(self.graph, StackedGraph):
            graph = self.graph.stack(graph)
        if self.share.reuse is not None and graph.y is not None:
            graph = graph.with_classes_of(trained)
        other = ReplicaShare(graph, None, LocalTransport())
        other.reuse = self.share.reuse
        other.scratch_folder = self.share.scratch_folder
        return other


def check_features(model: nn.Module, trained: Graph, graph: Graph) -> None:
    """Raise if a graph's features do not match those that the model was trained with."""
    require_graph(graph)
    if graph.num_features != trained.num_features:
        raise ShoalError(
            f"graph {graph.name!r} has {graph.num_features:,} features and the model was trained with "
            f"{trained.num_features:,}: give the same columns in the same order"
        )
    _check_columns(trained.encoding, graph)
    if has_embeddings(model) or find_convention(model).edges:  # such models take sparse and dense features
        return
    nobody = np.empty(0, np.int64)
    is_sparse, was_sparse = (sp.issparse(one.find_features(nobody)[0]) for one in (graph, trained))
    if is_sparse != was_sparse:
        words = {True: "sparse", False: "dense"}
        raise ShoalError(
            f"graph {graph.name!r} has {words[is_sparse]} features and {type(model).__name__} was trained with "
            f"{words[was_sparse]} ones: give x as {'a SciPy CSR matrix' if was_sparse else 'a dense matrix'}"
        )


def _check_columns(encoding: dict[str, Any] | None, graph: Graph) -> None:
    """Raise if features were encoded from a table's columns differently than `encoding` says; None allows any.

    Which columns hold ids and labels does not matter.
    """
    if encoding is None or graph.encoding is None or encoding["columns"] == graph.encoding["columns"]:
        return
    was, found = ([column["column"] for column in one["columns"]] for one in (encoding, graph.encoding))
    said = "other means or categories"
    if was != found:
        odd = next((name for name in found if name not in was), None)
        lacks = next((name for name in was if name not in found), None)
        said = f"an additional column {odd!r}" if odd is not None else f"no column {lacks!r}"
        said = said if odd is not None or lacks is not None else "its columns in another order"
    raise ShoalError(
        f"graph {graph.name!r} was imported with {said}, so its features do not mean what they meant in training: "
        "import its tables like those of training (shoal data import --like GRAPH, or give predict the tables)"
    )


def _prepare_scores(graph: Graph, trained: Graph) -> Graph:
    """`graph` with the classes of the model, and with a split."""
    require_graph(graph)
    if graph.y is None:
        raise ShoalError(f"graph {graph.name!r} has no labels: scores need them, predict does not")
    kinds = [_name_kind(one) for one in (graph, trained)]
    if kinds[0] != kinds[1]:
        raise ShoalError(f"graph {graph.name!r} is {kinds[0]} and the model was trained {kinds[1]}")
    graph = graph.with_classes_of(trained)
    assert graph.y is not None
    if any(getattr(graph, name) is not None for name in MASKS):
        return graph
    return graph._copy(test_mask=find_labelled(graph.y))


def _name_kind(graph: Graph) -> str:
    if graph.regression:
        return f"labelled with {describe_outputs(graph.num_classes, regression=True)}"
    return "multi-label" if graph.multi_label else "single-label"


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1)
