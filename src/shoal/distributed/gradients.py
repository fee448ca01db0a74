"""Data-parallel training: which rank this is, and gradients averaged over all of them (JPDC'21 §8)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn


def get_rank() -> tuple[int, int]:
    """(rank, number of ranks) of the process group; (0, 1) where there is none."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over all ranks, in one message.

    A parameter without a gradient counts as zero on this rank, so that ranks whose batch did not touch it
    still agree on the message.
    """
    touched = [p for p in parameters if p.requires_grad]
    for parameter in touched:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    grads = [p.grad for p in touched if p.grad is not None]
    bucket = torch.cat([grad.reshape(-1) for grad in grads])
    dist.all_reduce(bucket)
    bucket /= dist.get_world_size()
    for grad, mean in zip(grads, bucket.split([grad.numel() for grad in grads])):
        grad.copy_(mean.view_as(grad))


def average_number(value: float) -> float:
    """The mean of one number over all ranks."""
    total = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def average_buffers(model: nn.Module) -> None:
    """Replace what layers have measured (batch norm's running statistics) by its mean over all ranks."""
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.all_reduce(buffer)
            buffer /= dist.get_world_size()


def broadcast_weights(model: nn.Module) -> None:
    """Give every rank the weights and buffers of rank 0."""
    tensors: list[Tensor] = [*model.parameters(), *model.buffers()]
    for tensor in tensors:
        dist.broadcast(tensor.detach(), src=0)
