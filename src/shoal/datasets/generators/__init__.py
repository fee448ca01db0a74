"""The graphs Shoal can make by itself, one file each; every one is a pure function of its settings, of which one is a seed.

Their names and settings are known without NumPy: what draws a graph is imported when one is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.registry import Registry

if TYPE_CHECKING:
    from shoal.graph import Graph

GENERATORS: Registry[Callable[..., Graph]] = Registry("generator", "shoal.datasets.generators")
