"""SyncBatchNorm: batch norm over the rows of all ranks, with exact gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from shoal.distributed.ledger import REDUCE, Ledger
from shoal.distributed.transport import Transport

_SUM_BYTES = 8  # of a number that is summed over ranks


class SyncBatchNorm(nn.BatchNorm1d):
    """`(h − μ) / √(σ² + ε) · γ + β`, μ and σ² over the rows of all ranks.

    One sum over the ranks forward (Σh, Σh², rows, in float64, so that σ² loses nothing) and one backward
    (Σg, Σg·ĥ). A rank without rows takes part. The gradients of γ and β stay this rank's share, as those of
    all other weights do, until they are summed together.
    """

    def __init__(self, norm: nn.BatchNorm1d, transport: Transport, ledger: Ledger) -> None:
        super().__init__(
            norm.num_features,
            eps=norm.eps,
            momentum=norm.momentum,
            affine=norm.affine,
            track_running_stats=norm.track_running_stats,
        )
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            setattr(self, name, buffer)
        self.transport = transport
        self.ledger = ledger

    def forward(self, h: Tensor) -> Tensor:
        if not self.training:
            frozen: Tensor = super().forward(h)
            return frozen
        wide = h.detach().double()
        sums = torch.cat([wide.sum(0), wide.square().sum(0), wide.new_tensor([len(h)])])
        total, squares, count = self.add_up(sums).split([h.shape[1], h.shape[1], 1])
        rows = float(count)
        if rows < 2:  # one row has no spread to measure
            return functional.batch_norm(h, self.running_mean, self.running_var, self.weight, self.bias)
        mean = total / rows
        variance = (squares / rows - mean.square()).clamp(min=0)
        self.remember(mean, variance * rows / (rows - 1))
        scale = (variance + self.eps).rsqrt().to(h.dtype)
        weight = self.weight if self.affine else h.new_ones(h.shape[1])
        bias = self.bias if self.affine else h.new_zeros(h.shape[1])
        normalized: Tensor = _Normalize.apply(h, weight, bias, mean.to(h.dtype), scale, rows, self)
        return normalized

    def add_up(self, sums: Tensor, *, backward: bool = False) -> Tensor:
        """All-reduce of `sums` over the ranks."""
        with self.ledger.timing(REDUCE):
            self.transport.phase = "the sums of batch norm"
            return self.transport.sum(sums)

    def remember(self, mean: Tensor, variance: Tensor) -> None:
        """Update the running mean and variance."""
        if not self.track_running_stats:
            return
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked += 1
        rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), rate)
        self.running_var.lerp_(variance.to(self.running_var.dtype), rate)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, scale: Tensor, rows: float, norm: Any
    ) -> Tensor:
        ctx.save_for_backward(h, weight, mean, scale)
        ctx.rows, ctx.norm = rows, norm
        return torch.addcmul(bias, h - mean, scale * weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, weight, mean, scale = ctx.saved_tensors
        flat = (h - mean) * scale
        own = torch.stack([grad.sum(0), (grad * flat).sum(0)])
        sums = ctx.norm.add_up(own.to(torch.float64, copy=True), backward=True)
        shift, slope = sums.to(h.dtype) / ctx.rows
        grad_h = (grad - shift - flat * slope) * (scale * weight)
        return grad_h, own[1], own[0], None, None, None, None


def list_sums(model: nn.Module, passes: int = 0) -> tuple[int, ...]:
    """Bytes of each all-reduce that batch norm adds to a step on ranks: those of the forward passes, then the backward one.

    Args:
        model: its batch norms are shared by `share_batch_norms`, or will be.
        passes: forward passes in training mode before the step's own.
    """
    widths = [norm.num_features for norm in model.modules() if isinstance(norm, nn.BatchNorm1d)]
    forward = [_SUM_BYTES * (2 * width + 1) for width in widths]
    return (*(1 + passes) * forward, *(_SUM_BYTES * 2 * width for width in reversed(widths)))


def share_batch_norms(
    model: nn.Module, transport: Transport, ledger: Ledger, kind: type[SyncBatchNorm] = SyncBatchNorm
) -> None:
    """Replace every batch norm of `model` by one over the rows of all ranks; weights and buffers stay the same objects."""
    for parent in list(model.modules()):
        for name, norm in list(parent.named_children()):
            if isinstance(norm, nn.BatchNorm1d):
                setattr(parent, name, kind(norm, transport, ledger))
