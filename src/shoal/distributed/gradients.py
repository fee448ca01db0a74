"""What ranks that train one model have in common: the same weights at the start, the sum of their gradients in a step."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shoal.distributed.transport import Transport


class GradientBucket:
    """The gradients of a model as one message.

    A parameter without a gradient counts as zero, so that ranks whose batch did not touch it agree on the message.
    """

    def __init__(self, model: nn.Module, transport: Transport) -> None:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.transport = transport
        self._bucket: Tensor | None = None

    def sum(self) -> None:
        """Replace every gradient by its sum over all ranks."""
        sizes = [weight.numel() for weight in self.weights]
        if self._bucket is None:
            self._bucket = torch.empty(sum(sizes), dtype=self.weights[0].dtype)
        pieces = self._bucket.split(sizes)
        for weight, piece in zip(self.weights, pieces):
            if weight.grad is None:
                piece.zero_()
            else:
                piece.copy_(weight.grad.reshape(-1))
        self.transport.sum(self._bucket)
        for weight, piece in zip(self.weights, pieces):
            if weight.grad is None:
                weight.grad = torch.empty_like(weight)
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
    """Replace what layers have measured (batch norm's running statistics) by its mean over all ranks."""
    transport.phase = "the sums of batch norm"
    for buffer in model.buffers():
        if buffer.is_floating_point():
            transport.sum(buffer)
            buffer /= transport.size
