"""The table that compares runs, grouped over seeds: for terminals, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Any

from shoal.report.chart import format_seconds
from shoal.report.facts import Group
from shoal.wording import format_bytes

HEAD = ("run", "method", "model", "score", "to best", "an epoch", "memory", "sent an epoch")
RIGHT = HEAD[3:]
_ESCAPED = str.maketrans(
    {one: f"\\{one}" for one in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}
)


def list_figures(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The table's figures of every group, as numbers: mean and deviation over seeds, None if unknown.

    `score` is the test score, or the best validation score if no run of the group has a test score yet; `split` says which.
    """
    rows = []
    for group in groups:
        run = group.first
        split = "test" if group.gather("test") else "val"
        scores = group.gather("test") if split == "test" else [one.best[2] for one in group.runs if one.best]
        rows.append(
            {
                "run": group.label,
                "seeds": len(group.runs),
                "data": run.graph.get("name", run.config.data),
                "method": run.method,
                "model": str(run.settings.get("model.name", "sage")),
                "metric": run.metric,
                "split": split,
                "score": _spread(scores),
                "seconds_to_best": _spread(group.gather("seconds_to_best")),
                "seconds_an_epoch": _spread(group.gather("epoch_seconds")),
                "memory": max(group.gather("peak"), default=None),
                "bytes_an_epoch": _spread(group.gather("epoch_bytes")),
            }
        )
    return rows


def _spread(values: list[float]) -> dict[str, float] | None:
    from statistics import mean, stdev

    if not values:
        return None
    return {"mean": mean(values), "deviation": stdev(values) if len(values) > 1 else 0.0}


def list_rows(groups: Sequence[Group], *, sign: str = "±") -> list[list[str]]:
    """The table's rows as formatted text."""

    def show(value: dict[str, float] | None, form: Callable[[float], str]) -> str:
        return "–" if value is None else form(value["mean"])

    rows = []
    for one in list_figures(groups):
        score = "–"
        if one["score"] is not None:
            score = f"{one['score']['mean']:.4f}"
            if one["seeds"] > 1:
                score += f" {sign} {one['score']['deviation']:.4f}"
            score += "" if one["split"] == "test" else " (val)"
        seeds = f" ({one['seeds']} seeds)" if one["seeds"] > 1 else ""
        rows.append(
            [
                f"{one['run']}{seeds}",
                one["method"],
                one["model"],
                score,
                show(one["seconds_to_best"], format_seconds),
                show(one["seconds_an_epoch"], format_seconds),
                "–" if one["memory"] is None else format_bytes(one["memory"]),
                show(one["bytes_an_epoch"], format_bytes),
            ]
        )
    return rows


def name_score(groups: Sequence[Group]) -> str:
    """Head of the column of scores."""
    metrics = dict.fromkeys(group.first.metric for group in groups)
    return f"test {' / '.join(metrics)}"


def describe_columns(groups: Sequence[Group]) -> str:
    """A sentence that explains the columns."""
    spread = " ± its deviation over seeds" if any(len(group.runs) > 1 for group in groups) else ""
    return (
        f"score: {name_score(groups)}{spread}; to best: training and evaluation until the best validation, without compilation; an epoch: median "
        "without the first; memory: of the largest process; sent an epoch: by all ranks together"
    )


def format_comparison(groups: Sequence[Group], form: str) -> str:
    """The table as Markdown, LaTeX, CSV or JSON."""
    if form == "json":
        return json.dumps(list_figures(groups), indent=1)
    head = [name_score(groups) if name == "score" else name for name in HEAD]
    if form == "latex":
        return _format_latex(head, list_rows(groups, sign=r"$\pm$"))
    if form == "csv":
        return _format_csv(groups)
    rows = [[cell.replace("|", r"\|") for cell in row] for row in list_rows(groups)]
    rule = ["---:" if name in RIGHT else "---" for name in HEAD]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows])


def _format_csv(groups: Sequence[Group]) -> str:
    """Plain numbers, mean and deviation in columns of their own."""
    text = io.StringIO()
    rows = []
    for one in list_figures(groups):
        flat: dict[str, Any] = {}
        for key, value in one.items():
            if key in ("score", "seconds_to_best", "seconds_an_epoch", "bytes_an_epoch"):
                known = value or {"mean": None, "deviation": None}
                flat |= {key: known["mean"], f"{key}_deviation": known["deviation"]}
            else:
                flat[key] = value
        rows.append(flat)
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")


def _format_latex(head: list[str], rows: list[list[str]]) -> str:
    """A tabular with booktabs' rules."""
    columns = "".join("r" if name in RIGHT else "l" for name in HEAD)
    lines = [f"\\begin{{tabular}}{{{columns}}}", "\\toprule"]
    lines.append(" & ".join(name.translate(_ESCAPED) for name in head) + r" \\")
    lines.append("\\midrule")
    for row in rows:
        cells = [cell if r"$\pm$" in cell else cell.replace("–", "--").translate(_ESCAPED) for cell in row]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])
