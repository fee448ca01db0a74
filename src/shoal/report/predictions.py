"""Charts of predictions: confusion of classes, the worst ones, and a regression's points."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.report.bars import Bar, draw_bars
from shoal.report.chart import Chart, Table
from shoal.report.heat import draw_matrix
from shoal.report.svg import MUTED, SERIES, drawing, render

MOST_CONFUSED = 24  # classes of a confusion matrix; of more, those that are confused most
_WORST = 12


def draw_predictions(outcomes: dict[str, Any]) -> list[Chart]:
    """Charts of a split's outcomes (`shoal.training.outcomes`)."""
    if not outcomes:
        return []
    if outcomes["task"] == "regression":
        numbers = range(len(outcomes["targets"]))
        draw = (_draw_points, _draw_errors)[: 2 if len(numbers) == 1 else 1]
        return [one(outcomes, number) for number in numbers for one in draw]
    charts = []
    if "confusion" in outcomes:
        charts.append(_draw_confusion(outcomes))
    charts.append(_draw_classes(outcomes))
    return charts


def name_classes(outcomes: dict[str, Any]) -> list[str]:
    """Names of the classes, or their numbers if they have no names."""
    names = outcomes.get("class_names")
    return [str(name) for name in names] if names else [str(n) for n in range(len(outcomes["hits"]))]


def score_classes(outcomes: dict[str, Any]) -> list[tuple[str, int, float, float, float]]:
    """(name, nodes, precision, recall, F1) of every class that any node has, the worst F1 first."""
    rows = []
    for name, hits, false, missed in zip(
        name_classes(outcomes), outcomes["hits"], outcomes["false"], outcomes["missed"]
    ):
        if hits + missed:
            precision = hits / max(hits + false, 1)
            rows.append(
                (
                    name,
                    hits + missed,
                    precision,
                    hits / (hits + missed),
                    2 * hits / (2 * hits + false + missed),
                )
            )
    return sorted(rows, key=lambda row: (row[4], row[0]))


def tabulate_confused(outcomes: dict[str, Any], most: int = 10) -> Table | None:
    """A table of the most frequent confusions."""
    names = name_classes(outcomes) if outcomes.get("task") == "single-label" else []
    pairs = outcomes.get("confused")
    if "confusion" in outcomes:
        pairs = [
            [true, answered, number]
            for true, row in enumerate(outcomes["confusion"])
            for answered, number in enumerate(row)
            if true != answered and number
        ]
    if not pairs:
        return None
    worst = sorted(pairs, key=lambda pair: -pair[2])[:most]
    rows = [[names[true], names[answered], f"{number:,}"] for true, answered, number in worst]
    return Table(("class", "taken for", "nodes"), rows)


def _draw_confusion(outcomes: dict[str, Any]) -> Chart:
    counts, names = np.array(outcomes["confusion"], float), name_classes(outcomes)
    note, size = "", len(counts)
    if size > MOST_CONFUSED:
        wrong = counts.sum(0) + counts.sum(1) - 2 * np.diag(counts)
        kept = np.sort(np.argsort(-wrong, kind="stable")[:MOST_CONFUSED])
        counts, names = counts[np.ix_(kept, kept)], [names[i] for i in kept]
        note = f" The {MOST_CONFUSED} of {size} classes that are confused most."
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    title = f"Confusion matrix, {outcomes['split']} nodes"
    reading = (
        f"Row: the true class. Column: the predicted one. Numbers are nodes, shades shares of the row.{note}"
    )
    svg = draw_matrix(
        counts,
        names,
        title=title,
        description=f"{reading} {np.trace(counts):,.0f} of {counts.sum():,.0f} nodes are on the diagonal.",
        axes=("predicted class", "true class"),
        write=lambda value: f"{value:,.0f}" if value else "",
        shade=shares,
    )
    rows = [[name, *(f"{int(value):,}" for value in row)] for name, row in zip(names, counts)]
    return Chart("confusion", title, reading, svg, Table(["true ↓ predicted →", *names], rows))


def _draw_classes(outcomes: dict[str, Any]) -> Chart:
    rows = score_classes(outcomes)
    shown = rows[:_WORST]
    title = "Worst classes" if len(rows) > len(shown) else "Classes, the worst first"
    reading = f"F1 on {outcomes['split']} nodes, and how many nodes have the class."
    bars = [Bar(name, score, f"{score:.3f} · {nodes:,}") for name, nodes, _, _, score in shown]
    said = "; ".join(f"{bar.name} {bar.value:.3f}" for bar in bars)
    axis = ("F1", (0, 0.25, 0.5, 0.75, 1))
    svg = draw_bars(bars, title, f"{reading} {said}.", room=0.32, longest=1.0, axis=axis)
    table = [
        [name, f"{nodes:,}", f"{precision:.4f}", f"{recall:.4f}", f"{score:.4f}"]
        for name, nodes, precision, recall, score in rows[:200]
    ]
    note = f"The first 200 of {len(rows):,} classes." if len(rows) > 200 else ""
    return Chart(
        "classes", title, reading, svg, Table(("class", "nodes", "precision", "recall", "F1"), table, note)
    )


def _draw_errors(outcomes: dict[str, Any], number: int) -> Chart:
    points = np.array(outcomes["targets"][number]["points"], float).reshape(-1, 2)
    errors = points[:, 1] - points[:, 0]
    title = "Errors"
    reading = (
        "Predicted minus true: a peak away from 0 is a bias, a long tail is a few nodes that are far off."
    )
    counts, edges = np.histogram(errors, bins=min(30, max(5, len(errors) // 10)))
    with drawing(height=340) as figure:
        axes = figure.add_subplot()
        axes.bar(edges[:-1], counts, np.diff(edges) * 0.94, align="edge", color=SERIES[0])
        axes.axvline(0, color=MUTED, linewidth=1)
        axes.set_xlabel("predicted minus true")
        axes.set_ylabel("nodes")
        axes.grid(visible=False, axis="x")
        svg = render(figure, title, f"{reading} Mean {errors.mean() if len(errors) else 0:.4g}.")
    rows = [[f"{low:.4g} to {high:.4g}", str(n)] for low, high, n in zip(edges[:-1], edges[1:], counts)]
    return Chart("errors", title, reading, svg, Table(("error", "nodes"), rows))


def _draw_points(outcomes: dict[str, Any], number: int) -> Chart:
    target = outcomes["targets"][number]
    points = np.array(target["points"], float).reshape(-1, 2)
    names = outcomes.get("class_names")
    called = "" if len(outcomes["targets"]) == 1 else f", target {names[number] if names else number}"
    title = f"Predicted against true{called}"
    known = max(target["known"], 1)
    error = (target["squared"] / known) ** 0.5
    reading = f"{outcomes['split'].capitalize()} nodes: points on the line are exact. Root mean squared error {error:.4g}."
    with drawing(height=340) as figure:
        axes = figure.add_subplot()
        if len(points):
            low, high = float(points.min()), float(points.max())
            axes.plot([low, high], [low, high], color=MUTED, linewidth=1)
        axes.scatter(points[:, 0], points[:, 1], s=12, color=SERIES[0], alpha=0.5, linewidth=0)
        axes.set_xlabel("true")
        axes.set_ylabel("predicted")
        svg = render(figure, title, reading)
    table = Table(
        ("figure", "value"),
        [
            ["nodes with a target", f"{int(target['known']):,}"],
            ["mean absolute error", f"{target['absolute'] / known:.5g}"],
            ["root mean squared error", f"{error:.5g}"],
            ["R²", f"{1 - target['squared'] / max(target['spread'], 1e-300):.4f}"],
            ["points shown", f"{len(points):,}"],
        ],
    )
    return Chart(f"points-{number}", title, reading, svg, table)
