"""GNN: a stack of convolution and dense layers with a classifier on top."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from shoal.batch import SAMPLE_LAYERS, Batch
from shoal.checks import check_positive, check_seed
from shoal.errors import ShoalError, unknown_name
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import drop_entries, dropout, mix_key
from shoal.models.attention import GATConv
from shoal.models.convs import Conv, GCNConv, Input, OnePassConv, SAGEConv, count_entries, take_rows
from shoal.models.layers import NORMS, Dense, Layer, Output
from shoal.models.mixhop import MixHopConv

MODELS = ("sage", "gcn", "mixhop", "gat", "mlp")
JUMPS = ("none", "concat", "max")
DEFAULT_LAYERS = 2


class GNN(nn.Module):
    """A graph neural network for node classification.

    Args:
        model: `"sage"`, `"gcn"`, `"mixhop"`, `"gat"`, or `"mlp"`: the same stack without any edge, the baseline
            to beat.
        in_features, hidden, num_classes: widths of input, every layer, output; a pattern such as
            `"1024-512-1024-512"` gives every layer its own.
        num_layers: convolutions stacked; 2 if neither it nor `orders` is given.
        orders: a pattern such as `"1-0-1-0"` instead of num_layers: 0 is a dense layer without aggregation, and
            with mixhop the number is the highest power of the adjacency.
        heads: attentions side by side in a gat layer; concatenated, and averaged in the last one.
        norm: `"layer"`, `"batch"` or `"none"`, after each activation, or before it with `norm_first`.
        dropout: rate, after each layer; input_dropout: of the features.
        residual: add a layer's input to its output, where both are equally wide.
        jumping: what the classifier sees: `"none"` the last layer's output, `"concat"` all layers' side by
            side, `"max"` the largest of all layers' in every column.
        head_layers: layers of the classifier; 1 is a linear one, more an MLP of width hidden. 0 is none: the last
            layer is num_classes wide, nothing follows it, and its output is both embedding and logits.
        l2_normalize: scale every embedding to length one before the classifier.
        seed: decides the initial weights and, with the step and the layer, what dropout drops.

    A model is called with a Batch and the number of the optimizer step, and answers one row of logits for
    each of the batch's output nodes. What it computes is a pure function of weights, batch, seed and step.
    """

    def __init__(
        self,
        model: str,
        in_features: int,
        hidden: int | str,
        num_classes: int,
        *,
        num_layers: int | None = None,
        orders: str | int | None = None,
        heads: int = 4,
        norm: str = "layer",
        norm_first: bool = False,
        dropout: float = 0.1,
        input_dropout: float = 0.0,
        residual: bool = False,
        jumping: str = "none",
        head_layers: int = 1,
        l2_normalize: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if in_features == 0 or num_classes == 0:
            name, lacks = ("in_features", "features") if in_features == 0 else ("num_classes", "labels")
            raise ShoalError(f"{name} is 0: the graph has no {lacks}, and training needs them")
        check_positive(in_features=in_features, num_classes=num_classes, heads=heads)
        check_seed(seed)
        for what, name, known in (
            ("model", model, MODELS),
            ("norm", norm, NORMS),
            ("jumping", jumping, JUMPS),
        ):
            if name not in known:
                raise unknown_name(what, name, known)
        check_head(head_layers, jumping, l2_normalize)
        for what, rate in (("dropout", dropout), ("input_dropout", input_dropout)):
            if not 0 <= rate < 1:
                raise ShoalError(f"{what} is {rate}: expected a rate from 0 up to, not including, 1")
        self.model = model
        self.in_features = in_features
        self.num_classes = num_classes
        self.input_dropout = input_dropout
        self.residual = residual
        self.jumping = jumping
        self.l2_normalize = l2_normalize
        self.seed = seed
        self.layers = nn.ModuleList()
        self.head = nn.ModuleList()
        self.classifier: nn.Linear | None = None
        width = in_features
        pattern = parse_orders(orders, num_layers, default=2 if model == "mixhop" else 1)
        has_classifier = head_layers > 0
        self.widths = parse_widths(hidden, len(pattern), None if has_classifier else num_classes)
        with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it was
            torch.manual_seed(seed)
            for number, (order, out) in enumerate(zip(pattern, self.widths)):
                last = not any(pattern[number + 1 :])
                if has_classifier or number < len(pattern) - 1:
                    linear = make_linear(model, order, width, out, heads=heads, last=last)
                    self.layers.append(Layer(linear, out, norm, dropout, norm_first=norm_first))
                else:
                    parts = count_parts(model, order)
                    linear = make_linear(model, order, width, parts * out, heads=heads, last=last)
                    self.layers.append(Output(linear, out))
                width = out
            if jumping == "max" and len(set(self.widths)) > 1:
                raise ShoalError(f"jumping max compares layers of widths {hidden}: expected all the same")
            self.embedding_width = sum(self.widths) if jumping == "concat" else width
            width, out = self.embedding_width, width
            for _ in range(head_layers - 1):
                self.head.append(Layer(Dense(width, out), out, norm, dropout, norm_first=norm_first))
                width = out
            if has_classifier:
                self.classifier = nn.Linear(width, num_classes)

    def forward(self, batch: Batch, step: int = 0) -> Tensor:
        return self.classify(self.embed(batch, step), batch.n_id[: batch.num_outputs], step)

    def embed(self, batch: Batch, step: int = 0) -> Tensor:
        """What the classifier sees of the batch's output nodes, (num_outputs, embedding_width)."""
        h, is_whole = self._drop_input(batch, step)
        outputs: list[Tensor] = []
        for number, layer, adj in self.walk(batch):
            if adj is None:
                out = layer.linear(h)
            else:
                known = batch.aggregate_input(adj[0]) if number == 0 and is_whole else None
                out = layer.linear(adj[1], h, known)
            out = layer.finish(out, batch.n_id[: out.shape[0]], self._key(step, number))
            h = self.connect(layer, out, h)
            outputs = [*outputs, h] if self.jumping != "none" else [h]
        if self.num_aggregations and outputs[-1].shape[0] != batch.num_outputs:
            raise ShoalError(
                f"the model aggregates {self.num_aggregations} times but the batch has {len(batch.blocks)} blocks: {SAMPLE_LAYERS}"
            )
        return self.jump([out[: batch.num_outputs] for out in outputs])

    def _drop_input(self, batch: Batch, step: int) -> tuple[Input, bool]:
        """The batch's features, and whether they are all there: in training some may be dropped."""
        key = self._key(step, len(self.layers) + len(self.head))
        if key is None or self.input_dropout == 0:
            return batch.x, True
        if isinstance(batch.x, Adjacency):
            return drop_entries(batch.x, self.input_dropout, key, batch.n_id), False
        return dropout(batch.x, self.input_dropout, key, batch.n_id), False

    @property
    def num_aggregations(self) -> int:
        return sum(layer.kind is not None for layer in self.layers)

    def walk(self, batch: Batch) -> Iterator[tuple[int, Layer, tuple[str, Adjacency] | None]]:
        """(number, layer, the kind and operator of its aggregation or None for a dense layer) through the stack."""
        depth = 0
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            if layer.kind is None:
                yield number, layer, None
            else:
                yield number, layer, (layer.kind, batch.block(depth).adjacency(layer.kind))
                depth += 1

    def connect(self, layer: Layer, out: Tensor, h: Input) -> Tensor:
        """A layer's result: its output, with `residual` plus the same rows of its input; logits stay as they are."""
        if not self.residual or isinstance(layer, Output):
            return out
        if not isinstance(h, Tensor) or h.shape[1] != out.shape[1]:
            return out
        return out + h[: out.shape[0]]

    def jump(self, outputs: list[Tensor]) -> Tensor:
        """The embedding from every layer's result for the same rows."""
        if self.jumping == "concat":
            return torch.cat(outputs, dim=1)
        if self.jumping == "max":
            return torch.stack(outputs).amax(0)
        return outputs[-1]

    def classify(self, embedding: Tensor, n_id: Tensor | None = None, step: int = 0) -> Tensor:
        """Logits from embeddings; in training the MLP of a deeper classifier drops by n_id and step."""
        if self.l2_normalize:
            embedding = functional.normalize(embedding, dim=1)
        for number, layer in enumerate(self.head, len(self.layers)):
            assert isinstance(layer, Layer)
            embedding = layer.finish(layer.linear(embedding), n_id, self._key(step, number))
        return embedding if self.classifier is None else self.classifier(embedding)

    def _key(self, step: int, number: int) -> int | None:
        return mix_key(self.seed, step, number) if self.training else None

    def explain(self, batch: Batch) -> list[str]:
        """What the scheduler decides for each layer on such a batch, one line a layer."""
        lines = []
        for number, layer, aggregation in self.walk(batch):
            decision = "a dense product"
            if aggregation is not None:
                kind, adj = aggregation
                decision = f"{kind} over {adj.num_entries:,} entries"
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

    def num_macs(self, batch: Batch) -> int:
        """Multiply-adds of one forward pass over the batch: dense and sparse products of layers and classifier.

        A training step takes about three times as many. Activation and normalisation are not counted.
        """
        total = 0
        width = self.in_features
        rows = batch.num_nodes
        for number, layer, aggregation in self.walk(batch):
            entries = count_entries(batch.x) if number == 0 else rows * width
            if aggregation is None:
                total += entries * self.widths[number]
            else:
                adj = aggregation[1]
                known = number == 0 and batch.fixed and isinstance(batch.x, Tensor)
                own = (
                    count_entries(take_rows(batch.x, 0, adj.num_rows))
                    if number == 0
                    else adj.num_rows * width
                )
                assert isinstance(layer.linear, Conv)
                total += layer.linear.num_macs(adj, entries, own, first=number == 0, known=known)
                rows = adj.num_rows
            width = self.widths[number]
        for head in self.head:
            assert isinstance(head, Layer)
            total += batch.num_outputs * head.linear.weight.numel()
        return total + batch.num_outputs * (0 if self.classifier is None else self.classifier.weight.numel())


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


def count_parts(model: str, order: int) -> int:
    """Parts that a layer's result has side by side."""
    if order == 0:
        return 1
    return {"sage": 2, "mixhop": order + 1}.get(model, 1)


def check_head(head_layers: int, jumping: str, l2_normalize: bool) -> None:
    """Refuse a classifier that cannot be."""
    if head_layers < 0:
        raise ShoalError(f"head_layers is {head_layers}: expected 0 or more")
    if head_layers == 0 and (jumping != "none" or l2_normalize):
        raise ShoalError(
            f"head_layers is 0, so there is no classifier for what {'l2_normalize' if l2_normalize else 'jumping'} makes: leave that out, or give head_layers 1 or more"
        )


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


def parse_widths(hidden: int | str, num_layers: int, num_classes: int | None = None) -> list[int]:
    """The width of every layer: one for all, or `"1024-512"` → [1024, 512]; num_classes, where given, is the last one's."""
    parts = str(hidden).split("-")
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ShoalError(
            f"hidden is {hidden}: expected a width of at least 1, or one for every layer, such as 512-256"
        )
    free = num_layers if num_classes is None else num_layers - 1
    if len(parts) not in (1, free):
        layers = f"each of {num_layers} layers"
        if num_classes is not None:
            layers = f"each of {free} layers before the last, which is as wide as there are classes where head_layers is 0"
        raise ShoalError(f"hidden {hidden} has {len(parts)} widths: expected one, or one for {layers}")
    widths = [int(part) for part in parts] * (free if len(parts) == 1 else 1)
    return widths if num_classes is None else [*widths, num_classes]
