"""GNN: a stack of convolution and dense layers with a classifier on top."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from shoal.errors import ShoalError, unknown_name
from shoal.kernels.fused import bias_relu_dropout, mix_key
from shoal.models.convs import CONVS, Conv, Input, multiply_weight
from shoal.sampling.base import Batch, check_positive

MODELS = (*CONVS, "mlp")
NORMS = ("layer", "batch", "none")


class Dense(nn.Module):
    """A layer without aggregation, order 0 in a pattern: `H W`."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))

    def forward(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight)


class Layer(nn.Module):
    """One layer of the stack: convolution or dense, then normalisation or a bias, ReLU and dropout."""

    def __init__(self, linear: Conv | Dense, width: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.linear = linear
        self.norm = {"layer": nn.LayerNorm, "batch": nn.BatchNorm1d}[norm](width) if norm != "none" else None
        self.bias = nn.Parameter(torch.zeros(width)) if norm == "none" else None  # a norm has its own shift
        self.dropout = dropout

    @property
    def kind(self) -> str | None:
        """The aggregation the layer wants, None for a dense one."""
        return self.linear.kind if isinstance(self.linear, Conv) else None

    def finish(self, out: Tensor, n_id: Tensor | None = None, key: int | None = None) -> Tensor:
        """What follows the linear part, row by row. Without a key nothing is dropped.

        What is dropped depends on the key, the global node id and the column only. Overwrites `out`.
        """
        if self.norm is not None:
            out = self.norm(out)
        rate = self.dropout if key is not None else 0.0
        return bias_relu_dropout(out, self.bias, rate, key or 0, n_id, inplace=True)


class GNN(nn.Module):
    """A graph neural network for node classification.

    Args:
        model: `"sage"`, `"gcn"`, or `"mlp"`: the same stack without any edge, the baseline to beat.
        in_features, hidden, num_classes: widths of input, every layer, output.
        num_layers: convolutions stacked.
        orders: a pattern such as `"1-0-1-0"` instead of num_layers; 0 is a dense layer without aggregation.
        norm: `"layer"`, `"batch"` or `"none"`, before each activation.
        dropout: rate, after each layer.
        l2_normalize: scale every embedding to length one before the classifier.
        seed: decides, with the step and the layer, what dropout drops.

    A model is called with a Batch and the number of the optimizer step, and answers one row of logits for
    each of the batch's output nodes. What it computes is a pure function of weights, batch, seed and step.
    """

    def __init__(
        self,
        model: str,
        in_features: int,
        hidden: int,
        num_classes: int,
        *,
        num_layers: int = 2,
        orders: str | None = None,
        norm: str = "layer",
        dropout: float = 0.1,
        l2_normalize: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_positive(in_features=in_features, hidden=hidden, num_classes=num_classes, num_layers=num_layers)
        if model not in MODELS:
            raise unknown_name("model", model, MODELS)
        if norm not in NORMS:
            raise unknown_name("norm", norm, NORMS)
        if not 0 <= dropout < 1:
            raise ShoalError(f"dropout is {dropout}: expected a rate from 0 up to, not including, 1")
        self.model = model
        self.hidden = hidden
        self.l2_normalize = l2_normalize
        self.seed = seed
        self.layers = nn.ModuleList()
        width = in_features
        for order in parse_orders(orders, num_layers):
            dense = order == 0 or model == "mlp"
            linear = Dense(width, hidden) if dense else CONVS[model](width, hidden)
            self.layers.append(Layer(linear, hidden, norm, dropout))
            width = hidden
        self.classifier = nn.Linear(width, num_classes)

    def forward(self, batch: Batch, step: int = 0) -> Tensor:
        return self.classify(self.embed(batch, step))

    def embed(self, batch: Batch, step: int = 0) -> Tensor:
        """The last layer's output for the batch's output nodes, (num_outputs, hidden)."""
        h: Input = batch.x
        depth = 0
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            if layer.kind is None:
                out = layer.linear(h)
            else:
                adj = batch.block(depth).adjacency(layer.kind)
                known = batch.aggregate_input(layer.kind) if number == 0 else None
                out = layer.linear(adj, h, known)
                depth += 1
            key = mix_key(self.seed, step, number) if self.training else None
            h = layer.finish(out, batch.n_id[: out.shape[0]], key)
        assert isinstance(h, Tensor)
        return h

    def classify(self, embedding: Tensor) -> Tensor:
        """Logits from embeddings."""
        if self.l2_normalize:
            embedding = functional.normalize(embedding, dim=1)
        logits: Tensor = self.classifier(embedding)
        return logits


def parse_orders(orders: str | None, num_layers: int) -> list[int]:
    """The order of every layer: `"1-0-1-0"` → [1, 0, 1, 0]; without a pattern, num_layers ones."""
    if orders is None:
        return [1] * num_layers
    parts = str(orders).split("-")
    if not all(part in ("0", "1") for part in parts):
        raise ShoalError(f"layer pattern {orders!r}: expected orders 0 or 1 joined by '-', such as 1-0-1-0")
    return [int(part) for part in parts]
