"""The layers of a stack: a convolution or a dense product, then activation, normalisation and dropout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import bias_relu_dropout, dropout
from shoal.kernels.layer_norm import relu_norm_dropout
from shoal.kernels.spmm import spmm
from shoal.models.conv import Conv, Draw
from shoal.models.layerwise import Input
from shoal.models.neighbourhood import take_rows

NORMS = ("layer", "batch", "none")
NORM_PLACES = ("activation", "conv", "input")
RESIDUALS = ("none", "identity", "linear")
INPUT_NORMS = ("none", "rows")


def normalize_rows(x: Input) -> Input:
    """x with every row divided by the sum of its absolute values; a row of zeros stays as it is.

    A row's result depends on that row alone, so that every way of training computes the same.
    """
    if isinstance(x, Adjacency):
        return x.normalize_rows()
    sums = x.abs().sum(1, keepdim=True)
    return x / torch.where(sums > 0, sums, 1.0)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm that uses its running statistics for a single row, which has no variance."""

    def forward(self, h: Tensor) -> Tensor:
        if self.training and len(h) == 1:
            return functional.batch_norm(h, self.running_mean, self.running_var, self.weight, self.bias)
        normal: Tensor = super().forward(h)
        return normal


class Layer(nn.Module):
    """One layer of the stack: convolution or dense, then bias, ReLU, normalisation and dropout.

    The norm comes after the activation (`activation`), between convolution and activation (`conv`: no bias is needed), or
    before the convolution (`input`: residuals add the input before the norm). After the activation, layer norm treats
    the two halves of a SAGE layer, neighbours' and own features, separately.

    The residual `identity` adds the layer's input to its result, if both have the same width. `linear` adds `h W_res` to
    the convolution's result, before norm and ReLU. A dense layer has no linear one: `H W + H W_res` is one product.
    """

    residual: nn.Parameter | None  # W_res, (in_features, width)

    def __init__(
        self,
        linear: Conv,
        width: int,
        norm: str,
        dropout: float,
        *,
        norm_place: str = "activation",
        residual: str = "none",
    ) -> None:
        super().__init__()
        self.linear = linear
        self.adds_input = residual == "identity" and linear.in_features == width
        self.residual = None
        if residual == "linear" and linear.kind is not None:
            bound = linear.in_features**-0.5
            self.residual = nn.Parameter(torch.empty(linear.in_features, width).uniform_(-bound, bound))
        self.norm: nn.LayerNorm | nn.BatchNorm1d | None = None
        self.norm_place = norm_place if norm != "none" else None
        if norm != "none":
            kind = {"layer": nn.LayerNorm, "batch": BatchNorm}[norm]
            self.norm = kind(linear.in_features if norm_place == "input" else width)
        self.bias = nn.Parameter(torch.zeros(width)) if self.norm_place != "conv" else None
        self.dropout = dropout
        self._widths = linear.norm_widths if self.residual is None else None

    @property
    def kind(self) -> str | None:
        """The aggregation whose operator the layer takes; None for a dense layer."""
        return self.linear.kind

    @property
    def reads_input(self) -> bool:
        """Whether rows of the input are added to the same rows of the result."""
        return self.adds_input or self.residual is not None

    @property
    def num_weights(self) -> int:
        """Number of values in the layer's weight matrices."""
        more = 0 if self.residual is None else self.residual.numel()
        return sum(one.numel() for one in self.linear.parameters() if one.dim() == 2) + more

    def multiply(
        self, adj: Adjacency | None, h: Input, known: Tensor | None = None, draw: Draw | None = None
    ) -> Tensor:
        """The linear part: the convolution of the input, after its norm if there is one, plus the linear residual.

        `known` is a precomputed `adj · h`; `draw` is what a conv with random choices depends on in training.
        """
        return self.add_projection(self.convolve(adj, self.normalize_input(h), known, draw), h)

    def convolve(
        self, adj: Adjacency | None, z: Input, known: Tensor | None = None, draw: Draw | None = None
    ) -> Tensor:
        """The convolution alone."""
        given: dict[str, Any] = {"draw": draw} if self.linear.draws else {}
        out: Tensor = self.linear(adj, z, **given) if known is None else self.linear(adj, z, known, **given)
        return out

    def normalize_input(self, h: Input) -> Input:
        """The input of the convolution: h, normalised if the norm comes first."""
        if self.norm_place != "input":
            return h
        assert isinstance(h, Tensor)
        return self._normalize(h)

    def add_projection(self, out: Tensor, h: Input) -> Tensor:
        """Add the linear residual: `out + h W_res`. The first rows of h are those of `out`.

        Overwrites `out` if gradients are off.
        """
        if self.residual is None:
            return out
        own = take_rows(h, 0, out.shape[0])
        if isinstance(own, Adjacency):
            return out + spmm(own, self.residual)
        return (
            torch.addmm(out, own, self.residual)
            if torch.is_grad_enabled()
            else out.addmm_(own, self.residual)
        )

    def connect(self, out: Tensor, h: Input) -> Tensor:
        """Add the identity residual: `out + h`, if h is dense."""
        if not self.adds_input or not isinstance(h, Tensor):
            return out
        return out + h[: out.shape[0]]

    def finish(self, out: Tensor, n_id: Tensor | None = None, key: int | None = None) -> Tensor:
        """Bias, ReLU, norm and dropout. Overwrites `out`.

        Dropout depends only on the key, the global node id and the column. Without a key there is none.
        """
        rate, key = (self.dropout, key) if key is not None else (0.0, 0)
        if self.norm_place != "activation":
            out = self._normalize(out) if self.norm_place == "conv" else out
            return bias_relu_dropout(out, self.bias, rate, key, n_id, inplace=True)
        if isinstance(self.norm, nn.LayerNorm):
            assert self.bias is not None
            weights = (self.bias, self.norm.weight, self.norm.bias)
            return relu_norm_dropout(out, *weights, rate, key, n_id, self.norm.eps, self._widths)
        out = self._normalize(bias_relu_dropout(out, self.bias, 0.0, 0, n_id, inplace=True))
        return dropout(out, rate, key, n_id)

    def _normalize(self, out: Tensor) -> Tensor:
        assert self.norm is not None
        normal: Tensor = self.norm(out)
        return normal


class Output(Layer):
    """A last layer that gives the logits: the sum of its convolution's parts, such as SAGE's halves, plus a bias.

    Its norm, if it has one, comes before the convolution.
    """

    def __init__(self, linear: Conv, num_classes: int, norm: str = "none") -> None:
        super().__init__(linear, num_classes, norm, 0.0, norm_place="input")

    def finish(self, out: Tensor, n_id: Tensor | None = None, key: int | None = None) -> Tensor:
        assert self.bias is not None
        if out.shape[1] > len(self.bias):
            out = out.unflatten(1, (-1, len(self.bias))).sum(1)
        return out + self.bias
