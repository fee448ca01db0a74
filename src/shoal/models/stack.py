"""Stack: the declarations of a stack of layers, such as its halo exchanges and multiply-adds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import mix_key
from shoal.models.conv import Conv
from shoal.models.layers import Layer
from shoal.models.neighbourhood import count_entries, take_rows
from shoal.models.two_way import TwoWayConv
from shoal.notebook import show_facts


class Exchange(NamedTuple):
    """A halo exchange of a forward pass: `width` values per row in aggregation `layer`, counted from 1.

    It `overlaps` the product with local columns, unless the conv needs whole rows. Gradients are sent back (`returns`)
    unless nothing before the exchange has weights.
    """

    layer: int
    width: int
    overlaps: bool
    returns: bool = True


class Stack(nn.Module):
    """Layers with a classifier on top.

    Training, in one process, across ranks or with swapped parts, and the simulator use its declarations and never check
    the type of a model.

    Attributes:
        widths: columns of every layer's result.
        head: dense layers of the classifier before its last linear layer.
        classifier: the last linear layer; None if the last conv gives the logits.
    """

    in_features: int
    widths: list[int]
    input_dropout: float
    input_norm: str
    seed: int
    layers: nn.ModuleList
    head: nn.ModuleList
    classifier: nn.Linear | None

    def _repr_html_(self) -> str:
        layers = [
            f"{type(layer.linear).__name__} {layer.linear.out_features}" for layer in self.list_layers()
        ]
        facts = {
            "features": self.in_features,
            "layers": " → ".join(layers),
            "classes": self.num_classes,
            "weights": sum(one.numel() for one in self.parameters()),
        }
        return show_facts(type(self).__name__, facts)

    def list_layers(self) -> Iterator[Layer]:
        """The layers, input first."""
        for layer in self.layers:
            assert isinstance(layer, Layer)
            yield layer

    @property
    def output_bias(self) -> Tensor | None:
        """The bias that is added to the logits; None if a classifier without one was put in."""
        found = self.layers[-1].bias if self.classifier is None else self.classifier.bias
        return found if isinstance(found, Tensor) else None

    @property
    def num_aggregations(self) -> int:
        """Layers that aggregate over neighbours."""
        return sum(layer.kind is not None for layer in self.list_layers())

    @property
    def kinds(self) -> set[str]:
        """The aggregations of its layers."""
        return {layer.kind for layer in self.list_layers() if layer.kind is not None}

    @property
    def input_widths(self) -> list[int]:
        """Columns of every layer's input."""
        return [layer.linear.in_features for layer in self.list_layers()]

    def needs_halo_input(self, *, sparse: bool) -> bool:
        """Whether the first layer reads features of halo nodes: it aggregates once and has no precomputed `A x`.

        Args:
            sparse: whether the features are sparse.
        """
        first = next(self.list_layers())
        if first.kind is None or self.knows_aggregate(first.linear, sparse):
            return False
        return not first.linear.exchange_widths(first=True, known=False)

    def prepare(self, batch: Batch) -> None:
        """Precompute the first layer's `A x`, which a fixed batch needs only once; across ranks this exchanges rows.

        Args:
            batch: a batch that is used in many steps.
        """
        first = next(self.list_layers())
        if first.kind is not None and first.linear.starts_from_aggregate and self.input_norm == "none":
            batch.aggregate_input(first.kind)
        for _, layer, adj in self.walk(batch):
            if isinstance(layer.linear, TwoWayConv) and adj is not None:
                layer.linear.reverse(adj)

    def list_exchanges(self, *, sparse: bool, fixed: bool = True, training: bool = True) -> list[Exchange]:
        """The halo exchanges of a forward pass.

        Args:
            sparse: whether the features are sparse.
            fixed: whether the features are exchanged once, before training. False: in the first layer of every step.
            training: whether gradients are computed.
        """
        found: list[Exchange] = []
        depth = 0
        for number, layer in enumerate(self.list_layers()):
            if layer.kind is None:
                continue
            depth += 1
            known = number == 0 and self.knows_aggregate(layer.linear, sparse)
            widths, returns = layer.linear.exchange_widths(first=number == 0, known=known), True
            if number == 0 and not fixed:
                widths, returns = layer.linear.exchange_input(sparse=sparse, training=training)
            found += [Exchange(depth, width, not layer.linear.needs_whole_rows, returns) for width in widths]
        return found

    def knows_aggregate(self, conv: Conv, sparse: bool) -> bool:
        """Whether a first layer starts from a precomputed `A x`: x is dense, and neither normalised nor dropped.

        Args:
            conv: the conv of the first layer.
            sparse: whether the features are sparse.
        """
        whole = self.input_dropout == 0 and self.input_norm == "none"
        return conv.starts_from_aggregate and not sparse and whole

    def walk(self, batch: Batch) -> Iterator[tuple[int, Layer, Adjacency | None]]:
        """Yields (number, layer, operator) for every layer, input first; the operator of a dense layer is None.

        Args:
            batch: the batch whose blocks the layers aggregate over.
        """
        depth = 0
        for number, layer in enumerate(self.list_layers()):
            if layer.kind is None:
                yield number, layer, None
            else:
                block = batch.block(depth)
                if isinstance(layer.linear, TwoWayConv) and block.edge_norm is not None:
                    raise ShoalError(
                        "the batch has edge norms for one direction only: leave out directions=both, or the sampler's coverage"
                    )
                yield number, layer, block.adjacency(layer.kind)
                depth += 1

    def key(self, step: int, number: int) -> int | None:
        """The random key of a layer's dropout; None outside of training.

        Args:
            step: number of the optimizer step.
            number: number of the layer.
        """
        return mix_key(self.seed, step, number) if self.training else None

    def explain(self, batch: Batch) -> list[str]:
        """The scheduler's decision for each layer on a batch, one line per layer.

        Args:
            batch: a batch of training.
        """
        lines = []
        for number, layer, adj in self.walk(batch):
            decision = "a dense product"
            if adj is not None:
                order = layer.linear.explain(
                    adj,
                    first=number == 0,
                    known=self._knows_input(batch, number, layer),
                    sparse=isinstance(batch.x, Adjacency),
                )
                decision = f"{layer.kind} over {adj.num_entries:,} entries{order and f', {order}'}"
            if layer.residual is not None:
                decision += ", and a dense product of its input"
            lines.append(f"layer {number + 1}: {decision}")
        return lines

    def _knows_input(self, batch: Batch, number: int, layer: Layer) -> bool:
        starts = number == 0 and layer.linear.starts_from_aggregate and self.input_norm == "none"
        return starts and batch.fixed and isinstance(batch.x, Tensor)

    def num_macs(self, batch: Batch) -> int:
        """Multiply-adds of one forward pass over the batch: dense and sparse products of layers and classifier.

        A training step takes about three times as many. Activation and normalisation are not counted.

        Args:
            batch: the batch.
        """
        total = 0
        width = self.in_features
        rows = batch.num_nodes
        for number, layer, adj in self.walk(batch):
            entries = own = count_entries(batch.x) if number == 0 else rows * width
            if adj is not None:
                rows = adj.num_rows
                own = count_entries(take_rows(batch.x, 0, rows)) if number == 0 else rows * width
            known = self._knows_input(batch, number, layer)
            total += layer.linear.num_macs(adj, entries, own, first=number == 0, known=known)
            width = self.widths[number]
            total += 0 if layer.residual is None else own * width
        for head in self.head:
            assert isinstance(head, Layer)
            total += batch.num_outputs * head.linear.weight.numel()
        return total + batch.num_outputs * (0 if self.classifier is None else self.classifier.weight.numel())
