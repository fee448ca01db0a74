"""Charts of costs: time by kind of work, bytes between ranks, parts and memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.report.bars import Bar, draw_bars, name_bars, write_beside
from shoal.report.chart import Chart, Table, format_seconds, thin
from shoal.report.facts import TIME_PARTS, Group, RunFacts
from shoal.report.heat import draw_matrix
from shoal.report.svg import SERIES, drawing, label_ticks, render
from shoal.wording import format_bytes

_COLOURS = dict(zip((key for key, _ in TIME_PARTS), SERIES))
_PARTS_SHOWN = 64  # ranks of a chart


def draw_time(groups: Sequence[Group]) -> Chart | None:
    """Where the time went: for one run a bar for every kind of work, for several a stacked bar each."""
    spent = [
        {key: sum(run.time_parts.get(key, 0.0) for run in group.runs) / len(group.runs) for key in _COLOURS}
        for group in groups
    ]
    if not any(sum(one.values()) for one in spent):
        return None
    names = [(key, name) for key, name in TIME_PARTS if any(one[key] for one in spent)]
    reading = "Seconds of the whole run, mean over ranks and seeds."
    profiled = [
        run.measured["profile"] for group in groups for run in group.runs if "profile" in run.measured
    ]
    if profiled:
        reading += f" Computing is split as in one profiled step (epoch {profiled[0]['epoch']})."
    else:
        reading += " Computing is not split: a step is profiled only in runs of two or more epochs."
    hidden = [sum(run.hidden for run in group.runs) / len(group.runs) for group in groups]
    title = "Where the time went"
    draw = _draw_kinds if len(groups) == 1 else _stack_kinds
    svg = draw(groups, spent, names, hidden, title, reading)
    head = ["run", *(name for _, name in names), *(["exchange, overlapped"] if any(hidden) else [])]
    rows = [
        [
            group.label,
            *(format_seconds(one[key]) for key, _ in names),
            *([format_seconds(behind)] if any(hidden) else []),
        ]
        for group, one, behind in zip(groups, spent, hidden)
    ]
    return Chart("time", title, reading, svg, Table(head, rows), wide=len(groups) > 1)


def draw_epochs(run: RunFacts) -> Chart | None:
    """Seconds of every epoch of one run, and of its evaluations."""
    if len(run.records) < 2:
        return None
    title = "Seconds of every epoch"
    reading = "Training and evaluation. The first epoch compiles. Jumps come from other work on the machine or scarce memory."
    series = {
        "training": [(record["epoch"], record["seconds"]) for record in run.records],
        "evaluation": [
            (record["epoch"], record["eval_seconds"]) for record in run.records if "eval_seconds" in record
        ],
    }
    with drawing() as figure:
        axes = figure.add_subplot()
        for number, (name, points) in enumerate(series.items()):
            if points:
                axes.plot(*zip(*thin(points, 240)), color=SERIES[7 * number], label=name, linewidth=1.8)
        axes.set_yscale("log")
        label_ticks(axes, format_seconds)
        axes.set_xlabel("epoch")
        axes.locator_params(axis="x", integer=True)
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=11, handlelength=1)
        svg = render(figure, title, reading)
    rows = [
        [record["epoch"], f"{record['seconds']:.4g}", f"{record.get('eval_seconds', 0):.4g}"]
        for record in thin(run.records, 24)
    ]
    return Chart("epochs", title, reading, svg, Table(("epoch", "training", "evaluation"), rows, "Seconds."))


def _draw_kinds(
    groups: Sequence[Group],
    spent: list[dict[str, float]],
    names: list[tuple[str, str]],
    hidden: list[float],
    title: str,
    reading: str,
) -> str:
    (one,), total = spent, sum(spent[0].values())
    bars = [
        Bar(name, one[key], f"{format_seconds(one[key])} · {one[key] / total:.0%}", _COLOURS[key])
        for key, name in names
        if one[key]
    ]
    if behind := hidden[0]:
        said = f"{format_seconds(behind)} within"
        bars.append(Bar("exchange, overlapped", behind, said, _COLOURS["exposed"], 0.35))
    said = ", ".join(f"{bar.name} {format_seconds(bar.value)}" for bar in bars)
    return draw_bars(bars, title, f"{reading} {said}.", room=0.45)


def _stack_kinds(
    groups: Sequence[Group],
    spent: list[dict[str, float]],
    names: list[tuple[str, str]],
    hidden: list[float],
    title: str,
    reading: str,
) -> str:
    lines = -(-len(names) // 4)
    with drawing(width=680, height=66 + 30 * len(groups) + 18 * lines) as figure:
        axes = figure.add_subplot()
        left = np.zeros(len(groups))
        for key, name in names:
            seconds = np.array([one[key] for one in spent])
            axes.barh(range(len(groups)), seconds, 0.66, left=left, color=_COLOURS[key], label=name)
            left += seconds
        for number, total in enumerate(left.tolist()):
            write_beside(axes, format_seconds(total), total, number)
        name_bars(axes, [group.label for group in groups])
        axes.set_xlim(0, 1.14 * left.max())
        axes.set_xlabel("seconds")
        figure.legend(
            loc="outside lower center", ncols=4, frameon=False, fontsize=11, handlelength=1, columnspacing=1.2
        )
        return render(figure, title, reading)


def draw_traffic(run: RunFacts) -> Chart | None:
    """Bytes that each rank sends to each in an epoch; None if they were not recorded: for one process, or very many ranks."""
    sent = run.sent
    if sent is None:
        return None
    table = np.array(sent, float)
    title = "Bytes sent in an epoch"
    reading = (
        "Row: the rank that sends. Column: the rank that receives. Darker is more; gradients are not counted."
    )
    svg = draw_matrix(
        table,
        [str(rank) for rank in range(len(table))],
        title=title,
        description=f"{reading} {format_bytes(table.sum())} in all, at most {format_bytes(table.max())} between two ranks.",
        axes=("receives", "sends"),
        write=lambda value: "" if value == 0 else format_bytes(value).replace("bytes", "B"),
    )
    rows = [
        [str(rank), *(f"{int(value):,}" for value in row), f"{int(row.sum()):,}"]
        for rank, row in enumerate(table)
    ]
    head = ["sends ↓ to →", *(str(rank) for rank in range(len(table))), "all"]
    return Chart("traffic", title, reading, svg, Table(head, rows, "Bytes."))


def tabulate_layers(run: RunFacts) -> Table | None:
    """Bytes and messages of the last epoch by layer and direction."""
    told = next((record["exchanges"] for record in reversed(run.records) if record.get("exchanges")), None)
    if told is None:
        return None
    rows = [
        [
            "chosen rows" if one["direction"] == "ids" else f"layer {one['layer']}, {one['direction']}",
            format_bytes(one["bytes"]),
            f"{one['messages']:,}",
        ]
        for one in told
    ]
    return Table(("exchange", "sent", "messages"), rows)


def draw_parts(run: RunFacts) -> Chart | None:
    """Local and halo rows of every rank; None where ranks hold no parts."""
    ranks = run.ranks
    if not ranks:
        return None
    local, halo, entries = (
        np.array([rank.get(name, 0) for rank in ranks], float)
        for name in ("local_rows", "halo_rows", "entries")
    )
    title, shown = "Parts", min(len(ranks), _PARTS_SHOWN)
    reading = "Local rows, which a rank owns, and halo rows, which it receives from other ranks. Equal bars mean balance."
    with drawing() as figure:
        axes = figure.add_subplot()
        axes.bar(range(shown), local[:shown], 0.7, color=SERIES[0], label="local rows")
        axes.bar(range(shown), halo[:shown], 0.7, bottom=local[:shown], color=SERIES[1], label="halo rows")
        axes.set_xlabel("rank")
        axes.locator_params(axis="x", integer=True)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
        axes.grid(visible=False, axis="x")
        figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=11, handlelength=1)
        svg = render(figure, title, f"{reading} {len(ranks)} ranks.")
    rows = [
        [str(number), *(f"{int(values[number]):,}" for values in (local, halo, entries))]
        for number in range(len(ranks))
    ]
    return Chart("parts", title, reading, svg, Table(("rank", "local rows", "halo rows", "entries"), rows))


def tabulate_parts(run: RunFacts) -> Table | None:
    """Quality of a partition in figures."""
    ranks = run.ranks
    if not ranks:
        return None
    local, halo, entries = (
        np.array([rank.get(name, 0) for rank in ranks], float)
        for name in ("local_rows", "halo_rows", "entries")
    )
    ratio = halo / np.maximum(local, 1)
    rows = [
        ["method", str(run.settings.get("partition.method", "auto"))],
        ["rows sent in an exchange, without covers", f"{int(halo.sum()):,}"],
        ["largest part over the mean, by nodes", f"{_balance(local):.3f}"],
    ]
    if entries.any():
        rows.append(["largest part over the mean, by edges", f"{_balance(entries):.3f}"])
    rows.append(["halo rows per local row, mean and largest", f"{ratio.mean():.2f}, {ratio.max():.2f}"])
    if run.sent is not None:
        rows.append(["pairs of ranks that exchange", f"{int((np.array(run.sent) > 0).sum()):,}"])
    return Table(("partition", ""), rows)


def _balance(loads: np.ndarray) -> float:
    return float(loads.max() / loads.mean()) if loads.any() else 1.0


def draw_memory(groups: Sequence[Group]) -> Chart | None:
    """Peak memory of every rank of one run, or of the largest rank of each of several runs."""
    if len(groups) == 1:
        held = groups[0].first.measured.get("peak") or []
        sizes = [(f"rank {number}", size) for number, size in enumerate(held[:_PARTS_SHOWN])]
    else:
        sizes = [(group.label, max(group.gather("peak"))) for group in groups if group.gather("peak")]
    if len(sizes) < 2:  # the page's head shows it
        return None
    title = "Memory"
    reading = "Peak memory of a process, with Python, torch, compiled kernels and mapped files."
    bars = [Bar(name, size, format_bytes(size)) for name, size in sizes]
    described = "; ".join(f"{bar.name} {bar.said}" for bar in bars[:16])
    svg = draw_bars(bars, title, f"{reading} {described}.", room=0.25)
    rows = [[name, f"{int(size):,}"] for name, size in sizes]
    return Chart("memory", title, reading, svg, Table(("process", "bytes"), rows))
