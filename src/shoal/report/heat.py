"""Heat maps of matrices, in eight shades."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shoal.report.svg import HEAT, HEAT_INK, INK, drawing, render

_WRITTEN = 12  # rows up to which every square has its number
_LABELLED = 32


def draw_matrix(
    values: np.ndarray,
    names: Sequence[str],
    *,
    title: str,
    description: str,
    axes: tuple[str, str],
    write: Callable[[float], str],
    shade: np.ndarray | None = None,
) -> str:
    """A square matrix, its first row on top. `shade` in 0 … 1 sets the colours; by default it is `values` over the largest.

    All squares of a shade are one path, which keeps files of large matrices small.
    """
    from matplotlib.collections import PolyCollection

    size = len(values)
    shade = values / max(values.max(), 1e-300) if shade is None else shade
    levels = np.where(shade > 0, np.clip(np.ceil(shade * (len(HEAT) - 1)), 1, len(HEAT) - 1), 0).astype(int)
    longest = max(len(name) for name in names)
    with drawing(height=380) as figure:
        place = figure.add_subplot()
        gap = 0.04 if size <= _LABELLED else 0.0
        for level, colour in enumerate(HEAT):
            rows, columns = np.nonzero(levels == level)
            squares = [
                [
                    (c + gap, r + gap),
                    (c + 1 - gap, r + gap),
                    (c + 1 - gap, r + 1 - gap),
                    (c + gap, r + 1 - gap),
                ]
                for r, c in zip(rows.tolist(), columns.tolist())
            ]
            if squares:
                place.add_collection(PolyCollection(squares, facecolor=colour, edgecolor="none"))
        if size <= _WRITTEN:
            for r in range(size):
                for c in range(size):
                    ink = HEAT_INK if levels[r, c] > len(HEAT) // 2 else INK
                    said = write(float(values[r, c]))
                    small = 10 if size <= 8 else 9
                    place.text(c + 0.5, r + 0.5, said, ha="center", va="center", fontsize=small, color=ink)
        place.set_xlim(0, size)
        place.set_ylim(size, 0)
        place.set_aspect("equal")
        place.grid(visible=False)
        for spine in place.spines.values():
            spine.set_visible(False)
        step = 1 if size <= _LABELLED else -(-size // _LABELLED)
        ticks = np.arange(0, size, step)
        shown = [name if len(name) <= 12 else f"{name[:11]}…" for name in names]
        fontsize = 10 if size <= 16 else 8
        place.set_yticks(ticks + 0.5, [shown[i] for i in ticks], fontsize=fontsize)
        turned = 90 if longest > 3 and size > 4 else 0
        place.set_xticks(ticks + 0.5, [shown[i] for i in ticks], fontsize=fontsize, rotation=turned)
        place.tick_params(length=0)
        place.set_xlabel(axes[0])
        place.set_ylabel(axes[1])
        return render(figure, title, description)
