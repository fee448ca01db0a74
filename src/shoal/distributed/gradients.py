"""Data parallelism: broadcast of the initial weights, all-reduce of the gradients in a step."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor, nn

from shoal.distributed.transport import Transport


class GradientBucket:
    """The gradients of a model in one message, followed by a flag for each weight that has one.

    A weight without a gradient on this rank adds zeros, so that all ranks send the same layout. A weight without a
    gradient on any rank keeps None, as in a single process.
    """

    def __init__(self, model: nn.Module, transport: Transport) -> None:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.transport = transport
        self._bucket: Tensor | None = None

    def sum(self) -> None:
        """Replace every gradient by its sum over all ranks."""
        sizes = [weight.numel() for weight in self.weights]
        if self._bucket is None:
            widest = reduce(torch.promote_types, [weight.dtype for weight in self.weights])
            self._bucket = torch.empty(sum(sizes) + len(sizes), dtype=widest)
        *pieces, used = self._bucket.split([*sizes, len(sizes)])
        used.copy_(torch.tensor([weight.grad is not None for weight in self.weights]))
        for weight, piece in zip(self.weights, pieces):
            if weight.grad is None:
                piece.zero_()
            else:
                piece.copy_(weight.grad.reshape(-1))
        self.transport.sum(self._bucket)
        for weight, piece, count in zip(self.weights, pieces, used.tolist()):
            if count and weight.grad is None:
                weight.grad = torch.empty_like(weight)
            if weight.grad is not None:
                weight.grad.copy_(piece.view_as(weight))


def broadcast_weights(model: nn.Module, transport: Transport) -> None:
    """Give every rank the weights and buffers of rank 0."""
    transport.phase = "the start of training"
    for tensor in [*model.parameters(), *model.buffers()]:
        content = tensor.detach().contiguous()
        transport.broadcast(content, 0)
        if content.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(content)


def average_buffers(model: nn.Module, transport: Transport) -> None:
    """Replace buffers, such as batch norm's running statistics, by their means over all ranks."""
    transport.phase = "the sums of batch norm"
    for buffer in model.buffers():
        if buffer.is_floating_point():
            transport.sum(buffer)
            buffer /= transport.size
