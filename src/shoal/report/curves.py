"""Curves of training: score and loss against epochs and seconds, runs overlaid, seeds as a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shoal.report.chart import Chart, Table, format_seconds, thin
from shoal.report.facts import Group
from shoal.report.svg import CARD, DASHES, SERIES, drawing, label_ticks, render

_POINTS = 240  # of a curve that are drawn
_ROWS = 24  # of a table
_LABELLED = 4  # curves up to which each has its name at its end
_SERIES = 6  # colours that curves use before dashes tell them apart


def style_of(number: int) -> dict[str, Any]:
    """Colour and dash of a group's curve."""
    return {
        "color": SERIES[number % _SERIES],
        "linestyle": DASHES[(number + number // _SERIES) % len(DASHES) if number >= _SERIES else 0],
    }


def draw_curves(groups: Sequence[Group]) -> list[Chart]:
    """Score and loss, each against epochs and against seconds."""
    metric = next((group.first.metric for group in groups if group.first.scores), None)
    charts = []
    if metric is not None:
        shown = f"validation {metric}"
        said = (
            f"Higher is better; the dot is the best evaluation of {'each' if len(groups) > 1 else 'the'} run."
        )
        if groups[0].first.lower_is_better:
            said = said.replace("Higher", "Lower")
        charts.append(_draw(groups, "scores", shown, "epoch", said))
        charts.append(
            _draw(groups, "scores", shown, "seconds", "The same against time: training and evaluation.")
        )
    if any(run.losses for group in groups for run in group.runs):
        said = "Training loss, mean of an epoch's steps, on a logarithmic axis."
        charts.append(_draw(groups, "losses", "training loss", "epoch", said))
        charts.append(_draw(groups, "losses", "training loss", "seconds", "The same against time."))
    return charts


def join_seeds(
    series: Sequence[Sequence[tuple[int, float, float]]], axis: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and deviation over seeds of (epoch, seconds, value), at the epochs or times that all seeds reached.

    Values between two evaluations are interpolated linearly. Returns (epochs or times, means, deviations).
    """
    column = 0 if axis == "epoch" else 1
    curves = [np.array(one, float) for one in series if len(one)]
    if not curves:
        return np.empty(0), np.empty(0), np.empty(0)
    first = max(curve[0, column] for curve in curves)
    last = min(curve[-1, column] for curve in curves)
    places = np.unique(np.concatenate([curve[:, column] for curve in curves]))
    places = places[(places >= first) & (places <= last)]
    if len(places) == 0:  # the seeds have no time in common
        curves = curves[:1]
        places = curves[0][:, column]
    values = np.stack([np.interp(places, curve[:, column], curve[:, 2]) for curve in curves])
    deviation = values.std(0, ddof=1) if len(curves) > 1 else np.zeros(len(places))
    return places, values.mean(0), deviation


def _draw(groups: Sequence[Group], name: str, what: str, axis: str, reading: str) -> Chart:
    by_time = axis == "seconds"
    title = f"{what[0].upper()}{what[1:]} against {'time' if by_time else 'epochs'}"
    rows: list[list[Any]] = []
    with drawing() as figure:
        axes = figure.add_subplot()
        unit, called = _choose_unit(groups) if by_time else (1.0, "epoch")
        ends: list[tuple[float, float, int]] = []
        for number, group in enumerate(groups):
            series = [getattr(run, name) for run in group.runs]
            places, mean, deviation = join_seeds(series, axis)
            if not len(places):
                continue
            kept = np.array(thin(range(len(places)), _POINTS))
            x = places[kept] / unit
            style = style_of(number)
            marker = "o" if len(kept) == 1 else None
            axes.plot(x, mean[kept], marker=marker, **style)
            if deviation.any():
                low, high = (mean + sign * deviation for sign in (-1, 1))
                if name == "losses":
                    low = np.maximum(low, mean / 10)
                axes.fill_between(x, low[kept], high[kept], color=style["color"], alpha=0.18, linewidth=0)
            if name == "scores" and len(group.runs) == 1 and (best := group.first.best) is not None:
                axes.plot(
                    [best[1] / unit if by_time else best[0]],
                    [best[2]],
                    marker="o",
                    markersize=7,
                    markeredgecolor=CARD,
                    **style,
                )
            ends.append((float(x[-1]), float(mean[kept][-1]), number))
            rows += _tabulate(group, places, mean, deviation, by_time)
        if name == "losses" and all(value > 0 for _, value, _ in ends) and ends:
            axes.set_yscale("log")
            label_ticks(axes, lambda value: f"{value:g}")
        axes.set_xlabel(called)
        axes.margins(x=0.02)
        if by_time:
            axes.set_xlim(left=0)
        if not by_time:
            axes.locator_params(axis="x", integer=True)
        if 1 < len(groups) <= _LABELLED and not by_time:  # against time a name would lie on other curves
            _label_ends(axes, ends, groups)
        svg = render(figure, title, f"{reading} {_summarize(groups, name)}")
    deviates = any(len(group.runs) > 1 for group in groups)
    if deviates:
        reading += " The band is the deviation over seeds."
    head = ("run", "seconds" if by_time else "epoch", what, *(("±",) if deviates else ()))
    shown = [row if deviates else row[:3] for row in rows]
    note = "Evenly chosen rows; metrics.jsonl has all."
    return Chart(f"{name}-{axis}", title, reading, svg, Table(head, shown, note))


def _choose_unit(groups: Sequence[Group]) -> tuple[float, str]:
    """The unit of a time axis in seconds, and its name."""
    longest = max((run.clock[-1] for group in groups for run in group.runs if run.clock), default=0.0)
    if longest > 3 * 3600:
        return 3600.0, "hours"
    return (60.0, "minutes") if longest > 300 else (1.0, "seconds")


def _label_ends(axes: Any, ends: list[tuple[float, float, int]], groups: Sequence[Group]) -> None:
    """Write names at the ends of curves, pushed apart where they would overlap."""
    axes.figure.draw_without_rendering()
    point = axes.figure.dpi / 72
    ends = sorted(ends, key=lambda end: end[1])
    heights = [float(axes.transData.transform((x, y))[1]) / point for x, y, _ in ends]
    for (x, y, number), height, shown in zip(ends, heights, _spread(heights, axes.bbox.y1 / point)):
        label = groups[number].label
        axes.annotate(
            label if len(label) <= 16 else f"{label[:15]}…",
            (x, y),
            xytext=(6, shown - height),
            textcoords="offset points",
            va="center",
            fontsize=11,
            color=style_of(number)["color"],
            annotation_clip=False,
        )


def _spread(heights: Sequence[float], top: float, gap: float = 14) -> list[float]:
    """Increasing heights at least `gap` apart, near those given and where possible not above `top`."""
    placed = list(heights)
    for k in range(1, len(placed)):
        placed[k] = max(placed[k], placed[k - 1] + gap)
    for k in reversed(range(len(placed))):
        placed[k] = min(placed[k], top - (len(placed) - 1 - k) * gap)
    return placed


def _tabulate(
    group: Group, places: np.ndarray, mean: np.ndarray, deviation: np.ndarray, by_time: bool
) -> list[list[Any]]:
    chosen = thin(range(len(places)), _ROWS)
    return [
        [
            group.label,
            f"{places[i]:.3f}" if by_time else f"{places[i]:.0f}",
            f"{mean[i]:.4f}",
            f"{deviation[i]:.4f}",
        ]
        for i in chosen
    ]


def _summarize(groups: Sequence[Group], name: str) -> str:
    """The chart in words, for screen readers."""
    said = []
    for group in groups[:8]:
        run = group.first
        if name == "scores" and run.best is not None:
            epoch, seconds, score = run.best
            said.append(f"{group.label}: best {score:.4f} in epoch {epoch} after {format_seconds(seconds)}.")
        elif name == "losses" and run.losses:
            said.append(f"{group.label}: from {run.losses[0][2]:.4g} to {run.losses[-1][2]:.4g}.")
    return " ".join(said)
