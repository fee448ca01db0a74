"""The layers of a stack: a convolution or a dense product, then activation, normalisation and dropout."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from shoal.kernels.fused import bias_relu_dropout, dropout
from shoal.kernels.layer_norm import relu_norm_dropout
from shoal.models.conv import Conv

NORMS = ("layer", "batch", "none")


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that normalises a single row, which has no variance, by its running statistics."""

    def forward(self, h: Tensor) -> Tensor:
        if self.training and len(h) == 1:
            return functional.batch_norm(h, self.running_mean, self.running_var, self.weight, self.bias)
        normal: Tensor = super().forward(h)
        return normal


class Layer(nn.Module):
    """One layer of the stack: convolution or dense, then bias, ReLU, normalisation and dropout.

    Layer normalisation treats the two halves of a SAGE layer, neighbours' and own features, each by itself. With
    `norm_first` it comes before the ReLU, for the whole row, and needs no bias before it.
    """

    def __init__(
        self, linear: Conv, width: int, norm: str, dropout: float, *, norm_first: bool = False
    ) -> None:
        super().__init__()
        self.linear = linear
        self.norm = {"layer": nn.LayerNorm, "batch": BatchNorm}[norm](width) if norm != "none" else None
        self.norm_first = norm_first and self.norm is not None
        self.bias = nn.Parameter(torch.zeros(width)) if not self.norm_first else None
        self.dropout = dropout
        self._widths = linear.norm_widths

    @property
    def kind(self) -> str | None:
        """The aggregation whose operator the layer takes, None for a dense one."""
        return self.linear.kind

    def finish(self, out: Tensor, n_id: Tensor | None = None, key: int | None = None) -> Tensor:
        """What follows the linear part. Without a key nothing is dropped.

        What is dropped depends on the key, the global node id and the column only. Overwrites `out`.
        """
        rate, key = (self.dropout, key) if key is not None else (0.0, 0)
        if self.norm is None or self.norm_first:
            return bias_relu_dropout(self._normalize(out), self.bias, rate, key, n_id, inplace=True)
        if isinstance(self.norm, nn.LayerNorm):
            assert self.bias is not None
            weights = (self.bias, self.norm.weight, self.norm.bias)
            return relu_norm_dropout(out, *weights, rate, key, n_id, self.norm.eps, self._widths)
        out = self._normalize(bias_relu_dropout(out, self.bias, 0.0, 0, n_id, inplace=True))
        return dropout(out, rate, key, n_id)

    def _normalize(self, out: Tensor) -> Tensor:
        if self.norm is None:
            return out
        normal: Tensor = self.norm(out)
        return normal


class Output(Layer):
    """A last layer whose result is the logits: its convolution's parts, such as SAGE's halves, summed, and a bias."""

    def __init__(self, linear: Conv, num_classes: int) -> None:
        super().__init__(linear, num_classes, "none", 0.0)

    def finish(self, out: Tensor, n_id: Tensor | None = None, key: int | None = None) -> Tensor:
        assert self.bias is not None
        if out.shape[1] > len(self.bias):
            out = out.unflatten(1, (-1, len(self.bias))).sum(1)
        return out + self.bias
