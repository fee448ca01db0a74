"""Batches compared with the graph they are drawn from: degrees as a chart, other measures as a table."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from shoal.report.chart import Chart, Table
from shoal.report.svg import INK, SERIES, drawing, render
from shoal.wording import count

_MEASURES = (
    ("nodes", "nodes", ",.0f"),
    ("edges", "directed edges", ",.0f"),
    ("mean_degree", "mean degree", ".2f"),
    ("clustering", "clustering coefficient", ".3f"),
    ("assortativity", "degree assortativity", ".3f"),
)
_QUANTILES = ("median degree", "90 % quantile of degrees", "99 % quantile of degrees")


def draw_samples(found: dict[str, Any]) -> Chart:
    """Degrees of batches and of the training graph, both over their mean."""
    title = f"Degrees in batches of {found['sampler']}"
    reading = "Share of nodes with at least this multiple of the mean degree: batches with the graph's degrees lie on its line."
    with drawing() as figure:
        plot_degrees(figure.add_subplot(), found["graph"], found["samples"], (INK, SERIES[0]))
        svg = render(figure, title, reading)
    return Chart("samples", title, reading, svg, tabulate_degrees(found))


def plot_degrees(
    axes: Any, graph: dict[str, Any], samples: Sequence[dict[str, Any]], colours: tuple[str, str]
) -> None:
    """Plot the share of nodes with at least each degree, over the mean degree, from `describe_character`.

    `colours` are the graph's and the batches'.
    """
    for number, one in enumerate([*samples, graph]):
        is_graph = one is graph
        mean = max(one["mean_degree"], 1e-12)
        points = [(degree / mean, share) for degree, share in one["degrees"]]
        style: dict[str, Any] = {"color": colours[1], "alpha": 0.45, "linewidth": 1.5}
        if is_graph:
            style = {"color": colours[0], "linewidth": 2}
        label = "training graph" if is_graph else count(len(samples), "batch") if number == 0 else None
        axes.plot(*zip(*points), label=label, **style) if points else None
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.minorticks_off()
    axes.set_xlabel("degree over mean degree")
    axes.set_ylabel("share of nodes")
    axes.legend(frameon=False, fontsize=11, loc="lower left")


def tabulate_degrees(found: dict[str, Any]) -> Table:
    """The graph's degrees as numbers."""
    rows = [[str(degree), f"{share:.4f}"] for degree, share in found["graph"]["degrees"]]
    return Table(("degree", "share of the graph's nodes with at least this degree"), rows)


def tabulate_samples(found: dict[str, Any]) -> Table:
    """Measures of the graph, and mean ± deviation over batches."""
    graph, samples = found["graph"], found["samples"]

    def compare(name: str, values: list[float], whole: float, form: str) -> list[str]:
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        return [name, f"{whole:{form}}", f"{statistics.mean(values):{form}} ± {spread:{form}}"]

    rows = [compare(name, [one[key] for one in samples], graph[key], form) for key, name, form in _MEASURES]
    for place, name in enumerate(_QUANTILES):
        values = [one["quantiles"][place] for one in samples]
        rows.append(compare(name, values, graph["quantiles"][place], ".1f"))
    rows.append([f"nodes in any of {len(samples)} batches", "100 %", f"{found['coverage']:.1%}"])
    return Table(("measure", "training graph", "batches"), rows)
