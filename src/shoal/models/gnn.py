"""GNN: a stack of convolution and dense layers with a classifier on top."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from shoal.batch import SAMPLE_LAYERS, Batch
from shoal.checks import check_positive
from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import drop_entries, dropout
from shoal.kernels.row_sets import Rows
from shoal.memory import given_budget, return_freed_memory
from shoal.models.conv import Conv, Draw, check_conv_options, conv_name, find_conv
from shoal.models.edges import make_batch
from shoal.models.kept_layers import KeptLayers
from shoal.models.layers import INPUT_NORMS, NORM_PLACES, NORMS, RESIDUALS, Layer, Output, normalize_rows
from shoal.models.layerwise import (
    ROWS_AT_ONCE,
    Input,
    LayerWork,
    Stored,
    count_rows,
    read_rows,
    recall_plan,
)
from shoal.models.mlp import Dense
from shoal.models.pattern import MAX_LAYERS, check_head, find_orders, parse_widths, place_norm
from shoal.models.stack import Stack
from shoal.models.two_way import DIRECTIONS, TwoWayConv
from shoal.scratch import Scratch
from shoal.settings import Choices, Null, Range, Rate, Seed, check_settings, list_settings

JUMPS = ("none", "concat", "max")


class GNN(Stack):
    """A graph neural network for node classification.

    Args:
        model: the conv of the layers, by its name in `CONVS` or as a class. `"mlp"` is the same stack without edges,
            the baseline to beat.
        in_features, num_classes: columns of the features, and of the logits.
        options: settings of the conv, such as `heads` of `"gat"`.

    A model is called with a Batch and returns one row of logits for each of the batch's output nodes. The result is a
    pure function of weights, batch, seed and step, the number of the optimizer step (by default `batch.step`).
    """

    @check_settings
    def __init__(
        self,
        model: str | type[Conv],
        in_features: int,
        hidden: Annotated[int | str, "width of all layers, or one for each, such as 1024-512"],
        num_classes: int,
        *,
        num_layers: Annotated[
            int | None, Range(1, MAX_LAYERS), Null("2, or as many as orders has"), "number of convolutions"
        ] = None,
        orders: Annotated[
            str | int | None,
            Null("num_layers convolutions"),
            "a pattern of layers such as 1-0-1-0: 0 is a dense layer, 2 and more mixhop's highest power of the adjacency",
        ] = None,
        norm: Annotated[str, Choices(NORMS), "normalisation of each layer"] = "layer",
        norm_place: Annotated[
            str,
            Choices(NORM_PLACES),
            "position of the norm: after the activation, between convolution and activation, or before the convolution "
            "(not in the first layer)",
        ] = "activation",
        dropout: Annotated[float, Rate, "dropout after each layer"] = 0.1,
        input_dropout: Annotated[float, Rate, "dropout of the features"] = 0.0,
        input_norm: Annotated[
            str, Choices(INPUT_NORMS), "rows: divide a node's features by the sum of their absolute values"
        ] = "none",
        residual: Annotated[
            str | bool,
            Choices(RESIDUALS),
            "identity: add a layer's input to its result, if both have the same width; "
            "linear: add the input times a weight matrix to the convolution's result",
        ] = "none",
        jumping: Annotated[
            str,
            Choices(JUMPS),
            "input of the classifier: the last layer, all layers concatenated, or their maximum",
        ] = "none",
        head_layers: Annotated[
            int, Range(0, MAX_LAYERS), "layers of the classifier; 0: the last convolution gives the logits"
        ] = 1,
        l2_normalize: Annotated[bool, "scale embeddings to length one before the classifier"] = False,
        directions: Annotated[
            str,
            Choices(DIRECTIONS),
            "edges to aggregate over: incoming ones, or incoming and outgoing ones with separate weights (directed graphs)",
        ] = "in",
        seed: Seed = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        if in_features == 0 or num_classes == 0:
            name, lacks = ("in_features", "features") if in_features == 0 else ("num_classes", "labels")
            raise ShoalError(f"{name} is 0: the graph has no {lacks}, and training needs them")
        check_positive(in_features=in_features, num_classes=num_classes)
        conv = find_conv(model)
        if "norm_first" in options:
            norm_place = place_norm(options.pop("norm_first")) or norm_place
        options = check_conv_options(conv, options, list_settings(GNN))
        check_head(head_layers, jumping, l2_normalize)
        if directions == "both" and conv.kind is None:
            raise ShoalError(f"{conv_name(conv)} reads no edges: leave out directions=both")
        self.model = conv_name(conv)
        self.directions = directions
        self.in_features = in_features
        self.num_classes = num_classes
        self.input_dropout = input_dropout
        self.input_norm = input_norm
        if input_norm != "none" and conv.trains_on_rows:
            raise ShoalError(
                f"{conv_name(conv)} reads hops, of which the features are only the first columns: leave out input_norm"
            )
        if isinstance(residual, bool):  # configurations may say true or false
            residual = "identity" if residual else "none"
        self.jumping = jumping
        self.l2_normalize = l2_normalize
        self.seed = seed
        self.layers = nn.ModuleList()
        self.head = nn.ModuleList()
        self.classifier = None
        width = in_features
        pattern = find_orders(conv, orders, num_layers, head_layers)
        has_classifier = head_layers > 0
        self.widths = parse_widths(hidden, len(pattern), None if has_classifier else num_classes)
        with torch.random.fork_rng(devices=[]):  # the caller's random state stays as it was
            torch.manual_seed(seed)
            for number, (order, out) in enumerate(zip(pattern, self.widths)):
                is_logits = not has_classifier and number == len(pattern) - 1
                linear: Conv
                if order == 0:
                    linear = Dense(width, out)
                else:
                    parts = conv.count_parts(order) if is_logits else 1
                    last = not any(pattern[number + 1 :])
                    convs = [
                        conv.make(width, parts * out, order=order, last=last, **options)
                        for _ in range(2 if directions == "both" else 1)
                    ]
                    linear = convs[0] if len(convs) == 1 else TwoWayConv(*convs)
                own = norm if number > 0 or norm_place != "input" else "none"
                self.layers.append(
                    Output(linear, out, own if norm_place == "input" else "none")
                    if is_logits
                    else Layer(linear, out, own, dropout, norm_place=norm_place, residual=residual)
                )
                width = out
            if jumping == "max" and len(set(self.widths)) > 1:
                raise ShoalError(f"jumping max with layers of widths {hidden}: expected equal widths")
            self.embedding_width = sum(self.widths) if jumping == "concat" else width
            width, out = self.embedding_width, width
            for _ in range(head_layers - 1):
                self.head.append(Layer(Dense(width, out), out, norm, dropout, norm_place=norm_place))
                width = out
            if has_classifier:
                self.classifier = nn.Linear(width, num_classes)

    def forward(
        self,
        batch: Batch | Tensor,
        edge_index: Tensor | None = None,
        edge_weight: Tensor | None = None,
        *,
        step: int | None = None,
    ) -> Tensor:
        """Logits of a batch's output nodes; or of all nodes, if called with PyG's `(x, edge_index)`.

        In PyG's form dropout follows torch's random state. A duplicate edge counts once, or with the sum of its weights.

        Args:
            batch: a Batch; or the features x (num_nodes, in_features) of all nodes.
            edge_index: (2, num_edges) of sources and targets, where x is given.
            edge_weight: a number above 0 for each edge. None: unweighted.
            step: number of the optimizer step, which dropout depends on. None: `batch.step`.
        """
        if not isinstance(batch, Batch):
            batch = make_batch(batch, edge_index, edge_weight, training=self.training)
        step = _find_step(batch, step)
        return self.classify(self.embed(batch, step), batch.n_id[: batch.num_outputs], step)

    def embed(self, batch: Batch, step: int | None = None) -> Tensor:
        """The classifier's input for the batch's output nodes, (num_outputs, embedding_width).

        Args:
            batch: the batch.
            step: number of the optimizer step, which dropout depends on. None: `batch.step`.
        """
        step = _find_step(batch, step)
        h, is_whole = self.prepare_input(batch.x, batch.n_id, step)
        outputs: list[Tensor] = []
        for number, layer, adj in self.walk(batch):
            known = None
            if number == 0 and is_whole and layer.kind is not None and layer.linear.starts_from_aggregate:
                known = batch.aggregate_input(layer.kind)
            key = self.key(step, number)
            draw = None if key is None else Draw(key, batch.n_id[: count_rows(h)])
            out = layer.multiply(adj, h, known, draw)
            h = layer.connect(layer.finish(out, batch.n_id[: out.shape[0]], key), h)
            outputs = [*outputs, h] if self.jumping != "none" else [h]
        if self.num_aggregations and outputs[-1].shape[0] != batch.num_outputs:
            raise ShoalError(
                f"the model aggregates {self.num_aggregations} times but the batch has {len(batch.blocks)} blocks: {SAMPLE_LAYERS}"
            )
        return self.jump([out[: batch.num_outputs] for out in outputs])

    def infer(
        self,
        whole: Batch,
        take: Callable[[Rows, Tensor], None],
        *,
        rows: Tensor | None = None,
        rows_at_once: int = ROWS_AT_ONCE,
        scratch: Scratch | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """`embed` for all nodes, or for those in the mask `rows`, layer by layer, in eval mode.

        Only the input and output of the current layer are kept. Only rows that the result depends on are computed.

        Args:
            whole: the batch of the whole graph.
            take: called as `take(rows, embedding)` with chunks of increasing rows.
            rows: mask of the nodes to embed. None: all.
            rows_at_once: rows in a chunk.
            scratch: where activations of a layer are kept. None: in memory.
            progress: called as `progress(done, total)` after each chunk.
        """
        dtype = next(self.parameters()).dtype
        layers = list(self.list_layers())
        pattern = whole.blocks[0]
        plan = recall_plan(pattern, [layer.linear.count_hops() for layer in layers], rows)
        chunks = -(-whole.num_nodes // rows_at_once)
        with ExitStack() as stack:
            scratch = stack.enter_context(Scratch()) if scratch is None else scratch
            kept = KeptLayers(scratch, whole.num_nodes, self.widths, self.jumping, dtype)
            for number in range(kept.find(), len(layers)):
                layer = layers[number]
                h: Stored = self.store_input(whole) if number == 0 else kept.input
                adj = None
                if layer.kind is not None:
                    adj = pattern.by_rows(layer.kind, scratch.claim)
                work = LayerWork(plan[number], scratch, rows_at_once, dtype)
                normal = work.normalize(h, layer.normalize_input) if layer.norm_place == "input" else None
                for some, out in layer.linear.infer(adj, h if normal is None else normal.tensor, work):
                    if given_budget() is not None:
                        return_freed_memory()  # chunks of many sizes fragment the heap
                    own = read_rows(h, some) if layer.reads_input else out
                    out = layer.connect(layer.finish(layer.add_projection(out, own)), own)
                    if number == len(layers) - 1:
                        take(some, self.jump(kept.read(some, out)))
                    else:
                        kept.write(number, some, out)
                    if progress is not None:
                        end = some.stop if isinstance(some, slice) else int(some[-1]) + 1
                        progress(number * chunks + -(-end // rows_at_once), chunks * len(layers))
                if normal is not None:
                    normal.close()
                kept.finish(number)

    def prepare_input(self, x: Input, n_id: Tensor, step: int) -> tuple[Input, bool]:
        """(features after normalisation and dropout, whether they are x itself).

        Args:
            x: features of the batch's nodes.
            n_id: global ids of the rows of x.
            step: number of the optimizer step.
        """
        h = x if self.input_norm == "none" else normalize_rows(x)
        key = self.key(step, len(self.layers) + len(self.head))
        if key is None or self.input_dropout == 0:
            return h, h is x
        if isinstance(h, Adjacency):
            return drop_entries(h, self.input_dropout, key, n_id), False
        return dropout(h, self.input_dropout, key, n_id), False

    def store_input(self, whole: Batch) -> Stored:
        """The features of a whole graph after normalisation. Encoded ones are decoded for it.

        Args:
            whole: the batch of the whole graph.
        """
        return whole.stored_x if self.input_norm == "none" else normalize_rows(whole.x)

    def jump(self, outputs: list[Tensor]) -> Tensor:
        """The embedding: the last layer's result, or all layers' results joined by `jumping`.

        Args:
            outputs: the result of each layer, the first layer's first.
        """
        if self.jumping == "concat":
            return torch.cat(outputs, dim=1)
        if self.jumping == "max":
            return torch.stack(outputs).amax(0)
        return outputs[-1]

    def classify(self, embedding: Tensor, n_id: Tensor | None = None, step: int = 0) -> Tensor:
        """Logits from embeddings. In training, dropout between the layers of the classifier depends on n_id and step.

        Args:
            embedding: (rows, embedding_width), as `embed` returns it.
            n_id: global ids of the rows, which dropout depends on. None outside of training.
            step: number of the optimizer step.
        """
        if self.l2_normalize:
            embedding = functional.normalize(embedding, dim=1)
        for number, layer in enumerate(self.head, len(self.layers)):
            assert isinstance(layer, Layer)
            embedding = layer.finish(layer.multiply(None, embedding), n_id, self.key(step, number))
        return embedding if self.classifier is None else self.classifier(embedding)


def _find_step(batch: Batch, step: int | None) -> int:
    return getattr(batch, "step", 0) if step is None else step
