"""Chart: a drawn figure, the sentence that says how to read it, and the numbers behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of figures below a head; `note` says what is left out."""

    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Chart:
    """One figure of a page.

    Attributes:
        key: its anchor in the page.
        reading: one sentence on how to read it.
        svg: the drawing.
        table: the numbers behind it.
    """

    key: str
    title: str
    reading: str
    svg: str
    table: Table = field(default_factory=lambda: Table((), ()))
    wide: bool = False


def format_seconds(seconds: float) -> str:
    """Seconds in a readable unit."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 100:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def thin(rows: Sequence[Any], most: int) -> list[Any]:
    """About `most` of the rows at most, evenly spaced, with the first and the last."""
    if len(rows) <= most:
        return list(rows)
    places = {round(number * (len(rows) - 1) / (most - 1)) for number in range(most)}
    return [rows[place] for place in sorted(places)]
