"""Graph generators, one file each. A generated graph is a pure function of the settings, which include a seed.

Names and settings are known without NumPy; a generator imports what it needs when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from shoal.registry import Registry

if TYPE_CHECKING:
    from shoal.graph import Graph

GENERATORS: Registry[Callable[..., Graph]] = Registry("generator", "shoal.datasets.generators")
