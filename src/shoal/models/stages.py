"""Stages: a stack cut where halo rows are read, so that parts can be computed one after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from shoal.errors import ShoalError
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.fused import dropout
from shoal.models.conv import ConvStep, Draw
from shoal.models.gnn import GNN
from shoal.models.layers import Layer
from shoal.models.layerwise import Input, select_rows

FEATURES = 0  # the value that the first stage reads; value i + 1 is the result of stage i


class StageInput(NamedTuple):
    """The input of a stage for one part.

    Attributes:
        adj: the part's operator over its local and halo rows; None for a stage without one.
        source: the rows that the operator reads, local rows first.
        others: local rows of other values.
        known: local rows of the precomputed `A x`, for a stage that starts from it.
        ids: global ids of the source's rows; of local rows only, if halo rows need no random numbers.
        num_rows: number of local rows.
        step: number of the optimizer step.
        drops: whether the stage applies dropout to its result. If it has a `drop`, the caller may do so instead.
    """

    adj: Adjacency | None
    source: Input
    others: list[Input]
    known: Tensor | None
    ids: Tensor
    num_rows: int
    step: int
    drops: bool = True

    @property
    def n_id(self) -> Tensor:
        """Global ids of the rows that the stage computes."""
        return self.ids[: self.num_rows]

    @property
    def own(self) -> Input:
        """Local rows of the source."""
        return select_rows(self.source, slice(0, self.num_rows))


@dataclass(frozen=True)
class Stage:
    """A piece of a stack's forward pass that reads halo rows only at its beginning.

    Attributes:
        layer: its layer, counted from 1; the classifier comes after the last layer.
        kind: the aggregation; None for a stage that reads local rows only.
        source: the value it reads, with halo rows if it aggregates.
        others: further values of which it reads local rows.
        width: columns of its result.
        run: computes the result.
        knows: whether it starts from the precomputed `A x`: nothing is aggregated.
        norm: its batch norm. Its sums over all parts are computed before the result.
        inner: columns of its widest intermediate matrix.
        per_entry: values it keeps for every entry of the operator, as attention does.
        draws: whether its random numbers depend on the ids of halo rows too.
        drop: `drop(result, ids, step)` applies the dropout of its result; None if there is none.
    """

    layer: int
    kind: str | None
    source: int
    others: tuple[int, ...]
    width: int
    run: Callable[[StageInput], Tensor]
    knows: bool = False
    norm: nn.BatchNorm1d | None = None
    inner: int = 0
    per_entry: int = 0
    draws: bool = False
    drop: Callable[[Tensor, Tensor, int], Tensor] | None = None

    @property
    def is_wide(self) -> bool:
        """Whether it reads halo rows."""
        return self.kind is not None and not self.knows


def list_stages(model: nn.Module, *, sparse: bool) -> list[Stage]:
    """The stages of a forward pass; the last one gives the logits. `sparse` features have no precomputed `A x`."""
    if not isinstance(model, GNN):
        raise ShoalError(
            f"swapped parts and histories need a stack of convs, and {type(model).__name__} is none: "
            "it does not declare where it reads halo rows"
        )
    stages: list[Stage] = []
    h, results = FEATURES, []
    for number, layer in enumerate(model.list_layers()):
        steps = layer.linear.steps()
        source = h
        if (
            layer.norm_place == "input" and layer.kind is not None
        ):  # halo rows are normalised by their own part
            width = layer.linear.in_features
            stages.append(
                Stage(number + 1, None, h, (), width, partial(_run_norm, layer), norm=_find_norm(layer))
            )
            source = len(stages)
        raw = (h,) if source != h and layer.reads_input else ()
        for place, step in enumerate(steps):
            is_last = place == len(steps) - 1
            knows = number == 0 and len(steps) == 1 and layer.kind is not None
            stages.append(
                Stage(
                    number + 1,
                    layer.kind,
                    source if place == 0 else len(stages),
                    (() if place == 0 else (source,)) + (raw if is_last else ()),
                    model.widths[number] if is_last else step.width,
                    partial(_run_step, model, number, layer, step, place == 0, is_last),
                    knows and model.knows_aggregate(layer.linear, sparse),
                    _find_norm(layer) if is_last and source == h else None,
                    layer.linear.out_features,
                    layer.linear.values_per_entry,
                    layer.linear.draws,
                    _find_drop(model, number, layer) if is_last else None,
                )
            )
        h = len(stages)
        results.append(h)
    read = results if model.jumping != "none" else results[-1:]
    if stages[-1].norm is None and not any(_find_norm(layer) for layer in model.head):
        return [*stages[:-1], _join_classifier(model, stages[-1], tuple(read[:-1]))]
    return [*stages, *_list_head(model, tuple(read), len(stages))]


def _run_norm(layer: Layer, given: StageInput) -> Tensor:
    normal = layer.normalize_input(given.source)
    assert isinstance(normal, Tensor)
    return normal


def _run_step(
    model: GNN, number: int, layer: Layer, step: ConvStep, is_first: bool, is_last: bool, given: StageInput
) -> Tensor:
    if layer.kind is None:
        return _run_dense(model, number, layer, given.source, given)
    own = given.own if is_first else given.others[0]
    key = model.key(given.step, number)
    if given.known is not None or layer.linear.draws:
        draw = None if key is None else Draw(key, given.ids)
        out = layer.convolve(given.adj, given.source, given.known, draw)
    else:
        out = step.compute(given.adj, given.source, own)  # type: ignore[arg-type]
    if not is_last:
        return out
    before = (
        given.others[-1] if given.others else own
    )  # the layer's input before the norm, if a separate stage computed that norm
    out = layer.finish(layer.add_projection(out, before), given.n_id, key if given.drops else None)
    return layer.connect(out, before)


def _run_dense(model: GNN, number: int, layer: Layer, h: Input, given: StageInput) -> Tensor:
    key = model.key(given.step, number) if given.drops else None
    return layer.connect(layer.finish(layer.multiply(None, h), given.n_id, key), h)


def _join_classifier(model: GNN, last: Stage, jumps: tuple[int, ...]) -> Stage:
    """The last layer and the classifier in one stage, so that the layer's result is never written."""
    before = len(last.others)

    def run(given: StageInput) -> Tensor:
        out = last.run(given._replace(others=given.others[:before]))
        return model.classify(model.jump([*given.others[before:], out]), given.n_id, given.step)  # type: ignore[list-item]

    return replace(last, others=(*last.others, *jumps), width=model.num_classes, run=run, drop=None)


def _list_head(model: GNN, read: tuple[int, ...], count: int) -> list[Stage]:
    """The classifier alone, one stage per layer."""
    stages: list[Stage] = []
    for number, layer in enumerate(model.head, len(model.layers)):
        assert isinstance(layer, Layer)
        run = partial(_run_head, model, number, layer, not stages)
        width = layer.linear.out_features
        stages.append(Stage(number + 1, None, read[-1], read[:-1], width, run, norm=_find_norm(layer)))
        read = (count + len(stages),)
    run = partial(_run_classifier, model, not stages)
    layers = len(model.layers) + len(model.head)
    return [*stages, Stage(layers + 1, None, read[-1], read[:-1], model.num_classes, run)]


def _run_head(model: GNN, number: int, layer: Layer, is_first: bool, given: StageInput) -> Tensor:
    h = _embed(model, given) if is_first else given.source
    return _run_dense(model, number, layer, h, given)


def _run_classifier(model: GNN, is_first: bool, given: StageInput) -> Tensor:
    h = _embed(model, given) if is_first else given.source
    assert isinstance(h, Tensor)
    return h if model.classifier is None else model.classifier(h)


def _embed(model: GNN, given: StageInput) -> Tensor:
    embedding = model.jump([*given.others, given.source])  # type: ignore[list-item]
    return functional.normalize(embedding, dim=1) if model.l2_normalize else embedding


def _find_drop(model: GNN, number: int, layer: Layer) -> Callable[[Tensor, Tensor, int], Tensor] | None:
    """The dropout of a layer's result; None if the result includes an identity residual, which has no dropout."""
    if layer.dropout == 0 or layer.adds_input:
        return None

    def drop(value: Tensor, ids: Tensor, step: int) -> Tensor:
        key = model.key(step, number)
        return value if key is None else dropout(value, layer.dropout, key, ids)

    return drop


def _find_norm(layer: nn.Module) -> nn.BatchNorm1d | None:
    norm = getattr(layer, "norm", None)
    return norm if isinstance(norm, nn.BatchNorm1d) else None
