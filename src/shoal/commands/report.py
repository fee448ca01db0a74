"""`shoal report RUN …`: an HTML page of runs, a table that compares them, or a live view during training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from shoal.report.facts import Group

_FORMATS = ("text", "markdown", "latex", "csv", "json")


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--out",
    type=click.Path(path_type=Path),
    help="File to write: the page, or with --compare the table  [default: RUN/report.html, or report.html for several runs; the table is printed]",
)
@click.option("--compare", is_flag=True, help="Print a table, grouped over seeds, instead of a page.")
@click.option(
    "--format",
    "form",
    type=click.Choice(_FORMATS),
    help="How --compare writes the table  [default: text]",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --compare --format json.")
@click.option("--watch", is_flag=True, help="Show a run during training, in a browser on this machine only.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of --watch  [default: a free one]")
@click.option(
    "--socket",
    "handle",
    type=int,
    hidden=True,
    help="File descriptor of the listening socket of `train --live`.",
)
def report(
    runs: tuple[Path, ...],
    out: Path | None,
    compare: bool,
    form: str | None,
    as_json: bool,
    watch: bool,
    port: int | None,
    handle: int | None,
) -> None:
    """Show runs as one HTML page.

    It has scores, time, memory, exchange, predictions and settings (docs/report.md).

    Runs with the same settings share one line, with the deviation over seeds. A folder of repeated runs counts as
    all of its seeds.

    \b
    Examples:
      shoal report runs/first
      shoal report runs/first runs/second -o page.html
      shoal report runs/* --compare
      shoal report runs/* --compare --format latex -o table.tex
      shoal report --watch runs/first
    """
    from shoal.errors import ShoalError
    from shoal.report.facts import group_runs, read_runs
    from shoal.report.svg import require_matplotlib

    if as_json:
        if form not in (None, "json"):
            raise ShoalError(f"--json and --format {form} are two forms of one table: leave one out")
        compare, form = True, "json"
    if form is not None and not compare:
        raise ShoalError("--format is the form of the table: add --compare")
    if port is not None and not watch:
        raise ShoalError("--port is where --watch listens: add --watch")
    if watch and (compare or out is not None):
        raise ShoalError("--watch shows a page in a browser: leave out --compare, --json and -o")
    runs = _leave_out_others(runs)
    if compare:
        groups = group_runs(read_runs(runs))
        if not groups:
            raise ShoalError(f"{runs[0]} holds no run that has started: nothing to compare")
        _write_comparison(groups, form or "text", out)
        return
    require_matplotlib("a report")
    if watch:
        _watch(runs, port or 0, handle)
        return
    from shoal.commands.screen import open_console
    from shoal.report.page import write_page
    from shoal.runs.folder import PAGE

    target = out if out is not None else (runs[0] / PAGE if len(runs) == 1 else Path(PAGE))
    write_page(runs, target)
    open_console().say(f"report: {target}")


def _leave_out_others(runs: tuple[Path, ...]) -> tuple[Path, ...]:
    """The run folders among `runs`. Others, such as searches that `runs/*` matches, are left out with a notice."""
    from shoal.commands.screen import open_console
    from shoal.runs.folder import find_config
    from shoal.wording import list_some

    others = [one for one in runs if one.exists() and not find_config(one).is_file()]
    if not others or len(others) == len(runs):
        return runs
    left_out = list_some([str(one) for one in others])
    open_console(stderr=True).notice(f"left out because it holds no run: {left_out}")
    return tuple(one for one in runs if one not in others)


def _write_comparison(groups: list[Group], form: str, out: Path | None) -> None:
    from shoal.commands.screen import open_console, plain_table
    from shoal.errors import explain_full_disk
    from shoal.files import replace_file
    from shoal.report.compare import HEAD, RIGHT, describe_columns, format_comparison, list_rows

    if form == "text" and out is None:
        console = open_console()
        shown = len(HEAD) if any(group.first.epoch_bytes for group in groups) else len(HEAD) - 1
        table = plain_table(*HEAD[:shown], right=RIGHT)
        for row in list_rows(groups):
            table.add_row(*row[:shown])
        if not console.is_terminal:
            console.width = max(console.width, table.width)
        console.print(table)
        console.say(describe_columns(groups), style="dim")
        return
    text = format_comparison(groups, "markdown" if form == "text" else form)
    if out is None:
        click.echo(text)
        return
    with explain_full_disk(out), replace_file(out) as scratch:
        scratch.write_text(f"{text}\n", encoding="utf-8")


def _watch(runs: tuple[Path, ...], port: int, handle: int | None) -> None:
    """Serve the runs' page until they end. For `train --live`, serve on its socket until it closes the pipe."""
    import os
    import socket
    import sys
    import threading
    from contextlib import suppress

    from shoal.errors import ShoalError
    from shoal.report.live import LiveView, address_of, open_door, serve
    from shoal.runs.folder import find_config

    if handle is not None:
        closed = threading.Event()

        def wait() -> None:
            sys.stdin.buffer.read()
            closed.set()

        threading.Thread(target=wait, daemon=True).start()
        os.nice(5)
        serve(LiveView(runs, closed), socket.socket(fileno=handle))
        return
    for folder in runs:
        if not find_config(folder).is_file():
            raise ShoalError(f"{folder} is not a run folder: name one that `shoal train` is writing")
    view = LiveView(runs)
    if view.is_over:
        raise ShoalError(f"{runs[0]} has ended: `shoal report {runs[0]}` writes its page")
    from shoal.commands.screen import open_console

    door = open_door(port)
    open_console().say(f"live view: {address_of(door)} (Ctrl-C ends it)")
    with suppress(KeyboardInterrupt):
        serve(view, door)
