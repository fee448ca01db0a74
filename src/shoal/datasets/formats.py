"""The registry of file formats. A format is a function that reads a path into a Graph.

@FORMATS.named("pairs")
@recognised(lambda path: path.suffix == ".pairs")
def read_pairs(path: Path, *, directed: bool | None, name: str | None, progress: Progress,
               skip: Annotated[int, AtLeast(0), "lines to skip"] = 0) -> Graph: ...
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from shoal.registry import Registry

if TYPE_CHECKING:
    from shoal.graph import Graph

F = TypeVar("F", bound=Callable[..., Any])
Progress: TypeAlias = Callable[[str], None]
Reader: TypeAlias = "Callable[..., Graph]"

FORMATS: Registry[Reader] = Registry("format", "shoal.datasets.importers")


class Recognition(NamedTuple):
    """How a format recognises its paths; formats of lower priority are tried first."""

    matches: Callable[[Path], bool] = lambda path: False
    priority: int = 50


def recognised(matches: Callable[[Path], bool], priority: int = 50) -> Callable[[F], F]:
    """A decorator that declares which paths a reader recognises; without it a format must be named (`--format`).

    Args:
        matches: whether a path has the format.
        priority: formats of lower priority are tried first.
    """

    def attach(reader: F) -> F:
        reader.recognition = Recognition(matches, priority)  # type: ignore[attr-defined]
        return reader

    return attach


def recognise(path: Path) -> str | None:
    """The name of the first format that recognises `path`; None if none does."""

    def ask(name: str) -> Recognition:
        found: Recognition = getattr(FORMATS[name], "recognition", Recognition())
        return found

    ordered = sorted(FORMATS, key=lambda name: ask(name).priority)
    return next((name for name in ordered if ask(name).matches(path)), None)
