"""The loss of a batch: softmax cross-entropy for one label a node, per-class sigmoid for many."""

import torch
from torch import Tensor
from torch.nn import functional

from shoal.sampling.batch import Batch


def compute_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Mean loss of the batch's training nodes, each weighted by `node_norm` where the batch has one.

    A batch without training nodes gives 0, with zero gradients.
    """
    mask = batch.train_mask
    if batch.y.dim() == 2:
        losses = functional.binary_cross_entropy_with_logits(
            logits[mask], batch.y[mask].to(logits.dtype), reduction="none"
        ).mean(1)
    else:
        losses = functional.cross_entropy(logits[mask], batch.y[mask], reduction="none")
    if batch.node_norm is not None:
        return (losses * batch.node_norm[mask]).sum()
    return losses.sum() / torch.clamp(mask.sum(), min=1)
