"""Label reuse: training labels as input features, masked so that no node in the loss sees its own label."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import mix_key
from shoal.kernels.row_mask import keep_ids
from shoal.label_columns import KnownLabels, LabelColumns, LabelledBatch, SparseJoin
from shoal.labels import is_regression
from shoal.models.hops import StackedGraph
from shoal.partitioning.part import Part
from shoal.sampling.base import Sampler
from shoal.sampling.full import FullSampler
from shoal.settings import Null, Range

if TYPE_CHECKING:
    from shoal.distributed.exchange import ExchangeMethod

ShownShare = Annotated[
    float | None,
    Range(0, 1, open_low=True, open_high=True, said="above 0, below 1"),
    Null("none"),
    "share of training nodes whose labels are input of a step and not in its loss; evaluation uses all labels as input",
]
Iterations = Annotated[int, Range(0, 10), "passes whose predictions replace labels that are not input"]
_LABELS = 0x1ABE1  # separates these random numbers from those of dropout
_LEAVE = "leave out training.label_reuse"


class LabelReuse:
    """The labels that a step and an evaluation have as input.

    A step shows each training node's label with probability `rate`, by a hash of seed, step and global id. The other
    training nodes are in the loss, weighted by `1 / (1 - rate)`, so that its expectation is the mean over all of them.
    Evaluation shows all training labels. A node without a shown label has zeros, or after `iterations` passes its
    predicted probabilities.
    """

    def __init__(
        self, rate: float, iterations: int, num_classes: int, seed: int, *, multi_label: bool
    ) -> None:
        self.rate, self.iterations, self.num_classes, self.seed = rate, iterations, num_classes, seed
        self._take = torch.sigmoid if multi_label else _softmax
        self._joined: dict[bool, tuple[Adjacency, SparseJoin]] = {}  # without and with predictions

    def draw(self, labels: KnownLabels, step: int) -> LabelColumns:
        """The label columns of some rows in a training step."""
        key = mix_key(self.seed, step, _LABELS)
        hidden = keep_ids(labels.ids, self.rate, key)
        return LabelColumns(labels, labels.known & ~hidden, self.num_classes)

    def show_all(self, batch: Batch, labels: KnownLabels) -> LabelledBatch:
        """The batch with the labels of all training nodes, for evaluation."""
        return self.join(batch, LabelColumns(labels, labels.known, self.num_classes))

    def hide(self, batch: Batch, labels: KnownLabels) -> LabelledBatch:
        """The batch with the label columns of its step. Nodes whose label is shown are not in the loss."""
        columns = self.draw(labels, batch.step)
        joined = self.join(batch, columns)
        self.count_hidden(joined, columns)
        return joined

    def count_hidden(self, batch: Batch, columns: LabelColumns) -> None:
        """Restrict the loss to output nodes whose label is hidden, and rescale it."""
        rows = batch.num_outputs
        norm = batch.node_norm
        if norm is None:
            norm = torch.full((rows,), 1 / max(int(batch.train_mask.sum()), 1), dtype=torch.float64)
        batch.node_norm = norm / (1 - self.rate)
        batch.train_mask = batch.train_mask & ~columns.shown[:rows]

    def join(self, batch: Batch, columns: LabelColumns) -> LabelledBatch:
        """The batch with label columns. For sparse features of a fixed batch the joined pattern is cached."""
        x = batch.__dict__.get("x")
        if not batch.fixed or not isinstance(x, Adjacency):
            return LabelledBatch(batch, columns)
        full = columns.predicted is not None
        if full not in self._joined or self._joined[full][0] is not x:
            self._joined[full] = x, SparseJoin(x, columns.labels, self.num_classes, full=full)
        return LabelledBatch(batch, columns, self._joined[full][1])

    def predict(
        self,
        batch: LabelledBatch,
        compute: Callable[[LabelledBatch], Tensor],
        spread: Callable[[Tensor], Tensor],
    ) -> LabelledBatch:
        """The batch with predicted probabilities for nodes without a shown label, refined `iterations` times.

        `compute` returns logits of a batch's rows, `spread` appends halo rows.
        """
        for _ in range(self.iterations):
            with torch.no_grad():
                predicted = spread(self._take(compute(batch)).float())
            columns = LabelColumns(batch.columns.labels, batch.columns.shown, self.num_classes, predicted)
            shown = self.join(batch.base, columns)
            shown.node_norm, shown.train_mask, shown.step = batch.node_norm, batch.train_mask, batch.step
            batch = shown
        return batch


def make_reuse(
    model: nn.Module, graph: Graph | Part, sampler: Sampler | None, rate: float | None, iterations: int
) -> LabelReuse | None:
    """Label reuse by its settings; None if it is off. Its seed is the model's, or else the sampler's."""
    if rate is None:
        if iterations:
            raise ShoalError(
                f"label_iterations is {iterations} but labels are not input: add label_reuse, or leave it out"
            )
        return None
    if is_regression(graph.y):
        raise ShoalError(
            f"the labels of graph {graph.name!r} are numbers, and label reuse needs classes: {_LEAVE}"
        )
    if isinstance(graph, StackedGraph):
        raise ShoalError(f"hops of features are computed once and labels change every step: {_LEAVE}")
    multi_label = graph.y is not None and graph.y.ndim == 2
    seed = getattr(model, "seed", getattr(sampler, "seed", 0))
    return LabelReuse(rate, iterations, graph.num_classes, int(seed), multi_label=multi_label)


def check_reuse(
    reuse: LabelReuse,
    sampler: Sampler | None,
    exchange: ExchangeMethod | None,
    *,
    swapped: bool,
    history: bool,
) -> None:
    """Raise for ways of training that label reuse does not support. `exchange` is that of parts."""
    if history:
        raise ShoalError(f"histories come from steps with other input labels: {_LEAVE}, or training.history")
    if exchange is not None and getattr(exchange, "sample_input", False):
        raise ShoalError(f"sampled input has no rows for labels: {_LEAVE}, or partition.sample_input")
    if not reuse.iterations:
        return
    leave = "leave out training.label_iterations"
    if swapped:
        raise ShoalError(f"swapped parts make one pass per step: {leave}")
    if sampler is not None and not (sampler.draws_subgraphs or isinstance(sampler, FullSampler)):
        raise ShoalError(
            f"sampler {sampler.name} gives predictions for output nodes only, and label iterations need all nodes: {leave}"
        )
    if exchange is not None and (exchange.thins or exchange.is_stale):
        raise ShoalError(f"label iterations need complete halos of the same step: {leave}")


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1)
