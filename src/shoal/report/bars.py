"""Horizontal bars with names on the left and values at their ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoal.report.svg import INK, SERIES, drawing, render

_LONGEST = 28  # letters of a name


@dataclass(frozen=True)
class Bar:
    """A value with its name; `said` is the text at its end."""

    name: str
    value: float
    said: str
    colour: str = SERIES[0]
    alpha: float = 1.0


def draw_bars(
    bars: Sequence[Bar],
    title: str,
    description: str,
    *,
    room: float,
    longest: float | None = None,
    axis: tuple[str, Sequence[float]] | None = None,
) -> str:
    """Bars below each other.

    Args:
        room: space for the texts at the ends, as a share of `longest`.
        longest: the longest bar possible; None for the longest of these.
        axis: name and ticks of an axis below, if any.
    """
    longest = longest if longest is not None else max(bar.value for bar in bars)
    with drawing(height=52 + 27 * len(bars) + (20 if axis else 0)) as figure:
        axes = figure.add_subplot()
        for number, bar in enumerate(bars):
            axes.barh(number, bar.value, 0.66, color=bar.colour, alpha=bar.alpha)
            write_beside(axes, bar.said, bar.value, number)
        name_bars(axes, [bar.name for bar in bars])
        axes.set_xlim(0, (1 + room) * longest)
        axes.set_xticks([] if axis is None else axis[1])
        axes.set_xlabel("" if axis is None else axis[0])
        axes.spines["bottom"].set_visible(axis is not None)
        return render(figure, title, description)


def write_beside(axes: Any, text: str, end: float, number: int) -> None:
    """Write a text at the end of a bar."""
    where = {"xytext": (5, 0), "textcoords": "offset points", "va": "center"}
    axes.annotate(text, (end, number), **where, fontsize=11, color=INK)


def name_bars(axes: Any, names: Sequence[str]) -> None:
    """Write the names of bars, the first on top."""
    shown = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names]
    axes.set_yticks(range(len(names)), shown)
    axes.tick_params(axis="y", length=0, labelcolor=INK)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
