"""The graphs Shoal can make by itself, by name; every one takes a seed and is a pure function of its settings."""

from collections.abc import Callable

from shoal.datasets.blocks import blocks
from shoal.datasets.digits import digits
from shoal.datasets.kronecker import kronecker
from shoal.graph import Graph

GENERATORS: dict[str, Callable[..., Graph]] = {"digits": digits, "blocks": blocks, "kronecker": kronecker}
