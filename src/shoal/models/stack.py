"""Stack: what a stack of layers declares about its forward pass, and counts of it, without computing it."""

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
    """A halo exchange of a forward pass: `width` values a row in aggregation `layer`, counted from 1.

    It `overlaps` the product with local columns, unless the conv needs whole rows. Gradients `return` unless nothing before
    it has weights.
    """

    layer: int
    width: int
    overlaps: bool
    returns: bool = True


class Stack(nn.Module):
    """Layers with a classifier on top. Trainers, ranks, swapped parts and the simulator ask these, never for a type.

    Attributes:
        widths: columns of every layer's result.
        head: dense layers of the classifier, before its last product, which is `classifier`.
    """

    in_features: int
    widths: list[int]
    input_dropout: float
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
    def num_aggregations(self) -> int:
        """Layers that aggregate over neighbours."""
        return sum(layer.kind is not None for layer in self.list_layers())

    @property
    def kinds(self) -> set[str]:
        """The aggregations whose operators its layers take."""
        return {layer.kind for layer in self.list_layers() if layer.kind is not None}

    @property
    def input_widths(self) -> list[int]:
        """Columns of every layer's input."""
        return [layer.linear.in_features for layer in self.list_layers()]

    def needs_halo_input(self, *, sparse: bool) -> bool:
        """Whether the first layer reads features of halo nodes: it aggregates once, and cannot start from `A x`.

        Args:
            sparse: whether the features are sparse.
        """
        first = next(self.list_layers())
        if first.kind is None or self.knows_aggregate(first.linear, sparse):
            return False
        return not first.linear.exchange_widths(first=True, known=False)

    def prepare(self, batch: Batch) -> None:
        """Compute, and exchange between ranks, what a fixed batch needs only once: the first layer's `A x`.

        Args:
            batch: a batch that serves many steps.
        """
        first = next(self.list_layers())
        if first.kind is not None and first.linear.starts_from_aggregate:
            batch.aggregate_input(first.kind)
        for _, layer, adj in self.walk(batch):
            if isinstance(layer.linear, TwoWayConv) and adj is not None:
                layer.linear.reverse(adj)

    def list_exchanges(self, *, sparse: bool, fixed: bool = True, training: bool = True) -> list[Exchange]:
        """The halo exchanges of a forward pass.

        Args:
            sparse: whether the features are sparse.
            fixed: whether the input is exchanged before training; that of other batches is in the first layer.
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
        """Whether a first layer starts from `A x`, which is computed once where x is dense and whole in every step.

        Args:
            conv: the conv of the first layer.
            sparse: whether the features are sparse.
        """
        return conv.starts_from_aggregate and not sparse and self.input_dropout == 0

    def walk(self, batch: Batch) -> Iterator[tuple[int, Layer, Adjacency | None]]:
        """(number, layer, operator of its aggregation, None for a dense layer) through the stack.

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
                        "the batch's edge norms are those of one direction: leave out directions=both, or the sampler's coverage"
                    )
                yield number, layer, block.adjacency(layer.kind)
                depth += 1

    def key(self, step: int, number: int) -> int | None:
        """What the dropout of a layer depends on beside node and column; None where nothing is dropped.

        Args:
            step: number of the optimizer step.
            number: number of the layer.
        """
        return mix_key(self.seed, step, number) if self.training else None

    def explain(self, batch: Batch) -> list[str]:
        """What the scheduler decides for each layer on such a batch, one line a layer.

        Args:
            batch: a batch such as training has.
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
        starts = number == 0 and layer.linear.starts_from_aggregate
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
