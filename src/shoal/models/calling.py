"""How a model is called: with a Batch, or with the `(x, edge_index)` that PyG models take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from shoal.batch import Batch
from shoal.errors import ShoalError
from shoal.joining import join_layers
from shoal.memory import memory_left
from shoal.wording import format_bytes

EXPECTED = "expected forward(batch) or forward(x, edge_index), optionally with edge_weight"
_TENSORS = ("x", "input")  # names of a single argument that is not a Batch
_EMPTY = inspect.Parameter.empty


class Convention(NamedTuple):
    """The arguments of a module's forward.

    Attributes:
        edges: it takes `(x, edge_index)` instead of a Batch.
        weights: it also takes `edge_weight`; PyG's models that would ignore it have `supports_edge_weight = False`.
        needs_weights: `edge_weight` has no default.
    """

    edges: bool = False
    weights: bool = False
    needs_weights: bool = False


def find_convention(model: nn.Module) -> Convention:
    """How to call a module, from the signature of its forward; any other signature is an error.

    A forward with a required parameter `edge_index` is called with `(x, edge_index)`, and with `edge_weight` if it has
    that parameter. A forward with one required parameter is called with the Batch.
    """
    declared = getattr(getattr(model, "signature", None), "param_dict", None)  # of a PyG Sequential
    if isinstance(declared, Mapping):
        return _read_parameters(tuple((name, True) for name in declared), type(model).__name__)
    kind: Any = type(model)
    found = _read_forward(kind)
    return found if getattr(model, "supports_edge_weight", True) else found._replace(weights=False)


@lru_cache(maxsize=256)
def _read_forward(kind: Any) -> Convention:
    """The convention of a class. A forward with `*args` or `**kwargs` and no `edge_index` takes a Batch."""
    if kind.forward is nn.Module.forward:
        raise ShoalError(f"{kind.__name__} has no forward: {EXPECTED}")
    parameters = list(inspect.signature(kind.forward).parameters.values())[1:]
    plain = [one for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    if len(plain) < len(parameters) and not any(one.name == "edge_index" for one in plain):
        return Convention()
    takes_tensor = [one.name in _TENSORS or one.annotation in (Tensor, "Tensor") for one in plain]
    if takes_tensor == [True]:
        raise ShoalError(f"{kind.__name__} has forward({plain[0].name}): {EXPECTED}")
    return _read_parameters(tuple((one.name, one.default is _EMPTY) for one in plain), kind.__name__)


def find_widths(model: nn.Module) -> tuple[int | None, int | None]:
    """(input columns, output columns) that a model declares, as Shoal's and PyG's models do; None if undeclared."""
    found = []
    for names in (("in_features", "in_channels"), ("num_classes", "out_channels")):
        width = next((getattr(model, name) for name in names if hasattr(model, name)), None)
        found.append(width if type(width) is int and width > 0 else None)
    return found[0], found[1]


def _read_parameters(parameters: tuple[tuple[str, bool], ...], name: str) -> Convention:
    required = [parameter for parameter, is_required in parameters if is_required]
    if "edge_index" in required:
        if required[1:] not in (["edge_index"], ["edge_index", "edge_weight"]):
            raise ShoalError(f"{name} has forward({', '.join(required)}): {EXPECTED}")
        names = [parameter for parameter, _ in parameters]
        return Convention(True, "edge_weight" in names, "edge_weight" in required)
    if len(required) > 1 or not parameters:
        raise ShoalError(f"{name} has forward({', '.join(required)}): {EXPECTED}")
    return Convention()


def call_model(model: nn.Module, batch: Batch, num_classes: int = 0) -> Tensor:
    """The model's logits for the batch's output nodes. The signature decides how it is called (`find_convention`).

    The logits must have a row per node, and `num_classes` columns if that is given. A model that takes
    `(x, edge_index)` gets a dense x, and the blocks of a layered batch as one graph (`join_layers`). Its `edge_weight`
    is the graph's edge weights times the sampler's edge norms. If there are neither, it gets ones, or the default.
    """
    convention = find_convention(model)
    logits: Any
    if convention.edges:
        batch = join_layers(batch)
        options: dict[str, Tensor] = {}
        factors = [one for one in (batch.edge_norm, batch.edge_weight) if one is not None]
        if convention.weights and factors:
            options["edge_weight"] = factors[0] if len(factors) == 1 else factors[0] * factors[1]
        elif convention.needs_weights:
            options["edge_weight"] = torch.ones(batch.edge_index.shape[1])
        logits = model(batch.dense_x, batch.edge_index, **options)
        rows = batch.num_nodes
    else:
        logits, rows = model(batch), batch.num_outputs
    _check_logits(model, logits, rows, num_classes)
    return logits[: batch.num_outputs] if convention.edges else logits


def count_one_pass(model: nn.Module, whole: Batch) -> int:
    """Estimated bytes of calling a model with a whole graph's `(x, edge_index)`; 0 for a model that takes a Batch.

    That is x, edge_index, and a message per edge, as wide as the widest weight matrix.
    """
    if not find_convention(model).edges:
        return 0
    widest = max((max(weight.shape) for weight in model.parameters() if weight.dim() > 1), default=1)
    return _count_input(whole) + 4 * widest * (whole.num_edges + whole.num_nodes)


def check_one_pass(model: nn.Module, whole: Batch) -> None:
    """Raise if a model takes `(x, edge_index)` and those of the whole graph do not fit in memory."""
    if not find_convention(model).edges:
        return
    size, left = _count_input(whole), memory_left()
    if size > left:
        raise ShoalError(
            f"{type(model).__name__} computes the whole graph in one pass, but x and edge_index alone take "
            f"{format_bytes(size)} and {format_bytes(left)} are left: train a shoal.GNN, which computes layer by layer"
        )


def _count_input(whole: Batch) -> int:
    """Bytes of a graph's dense x and its edge_index."""
    return 4 * whole.num_nodes * whole.graph.num_features + 16 * whole.num_edges


def _check_logits(model: nn.Module, logits: Any, rows: int, classes: int) -> None:
    """Raise unless a model's output is a tensor of logits with a row per node."""
    name = type(model).__name__
    if not isinstance(logits, Tensor):
        raise ShoalError(f"{name} returned a {type(logits).__name__}: expected a tensor of logits")
    if logits.dim() != 2 or logits.shape[0] != rows:
        raise ShoalError(
            f"{name} returned a tensor of shape {tuple(logits.shape)}: expected {rows:,} rows of logits, one per node"
        )
    if classes and logits.shape[1] != classes:
        raise ShoalError(f"{name} returned {logits.shape[1]:,} columns: expected {classes:,}, one per class")
