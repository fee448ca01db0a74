"""The page of one run or several: sections of charts and tables in one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from shoal.errors import ShoalError, explain_full_disk
from shoal.files import replace_file
from shoal.report import compare
from shoal.report.chart import Chart, Table, format_seconds
from shoal.report.costs import (
    draw_epochs,
    draw_memory,
    draw_parts,
    draw_time,
    draw_traffic,
    tabulate_layers,
    tabulate_parts,
)
from shoal.report.curves import draw_curves, style_of
from shoal.report.facts import Group, RunFacts, group_runs, read_runs
from shoal.report.predictions import draw_predictions, tabulate_confused
from shoal.report.samples import draw_samples, tabulate_samples
from shoal.report.settings import format_command, list_changed, make_command, write_value
from shoal.report.svg import DASHES, SERIES, require_matplotlib
from shoal.runs.folder import MEASURED, OUTCOMES, RANKS
from shoal.wording import count, format_bytes

_HERE = Path(__file__).parent
_DETAILED = 8  # groups that have sections of their own


@dataclass
class Section:
    """A section of the page: charts, then tables. `label` names its run where several are shown."""

    key: str
    title: str
    charts: list[Chart] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    reading: str = ""
    label: str = ""


def write_page(folders: Sequence[Path], target: Path) -> int:
    """Write the page of some run folders; returns how many runs it shows."""
    require_matplotlib("a report")
    runs = read_runs(folders)
    try:
        text = make_page(runs)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        names = f"{RANKS}, {OUTCOMES} or {MEASURED}"
        raise ShoalError(
            f"{', '.join(map(str, folders))} cannot be shown ({type(error).__name__}: {error}): expected what `shoal train` "
            f"writes, remove a damaged {names}"
        ) from error
    with explain_full_disk(target), replace_file(target) as scratch:
        scratch.write_text(text, encoding="utf-8")
    return len(runs)


def make_page(runs: Sequence[RunFacts], *, live: bool = False) -> str:
    """The page as text. A `live` page polls its server for updates (`shoal.report.live`)."""
    described = describe_page(runs)
    return wrap_main(described["title"], _render_main(described), live=live)


def make_main(runs: Sequence[RunFacts]) -> tuple[str, str]:
    """(title, the part of the page that changes during training)."""
    described = describe_page(runs)
    return described["title"], _render_main(described)


def wrap_main(title: str, main: str, *, live: bool = False) -> str:
    """The whole page, around the text of `make_main`."""
    return str(_environment().get_template("page.html").render(live=live, title=title, main=main))


def _render_main(described: dict[str, Any]) -> str:
    return str(_environment().get_template("main.html").render(**described))


@lru_cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["svg"] = Markup  # drawn here, with names escaped
    return environment


def describe_page(runs: Sequence[RunFacts]) -> dict[str, Any]:
    """Everything that the templates show."""
    groups = group_runs(runs)
    names = list(dict.fromkeys(str(run.graph.get("name") or Path(run.config.data).name) for run in runs))
    ended = [run.final is not None for run in runs]
    return {
        "title": ", ".join(names) or "Waiting for a run",
        "subtitle": _describe_runs(groups),
        "state": "finished" if ended and all(ended) else _describe_progress(runs),
        "has_ended": bool(ended) and all(ended),
        "tiles": list_tiles(groups[0]) if len(groups) == 1 else [],
        "legend": _list_legend(groups) if len(groups) > 1 else [],
        "comparison": _compare(groups) if len(runs) > 1 else None,
        "sections": list_sections(groups),
        "settings": list_settings(groups),
        "commands": [(group.label, _write_command(group)) for group in groups],
        "machine": _describe_machine(runs[0]) if runs else None,
    }


def list_sections(groups: Sequence[Group]) -> list[Section]:
    """All sections that are not empty."""
    found = [Section("learning", "Learning", draw_curves(groups))] if groups else []
    if groups:
        epochs = draw_epochs(groups[0].first) if len(groups) == 1 else None
        shared = [chart for chart in (draw_time(groups), epochs, draw_memory(groups)) if chart]
        found.append(Section("costs", "Time and memory", shared))
    for group in groups[:_DETAILED]:
        label = group.label if len(groups) > 1 else ""
        found += [section for section in _list_own(group, label) if section.charts or section.tables]
    return [section for section in found if section.charts or section.tables]


def _list_own(group: Group, label: str) -> list[Section]:
    """Sections of one group: what its ranks sent, its parts, its batches, its predictions."""
    run = group.first
    sent = Section("exchange", "Exchange between ranks", label=label)
    sent.charts = [chart for chart in (draw_traffic(run),) if chart]
    sent.tables = [table for table in (tabulate_layers(run),) if table]
    sent.reading = "What ranks exchange in an epoch: halo rows, partial sums and their gradients."
    parts = Section("parts", "Partition", label=label)
    parts.charts = [chart for chart in (draw_parts(run),) if chart]
    parts.tables = [table for table in (tabulate_parts(run),) if table]
    batches = Section("batches", "Batches beside the graph", label=label)
    if samples := run.measured.get("samples"):
        batches.charts, batches.tables = [draw_samples(samples)], [tabulate_samples(samples)]
    outcomes = group.add_outcomes()
    predicted = Section("predictions", "Predictions", draw_predictions(outcomes), label=label)
    confused = tabulate_confused(outcomes) if outcomes else None
    predicted.tables = [confused] if confused else []
    if len(group.runs) > 1 and predicted.charts:
        predicted.reading = f"All {len(group.runs)} seeds together."
    return [sent, parts, batches, predicted]


def list_tiles(group: Group) -> list[tuple[str, str, str]]:
    """(figure, caption, note) of the tiles in the page's head, for one group."""
    run, tiles = group.first, []

    def spread(values: tuple[float, float] | None, form: str) -> str:
        assert values is not None
        return f"{values[0]:{form}}" + (f" ± {values[1]:{form}}" if len(group.runs) > 1 else "")

    if group.gather("test"):
        tiles.append((spread(group.average("test"), ".4f"), f"test {run.metric}", ""))
    best = [one.best for one in group.runs if one.best is not None]
    if best:
        when = f"epoch {best[0][0]:,}" if len(best) == 1 else f"{len(best)} seeds"
        value = sum(one[2] for one in best) / len(best)
        tiles.append((f"{value:.4f}", f"best validation {run.metric}", when))
    if run.clock:
        total = sum(one.clock[-1] for one in group.runs if one.clock)
        tiles.append(
            (
                format_seconds(total),
                "training and evaluation",
                count(sum(one.epochs for one in group.runs), "epoch"),
            )
        )
    if run.epoch_seconds is not None:
        rate = run.records[-1].get("nodes_per_second")
        said = f"{rate:,.0f} nodes/s" if rate else ""
        tiles.append((format_seconds(run.epoch_seconds), "an epoch, median", said))
    if run.peak is not None:
        ranks = run.config.num_ranks or 1
        tiles.append(
            (format_bytes(max(group.gather("peak"))), "memory", "largest rank" if ranks > 1 else "at most")
        )
    if run.epoch_bytes:
        tiles.append((format_bytes(run.epoch_bytes), "sent in an epoch", "by all ranks"))
    return tiles


def list_settings(groups: Sequence[Group]) -> dict[str, Any]:
    """Every setting of every group, with its default: `changed` differ from defaults or between groups, `rest` do not."""
    rows = []
    for key in dict.fromkeys(key for group in groups for key in group.first.settings):
        values = [write_value(group.first.settings.get(key)) for group in groups]
        if key == "training.seed":
            values = [", ".join(str(run.seed) for run in group.runs) for group in groups]
        changed = [key in list_changed(group.first.settings, group.first.defaults) for group in groups]
        default = next(
            (write_value(one.first.defaults[key]) for one in groups if key in one.first.defaults), ""
        )
        rows.append({"key": key, "values": values, "default": default, "changed": changed})
    told = [row for row in rows if any(row["changed"]) or len(set(row["values"])) > 1]
    told.sort(key=lambda row: len(set(row["values"])) == 1)
    rest = [row for row in rows if row not in told]
    return {"labels": [group.label for group in groups], "changed": told, "rest": rest}


def _describe_runs(groups: Sequence[Group]) -> str:
    if len(groups) == 1:
        run = groups[0].first
        size = f"{run.graph['num_nodes']:,} nodes, " if "num_nodes" in run.graph else ""
        seeds = f", {len(groups[0].runs)} seeds" if len(groups[0].runs) > 1 else f", seed {run.seed}"
        return f"{groups[0].label}: {size}{run.settings.get('model.name', '')}, {run.method}{seeds}"
    runs = sum(len(group.runs) for group in groups)
    return f"{count(runs, 'run')}, {count(len(groups), 'configuration')}" if groups else ""


def _describe_progress(runs: Sequence[RunFacts]) -> str:
    run = next((run for run in runs if run.final is None), None)
    if run is None:
        return "waiting for the first epoch"
    asked = run.settings.get("training.epochs")
    return f"epoch {run.epochs:,} of {asked:,}" if isinstance(asked, int) else f"epoch {run.epochs:,}"


def _list_legend(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Colour, dash and name of every group's curves."""
    rows = []
    for number, group in enumerate(groups):
        style = style_of(number)
        dash = style["linestyle"]
        rows.append(
            {
                "label": group.label,
                "variable": f"--s{SERIES.index(style['color'])}",
                "dash": "" if dash == DASHES[0] else " ".join(f"{2 * part:g}" for part in dash[1]),
                "seeds": len(group.runs),
            }
        )
    return rows


def _compare(groups: Sequence[Group]) -> dict[str, Any]:
    head = [compare.name_score(groups) if name == "score" else name for name in compare.HEAD]
    return {
        "table": Table(head, compare.list_rows(groups), compare.describe_columns(groups)),
        "markdown": compare.format_comparison(groups, "markdown"),
    }


def _write_command(group: Group) -> str:
    words = make_command(group.first.config)
    if len(group.runs) > 1 and all(run.folder.name.startswith("seed-") for run in group.runs):
        words += ["--repeat", str(len(group.runs))]
    return format_command(words)


def _describe_machine(run: RunFacts) -> Table | None:
    machine = run.measured.get("machine")
    return (
        Table(("where it ran", ""), [[key, str(value)] for key, value in machine.items()])
        if machine
        else None
    )
