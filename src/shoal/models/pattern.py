"""Patterns of layers, such as `"1-0-1-0"` for orders and `"1024-512"` for widths, and checks of a stack's settings."""

from __future__ import annotations

from shoal.checks import check_whole
from shoal.errors import ShoalError
from shoal.models.conv import CONVS, Conv, conv_name

DEFAULT_LAYERS = 2
MAX_LAYERS = 1000  # of a stack, and of its classifier


def parse_orders(
    orders: str | int | None, num_layers: int | None, default: int = 1, later: int | None = None
) -> list[int]:
    """The order of every layer: `"1-0-1-0"` → [1, 0, 1, 0].

    Without a pattern every layer has the order `default`, or layers after the first have the order `later`.
    """
    if num_layers is not None:
        check_whole("num_layers", num_layers, 1, MAX_LAYERS)
    if orders is None:
        count = DEFAULT_LAYERS if num_layers is None else num_layers
        return [default] + [default if later is None else later] * (count - 1)
    parts = str(orders).split("-")
    if not all(part.isdecimal() and len(part) == 1 for part in parts):
        raise ShoalError(f"layer pattern {orders!r}: expected orders joined by '-', such as 1-0-1-0")
    if num_layers is not None and num_layers != len(parts):
        raise ShoalError(
            f"orders {orders} has {len(parts)} layers but num_layers is {num_layers}: leave num_layers out"
        )
    return [int(part) for part in parts]


def parse_widths(hidden: int | str, num_layers: int, num_classes: int | None = None) -> list[int]:
    """The width of every layer: one for all, or `"1024-512"` → [1024, 512]. If given, num_classes is the last width."""
    parts = str(hidden).split("-")
    if not all(part.isdecimal() and len(part) < 8 and int(part) > 0 for part in parts):
        raise ShoalError(
            f"hidden is {hidden}: expected a width of at least 1, or one for every layer, such as 512-256"
        )
    free = num_layers if num_classes is None else num_layers - 1
    if len(parts) not in (1, free):
        layers = f"each of {num_layers} layers"
        if num_classes is not None:
            layers = f"each of {free} layers before the last, which has one column per class because head_layers is 0"
        raise ShoalError(f"hidden {hidden} has {len(parts)} widths: expected one, or one for {layers}")
    widths = [int(part) for part in parts] * (free if len(parts) == 1 else 1)
    return widths if num_classes is None else [*widths, num_classes]


def find_orders(conv: type[Conv], orders: str | int | None, num_layers: int | None, head: int) -> list[int]:
    """The order of every layer of a conv's stack, checked. `head` is the number of classifier layers."""
    pattern = parse_orders(orders, num_layers, conv.default_order, 0 if conv.trains_on_rows else None)
    check_orders(conv, pattern)
    if conv.trains_on_rows and (pattern[0] == 0 or any(pattern[1:])):
        raise ShoalError(
            f"orders {orders} in a {conv_name(conv)} model: expected a first layer that reads the hops and dense ones after it, such as 1-0-0"
        )
    if conv.trains_on_rows and head == 0 and len(pattern) == 1:
        raise ShoalError(
            f"a {conv_name(conv)} model of one layer needs a classifier: set head_layers to 1 or more"
        )
    return pattern


def check_orders(conv: type[Conv], pattern: list[int]) -> None:
    """Raise if a pattern has orders that a conv does not support."""
    order = max(pattern)
    if order > conv.max_order:
        deeper = [name for name, other in CONVS.items() if other.kind and other.max_order >= order]
        verb = "has" if len(deeper) == 1 else "have"
        raise ShoalError(
            f"order {order} in a {conv_name(conv)} model: only {' and '.join(deeper)} {verb} orders above {conv.max_order}"
        )


def place_norm(norm_first: object) -> str | None:
    """The `norm_place` that the old setting `norm_first` means; None for the default."""
    if not isinstance(norm_first, bool):
        raise ShoalError(f"norm_first is {norm_first!r}: expected true, which is norm_place=conv, or false")
    return "conv" if norm_first else None


def check_head(head_layers: int, jumping: str, l2_normalize: bool) -> None:
    """Raise if jumping or l2_normalize is set without a classifier."""
    check_whole("head_layers", head_layers, 0, MAX_LAYERS)
    if head_layers == 0 and (jumping != "none" or l2_normalize):
        cause = "l2_normalize" if l2_normalize else f"jumping {jumping}"
        raise ShoalError(f"head_layers is 0 but {cause} needs a classifier: set head_layers to 1 or more")
