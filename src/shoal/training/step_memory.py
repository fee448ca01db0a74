"""Memory of a training step: activations, operators and `A x` of a graph or part, and copies of weights."""

from __future__ import annotations

from torch import nn

from shoal.models.gnn import GNN
from shoal.models.layers import Layer

VALUE = 4  # bytes
_WEIGHT_COPIES = 6  # weight, gradient, Adam's two moments, best and last weights


def list_layers(model: nn.Module) -> list[Layer]:
    """The layers of a GNN; empty for other models."""
    return list(model.list_layers()) if isinstance(model, GNN) else []


def count_row(model: nn.Module) -> int:
    """Values per row that a model's layers hold: three per column of every result, one more while a linear residual is
    added, and normalised inputs."""
    layers = list_layers(model)
    widths = model.widths if isinstance(model, GNN) else []
    added = max((width for layer, width in zip(layers, widths) if layer.residual is not None), default=0)
    normal = sum(layer.linear.in_features for layer in layers if layer.norm_place == "input")
    return 3 * sum(widths) + added + normal


def count_prepared(model: nn.Module, *, sparse: bool) -> int:
    """Values per row of the copy that a model makes of dense features in a step: normalised, dropped, or both."""
    is_copied = getattr(model, "input_norm", "none") != "none" or getattr(model, "input_dropout", 0.0) > 0
    return int(getattr(model, "in_features", 0)) if is_copied and not sparse else 0


def keeps_aggregate(model: nn.Module, *, sparse: bool) -> bool:
    """Whether a model's first layer starts from a precomputed `A x` of dense features."""
    starts = (one.kind is not None and one.linear.starts_from_aggregate for one in list_layers(model))
    return next(starts, False) and not sparse and getattr(model, "input_norm", "none") == "none"


def count_whole(
    model: nn.Module,
    rows: int,
    entries: int,
    num_features: int,
    *,
    sparse: bool,
    weighted: bool = False,
    halo: int = 0,
    more: int = 0,
) -> tuple[int, int]:
    """(bytes of a step's activations on all `rows` and `halo` rows, bytes held throughout: operators and `A x`).

    `more` is the number of entries in halo columns.
    """
    width = getattr(model, "in_features", 0)
    joined = 2 * width if width > num_features else 0  # features with label columns, and their `A x`
    known = rows * (joined + (num_features if keeps_aggregate(model, sparse=sparse) else 0))
    kept = VALUE * ((6 if weighted else 2) * (entries + more) + known)
    prepared = rows * count_prepared(model, sparse=sparse)  # x itself is not copied
    attended = (rows + entries + more) * count_entry(model)
    return VALUE * ((rows + halo) * count_row(model) + prepared + attended), kept


def count_entry(model: nn.Module) -> int:
    """Values that a step of a GNN keeps for every entry of its operators, as attention does."""
    return sum(layer.linear.values_per_entry for layer in list_layers(model))


def count_weights(model: nn.Module) -> int:
    """Bytes of all copies of a model's weights."""
    return VALUE * _WEIGHT_COPIES * sum(weight.numel() for weight in model.parameters())
