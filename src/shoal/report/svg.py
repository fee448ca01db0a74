"""Figures as SVG whose colours are CSS variables, so that one page serves light and dark screens.

A figure is drawn with sentinel colours (`INK`, `SERIES`, `HEAT` …); `render` puts the variables in their place. Text stays
text: it is small, can be selected and read aloud, and takes the page's font.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from shoal.errors import missing_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, CARD = "#010203", "#010204", "#010205", "#010206"
SERIES = tuple(f"#0102{number:02x}" for number in range(0x10, 0x19))
HEAT = tuple(f"#0102{number:02x}" for number in range(0x20, 0x28))
HEAT_INK = "#010207"  # on the darker half of HEAT
_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--line", CARD: "--card", HEAT_INK: "--heat-ink"}
_VARIABLES |= {colour: f"--s{number}" for number, colour in enumerate(SERIES)}
_VARIABLES |= {colour: f"--h{number}" for number, colour in enumerate(HEAT)}
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
WIDTH, HEIGHT = 440, 270  # of a chart, in units that a laptop shows as about 1.2 pixels and a phone as 0.8
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "shoal",
    "text.parse_math": False,  # names of classes and runs may hold a $
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "lines.linewidth": 2,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def has_matplotlib() -> bool:
    """Whether charts can be drawn here."""
    from importlib.util import find_spec

    return find_spec("matplotlib") is not None


def require_matplotlib(purpose: str) -> None:
    """Raise if matplotlib is missing, before any work is done."""
    if not has_matplotlib():
        raise missing_extra("matplotlib", "report", purpose)


@contextmanager
def drawing(width: float = WIDTH, height: float = HEIGHT) -> Iterator[Figure]:
    """A figure of a size in units of the page, in the page's style."""
    import matplotlib
    from matplotlib.figure import Figure as NewFigure

    with matplotlib.rc_context(_STYLE):
        yield NewFigure(figsize=(width / 72, height / 72), layout="constrained")


def label_ticks(axes: Axes, describe: Callable[[float], str]) -> None:
    """Several values on a logarithmic axis, 0.5 and 20 too, where powers of ten would be few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axes.get_ylim()
    subs: tuple[float, ...] = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    if high / low < 4:
        subs = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0)
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: describe(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def render(figure: Figure, title: str, description: str) -> str:
    """A figure as an <svg> element that scales with the page and has a title and a description."""
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(text, format="svg", metadata=nothing)
    width, height = (round(72 * size) for size in figure.get_size_inches())
    drawn = text.getvalue()
    drawn = drawn[drawn.index("<defs>") : drawn.rindex("</svg>")]
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r'<g id="[^"]*">', "<g>", drawn)
    drawn = re.sub(r"<!--.*?-->", "", drawn, flags=re.DOTALL)
    drawn = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", drawn)
    drawn = re.sub(
        r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d)\d+", r"\1", tag[0]), drawn
    )  # more digits than a screen shows
    drawn = re.sub(r"\s*\n\s*", "\n", drawn)
    for colour, variable in _VARIABLES.items():
        drawn = drawn.replace(colour, f"var({variable})")
    words = f"<title>{html.escape(title)}</title><desc>{html.escape(description)}</desc>"
    return f'<svg role="img" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">{words}{drawn}</svg>'
