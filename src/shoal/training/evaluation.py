"""Evaluation during training: the scores of a split, and the number of epochs between evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated

import torch
from torch import Tensor, nn

from shoal.batch import Batch, as_tensor
from shoal.errors import ShoalError, unknown_name
from shoal.kernels.plan import SPARSE_WEIGHT
from shoal.models.gnn import GNN
from shoal.models.layerwise import plan_rows
from shoal.settings import Range
from shoal.training.metrics import score_predictions
from shoal.training.norm_statistics import list_norms
from shoal.training.share import SPLITS, Share
from shoal.training.split_sample import SplitSample
from shoal.training.targets import TargetScale

EvalShare = Annotated[
    float,
    Range(0, 1, open_low=True, said="above 0, up to 1"),
    "largest share of the work that evaluations may take during training",
]
LARGE_EVALUATION = 10**11  # multiply-adds, sparse ones weighted: about ten seconds
_BY_NODE = ("accuracy", "f1_micro")  # metrics that change little if a sample misses a class
_STEP_FACTOR = 3  # multiply-adds of a training step over those of its forward pass


def predict_split(
    share: Share,
    model: nn.Module,
    split: str,
    targets: TargetScale | None = None,
    sample: SplitSample | None = None,
) -> tuple[Tensor, Tensor]:
    """(logits, labels) of a split's nodes, or of a `sample` of them, computed on the full graph.

    With `targets`, regression predictions in the units of the labels take the place of logits.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if share.count_nodes(split) == 0:
        raise ShoalError(f"graph {share.graph.name!r} has no {split} nodes to evaluate on")
    mask = as_tensor(getattr(share.graph, f"{split}_mask")) if sample is None else sample.mask
    assert share.graph.y is not None
    logits = (
        share.predict(model, mask) if targets is None else share.predict(model, mask, take=targets.restore)
    )
    share.transport.phase = f"the {split} scores"
    return logits, as_tensor(share.graph.y)[mask]


def score_split(
    share: Share,
    model: nn.Module,
    split: str,
    metrics: Sequence[str | Callable[..., float]],
    targets: TargetScale | None = None,
    sample: SplitSample | None = None,
) -> dict[str, float]:
    """Scores on a split's nodes, computed on the full graph: the task's metrics and `metrics`.

    Regression scores are in the units of the labels. With a `sample` of the split, scores include the standard error of
    the sample's metric, `<metric>_error`. It is left out if the sample misses a class of the split and the metric is not
    a mean over nodes, because the error would miss that class too.
    """
    predicted, y = predict_split(share, model, split, targets, sample)

    def score(chosen: Tensor | slice) -> dict[str, float]:
        return score_predictions(
            predicted[chosen], y[chosen], metrics, total=share.sum, collect=share.collect
        )

    scores = score(slice(None))
    if sample is not None and (sample.metric in _BY_NODE or _has_classes_of(share, split, y)):
        name = sample.metric
        scores[f"{name}_error"] = sample.estimate_error(lambda chosen: score(chosen)[name])
    return scores


def _has_classes_of(share: Share, split: str, y: Tensor) -> bool:
    """Whether a sample's labels include every class of the split, over all ranks; True for a regression."""
    if y.is_floating_point():
        return True
    assert share.graph.y is not None
    labels = as_tensor(share.graph.y)[as_tensor(getattr(share.graph, f"{split}_mask"))]
    num_classes = share.graph.num_classes

    def count(some: Tensor) -> Tensor:
        return (
            (some != 0).sum(0) if some.dim() == 2 else torch.bincount(some[some >= 0], minlength=num_classes)
        )

    of_split, of_sample = share.sum(torch.stack([count(labels), count(y)]))
    return bool(((of_sample > 0) | (of_split == 0)).all())


def choose_interval(share: Share, model: nn.Module, most: float, sample: SplitSample | None = None) -> int:
    """Epochs from one evaluation to the next, so that evaluation is at most the share `most` of the work.

    Work is counted in multiply-adds, not timed, so a run evaluates the same epochs on another machine or after a resume.
    Small evaluations run after every epoch.
    """
    share.transport.phase = "the choice of the evaluation interval"
    work = share.sum(torch.tensor(count_work(share, model, sample), dtype=torch.float64))
    evaluation, epoch = work.tolist()
    is_large = evaluation > LARGE_EVALUATION and most < 1
    interval = math.ceil(evaluation * (1 - most) / (most * epoch)) if is_large else 1
    return int(share.agree(max(interval, 1)))  # ranks with different batches count different work


def count_work(share: Share, model: nn.Module, sample: SplitSample | None = None) -> tuple[float, float]:
    """This rank's multiply-adds of (an evaluation of the validation nodes or a sample of them, a training epoch).

    The batches from which an evaluation takes the statistics of batch norm are part of it.
    """
    forward = count_forward(model, share.whole)
    measured = share.count_measured() / share.sampler.num_batches if list_norms(model) else 0.0
    if (1 + measured) * forward * share.transport.size <= LARGE_EVALUATION:  # an upper bound of an evaluation
        return (1 + measured) * forward, _STEP_FACTOR * forward
    evaluation = forward * _part_computed(share, model, sample)
    is_large = (evaluation + measured * forward) * share.transport.size > LARGE_EVALUATION
    example = share.example() if is_large else share.whole
    if example is not share.whole:
        forward = share.sampler.num_batches * count_forward(model, example)  # of an epoch
    return evaluation + measured * forward, _STEP_FACTOR * forward


def count_forward(model: nn.Module, batch: Batch) -> float:
    """Multiply-adds of a forward pass, from sizes alone: no operator is built. Sparse ones count SPARSE_WEIGHT times."""
    if not isinstance(model, GNN):
        weights = sum(weight.numel() for weight in model.parameters())
        return batch.num_nodes * weights + SPARSE_WEIGHT * batch.num_edges * weights**0.5
    work, depth, rows = 0.0, 0, batch.num_nodes
    for layer in model.list_layers():
        if layer.kind is not None:
            block = batch.block(depth)
            rows, depth = block.num_rows, depth + 1
            work += SPARSE_WEIGHT * block.num_edges * layer.linear.out_features
        work += rows * layer.num_weights
    return work


def _part_computed(share: Share, model: nn.Module, sample: SplitSample | None) -> float:
    """The share of a full forward pass that an evaluation of the validation nodes computes."""
    mask = share.graph.val_mask if sample is None else sample.mask.numpy()
    pattern = share.whole.blocks[0]
    if mask is None or not isinstance(model, GNN) or share.n_id is not None:
        return 1.0
    first, *others = (layer.linear.count_hops() for layer in model.list_layers())
    hops = [first and 0, *others]  # reading features is not counted
    plan = plan_rows(pattern.indptr, pattern.indices, hops, as_tensor(mask))
    computed = sum(layer[0].entries + layer[0].count for layer in plan)
    return computed / max(len(plan) * (pattern.num_edges + pattern.num_rows), 1)
