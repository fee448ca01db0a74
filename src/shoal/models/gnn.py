"""GNN: a stack of convolution and dense layers with a classifier on top."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from shoal.checks import check_positive, check_seed
from shoal.errors import ShoalError, unknown_name
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import bias_relu_dropout, mix_key
from shoal.models.attention import GATConv
from shoal.models.convs import Conv, GCNConv, Input, OnePassConv, SAGEConv, multiply_weight
from shoal.models.mixhop import MixHopConv
from shoal.sampling.batch import Batch

MODELS = ("sage", "gcn", "mixhop", "gat", "mlp")
NORMS = ("layer", "batch", "none")
DEFAULT_LAYERS = 2


class Dense(nn.Module):
    """A layer without aggregation, order 0 in a pattern: `H W`."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(in_features, out_features)))

    def forward(self, h: Input) -> Tensor:
        return multiply_weight(h, self.weight)


class BatchNorm(nn.BatchNorm1d):
    """Batch norm for which one row, having no spread to measure, is normalised by what was measured so far."""

    def forward(self, h: Tensor) -> Tensor:
        if self.training and len(h) == 1:
            return functional.batch_norm(h, self.running_mean, self.running_var, self.weight, self.bias)
        normalized: Tensor = super().forward(h)
        return normalized


class Layer(nn.Module):
    """One layer of the stack: convolution or dense, then normalisation or a bias, ReLU and dropout."""

    def __init__(self, linear: Conv | Dense, width: int, norm: str, dropout: float) -> None:
        super().__init__()
        self.linear = linear
        self.norm = {"layer": nn.LayerNorm, "batch": BatchNorm}[norm](width) if norm != "none" else None
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
        model: `"sage"`, `"gcn"`, `"mixhop"`, `"gat"`, or `"mlp"`: the same stack without any edge, the baseline
            to beat.
        in_features, hidden, num_classes: widths of input, every layer, output.
        num_layers: convolutions stacked; 2 if neither it nor `orders` is given.
        orders: a pattern such as `"1-0-1-0"` instead of num_layers: 0 is a dense layer without aggregation, and
            with mixhop the number is the highest power of the adjacency.
        heads: attentions side by side in a gat layer; concatenated, and averaged in the last one.
        norm: `"layer"`, `"batch"` or `"none"`, before each activation.
        dropout: rate, after each layer.
        l2_normalize: scale every embedding to length one before the classifier.
        seed: decides the initial weights and, with the step and the layer, what dropout drops.

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
        num_layers: int | None = None,
        orders: str | int | None = None,
        heads: int = 4,
        norm: str = "layer",
        dropout: float = 0.1,
        l2_normalize: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if in_features == 0 or num_classes == 0:
            name, lacks = ("in_features", "features") if in_features == 0 else ("num_classes", "labels")
            raise ShoalError(f"{name} is 0: the graph has no {lacks}, and training needs them")
        check_positive(in_features=in_features, hidden=hidden, num_classes=num_classes, heads=heads)
        check_seed(seed)
        if model not in MODELS:
            raise unknown_name("model", model, MODELS)
        if norm not in NORMS:
            raise unknown_name("norm", norm, NORMS)
        if not 0 <= dropout < 1:
            raise ShoalError(f"dropout is {dropout}: expected a rate from 0 up to, not including, 1")
        self.model = model
        self.in_features = in_features
        self.hidden = hidden
        self.num_classes = num_classes
        self.l2_normalize = l2_normalize
        self.seed = seed
        self.layers = nn.ModuleList()
        width = in_features
        pattern = parse_orders(orders, num_layers, default=2 if model == "mixhop" else 1)
        with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it was
            torch.manual_seed(seed)
            for number, order in enumerate(pattern):
                last = not any(pattern[number + 1 :])
                linear = make_linear(model, order, width, hidden, heads=heads, last=last)
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
        if depth == 0:  # nothing was aggregated: the rows asked for are the first ones
            h = h[: batch.num_outputs]
        elif h.shape[0] != batch.num_outputs:
            raise ShoalError(
                f"the model aggregates {depth} times but the batch has {len(batch.blocks)} blocks: sample as many layers as the model aggregates"
            )
        return h

    def explain(self, batch: Batch) -> list[str]:
        """What the scheduler decides for each layer on such a batch, one line a layer."""
        lines = []
        depth = 0
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            decision = "a dense product"
            if layer.kind is not None:
                adj = batch.block(depth).adjacency(layer.kind)
                depth += 1
                decision = f"{layer.kind} over {adj.num_entries:,} entries"
                if isinstance(layer.linear, OnePassConv):
                    if number == 0 and isinstance(batch.x, Adjacency):
                        decision += ", A (X W): the features are sparse"
                    elif number == 0 and batch.fixed:
                        decision += ", (A X) W with A X computed once: the batch is always the same"
                    else:
                        plan = layer.linear.plan(adj, needs_input_grad=number > 0)
                        decision += f", {plan.explain()}"
            lines.append(f"layer {number + 1}: {decision}")
        return lines

    def classify(self, embedding: Tensor) -> Tensor:
        """Logits from embeddings."""
        if self.l2_normalize:
            embedding = functional.normalize(embedding, dim=1)
        logits: Tensor = self.classifier(embedding)
        return logits


def make_linear(
    model: str, order: int, in_features: int, out_features: int, *, heads: int, last: bool
) -> Conv | Dense:
    """The linear part of one layer of a model."""
    if order == 0 or model == "mlp":
        return Dense(in_features, out_features)
    if model == "mixhop":
        return MixHopConv(in_features, out_features, order=order)
    if order > 1:
        raise ShoalError(f"order {order} in a {model} model: only mixhop has orders above 1")
    if model == "gat":
        return GATConv(in_features, out_features, heads=heads, mean=last)
    return {"sage": SAGEConv, "gcn": GCNConv}[model](in_features, out_features)


def parse_orders(orders: str | int | None, num_layers: int | None, default: int = 1) -> list[int]:
    """The order of every layer: `"1-0-1-0"` → [1, 0, 1, 0]; without a pattern, num_layers times the default."""
    if num_layers is not None:
        check_positive(num_layers=num_layers)
    if orders is None:
        return [default] * (DEFAULT_LAYERS if num_layers is None else num_layers)
    parts = str(orders).split("-")
    if not all(part.isdigit() and int(part) < 10 for part in parts):
        raise ShoalError(f"layer pattern {orders!r}: expected orders joined by '-', such as 1-0-1-0")
    if num_layers is not None and num_layers != len(parts):
        raise ShoalError(
            f"orders {orders} has {len(parts)} layers but num_layers is {num_layers}: leave num_layers out"
        )
    return [int(part) for part in parts]
