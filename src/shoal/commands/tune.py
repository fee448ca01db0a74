"""`shoal tune DATA`: searches settings and methods within a time budget and writes the best as a recipe."""

from __future__ import annotations

import math
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shoal.commands.completion import complete, list_data
from shoal.commands.listing import json_option, memory_option, plugin_option

if TYPE_CHECKING:
    from types import TracebackType

    from shoal.commands.screen import Screen
    from shoal.commands.tables import PlainTable
    from shoal.runs.journal import Tried
    from shoal.runs.trial import Clock
    from shoal.runs.tuning import Search
    from shoal.training.epoch_state import Record
    from shoal.training.trainer import Trainer

_MINUTES = 10.0
_SHOWN = 15  # trials of the table; the file has all
_WIDTH = 80
_TIMED = 3  # epochs of the first trial, after which its time is estimated


@click.command()
@click.argument("data", required=False, **complete(list_data, files=True))
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    help="Time for everything, the fresh seeds included  [default: 10, without --trials]",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    help="Most trials, those before --resume included; with --minutes, whichever comes first  [default: any]",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    help="Fresh seeds to train the best configuration with  [default: 3]",
)
@click.option("--seed", type=click.IntRange(0), help="Decides the search and every trial  [default: 0]")
@click.option("--out", type=click.Path(path_type=Path), help="Folder to make  [default: runs/DATA-tune-N]")
@click.option("--resume", type=click.Path(path_type=Path), help="Folder of a search to continue.")
@json_option()
@memory_option()
@plugin_option(expose=True)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A setting that is fixed in all trials; may be repeated.",
)
def tune(
    data: str | None,
    minutes: float | None,
    trials: int | None,
    seeds: int | None,
    seed: int | None,
    out: Path | None,
    resume: Path | None,
    as_json: bool,
    plugins: tuple[str, ...],
    settings: tuple[str, ...],
) -> None:
    """Search for the best settings within a time budget.

    Model, depth, width, norm, dropout, learning rate and batches are searched. The first trial has the defaults.
    Trials are ranked by validation score; those whose curve lies below the median are stopped early. The best
    configuration is trained with fresh seeds, and only then are test labels read. Searches with --trials and
    without --minutes are reproducible; how many trials fit into --minutes depends on the machine.

    \b
    Examples:
      shoal tune my-graph/ --minutes 10
      shoal tune my-graph/ --minutes 30 --set model.name=gcn
      shoal tune --resume runs/my-graph-tune-1 --minutes 20
      shoal train --recipe runs/my-graph-tune-1/best.yaml
    """
    from shoal.distributed.detect import detect_launch
    from shoal.errors import ShoalError
    from shoal.lock import writing
    from shoal.runs.trial import Clock
    from shoal.runs.tuning import Asked, Search

    if detect_launch().size > 1:
        raise ShoalError("shoal tune runs in one process and was started as several ranks: start it alone")
    minutes = _MINUTES if minutes is None and trials is None else minutes
    clock = Clock(minutes)
    if resume is not None:
        given = {
            "DATA": data,
            "--seed": seed,
            "--out": out,
            "--plugin": plugins or None,
            "--set": settings or None,
        }
        if named := [name for name, value in given.items() if value is not None]:
            raise ShoalError(f"--resume keeps a search's configuration: leave out {', '.join(named)}")
        with writing(resume):
            _search(Search.open(resume, seeds=seeds), clock, trials, as_json=as_json)
        return
    if data is None:
        raise ShoalError("no data given: name a data set (`shoal data list`), a stored graph or a graph file")
    asked = Asked(data, settings, plugins, seed or 0, seeds or 3)
    folder = out if out is not None else _next_folder(data)
    search = Search.create(folder, asked)
    with writing(folder):
        _search(search, clock, trials, as_json=as_json)


def _search(search: Search, clock: Clock, trials: int | None, *, as_json: bool) -> None:
    """Search, train fresh seeds, and report the result; Ctrl-C ends with the best so far."""
    from shoal.commands.screen import open_console, print_json
    from shoal.errors import Stopped
    from shoal.runs.tuning import RECIPE, TABLE

    console = open_console(stderr=as_json)
    graph = search.graph
    console.say(
        f"{graph.name}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {graph.num_features:,} features, {graph.num_classes} classes",
    )
    console.notice(*search.notices)
    try:
        with TuningProgress(console, search, clock) as progress:
            search.run(clock, trials, progress.show_epoch, progress.show_trial)
            progress.begin_seeds()
            result = search.confirm(clock, progress.show_epoch)
    except KeyboardInterrupt as error:
        number = error.signal if isinstance(error, Stopped) else signal.SIGINT
        if search.best is not None:
            _show_table(console, search)
            console.say(f"best so far, by validation alone: {search.folder / RECIPE}")
        raise Stopped(number, f"interrupted; continue with: shoal tune --resume {search.folder}") from None
    if as_json:
        print_json(result | {"folder": search.folder, "trials": [asdict(one) for one in search.tried]})
        return
    _show_table(console, search)
    _show_result(console, result, search)
    console.say(f"all trials: {search.folder / TABLE}")
    console.say(f"train it: shoal train --recipe {search.folder / RECIPE}")


class TuningProgress:
    """Shows a search: on a terminal a status line updated every epoch, anywhere else a line for every trial."""

    def __init__(self, console: Screen, search: Search, clock: Clock) -> None:
        from rich.status import Status

        self.console, self.search, self.clock = console, search, clock
        self._what = "trial 0"
        self._best = search.best
        self._status = Status("starting", console=console) if console.is_terminal else None

    def __enter__(self) -> TuningProgress:
        if self._status is not None:
            self._status.start()
        self._begin(len(self.search.tried))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def _begin(self, number: int) -> None:
        self._what = f"trial {number}"

    def begin_seeds(self) -> None:
        """Announce the training with fresh seeds."""
        self._what = "fresh seeds"
        alone = sum(one.is_whole for one in self.search.tried) == 1
        what = "the only configuration with a score" if alone else "the best configuration"
        self.console.say(f"training {what} with fresh seeds", style="dim")

    def show_epoch(self, trainer: Trainer, record: Record) -> None:
        """Update the status line after an epoch; in a pipe print nothing but a notice of too little time."""
        if self._what == "trial 0" and record["epoch"] == _TIMED:
            self._warn_of_time(trainer)
        if self._status is None:
            return
        best = "" if self._best is None else f", best {self._best.score:.4f} (trial {self._best.number})"
        left = "" if self.clock.total == float("inf") else f", {max(self.clock.left, 0):.0f} s left"
        self._status.update(f"{self._what}, epoch {record['epoch']}{best}{left}")

    def _warn_of_time(self, trainer: Trainer) -> None:
        """Print a notice if a trial's time is too short for the defaults; the first epoch compiles and is not counted."""
        from shoal.report.chart import format_seconds
        from shoal.runs.tuning import LONGEST

        spent = [one["seconds"] + one.get("eval_seconds", 0.0) for one in trainer.history[1:]]
        whole, given = trainer.epochs * sum(spent) / len(spent), LONGEST * self.clock.total
        if whole > given:
            self.console.notice(
                f"the defaults take up to {format_seconds(whole)} ({trainer.epochs:,} epochs) and a trial gets {format_seconds(given)}: "
                f"trials that run out of time are compared by what they reached; --minutes {math.ceil(whole / LONGEST / 60)} lets them end"
            )

    def show_trial(self, tried: Tried) -> None:
        """Print a line for a finished trial."""
        from shoal.wording import count

        self._best = self.search.best
        self._begin(tried.number + 1)
        score = "" if tried.score is None else f"val {tried.metric} {tried.score:.4f}, "
        best = ""
        if self._best is not None and self._best != tried:
            best = f"; best {self._best.score:.4f} (trial {self._best.number})"
        said = f"trial {tried.number}: {score}{count(tried.epochs, 'epoch')}, {tried.seconds:.1f} s, {tried.ended}{best}"
        self.console.say(said)


def _show_table(console: Screen, search: Search) -> None:
    tried = search.tried
    console.say()
    console.print(make_table(tried), width=min(console.width, _WIDTH))
    if len(tried) > _SHOWN:
        console.say(f"and {len(tried) - _SHOWN:,} more")


def make_table(tried: list[Tried]) -> PlainTable:
    """A table of the best trials and the settings in which they differ from the defaults, for 80 columns."""
    from shoal.commands.screen import plain_table
    from shoal.runs.config import make_config
    from shoal.runs.space import flatten
    from shoal.settings import show_value

    metric = next((one.metric for one in tried if one.metric), "score")
    table = plain_table(
        "trial", f"val {metric}", "s", "ended", "settings", right=("trial", f"val {metric}", "s")
    )
    defaults = flatten(make_config(tried[0].config)) if tried else {}
    order = sorted(tried, key=lambda one: (-_rank(one), one.number))
    for one in order[:_SHOWN]:
        changed = {
            key: value
            for key, value in flatten(make_config(one.config)).items()
            if defaults.get(key, _MISSING) != value and key not in _SELDOM
        }
        said = ", ".join(f"{_shorten(key)} {show_value(value)}" for key, value in changed.items())
        score = "" if one.score is None else f"{one.score:.4f}"
        ended, _, why = one.ended.partition(": ")
        what = f"{why}; {said}" if why else said or "the defaults"
        table.add_row(str(one.number), score, f"{one.seconds:.1f}", ended, what)
    return table


_MISSING = object()
_SELDOM = ("training.epochs", "training.patience")  # they follow from the method


def _shorten(key: str) -> str:
    title, _, name = key.rpartition(".")
    return title if name == "name" else name


def _rank(one: Tried) -> float:
    return float("-inf") if one.score is None else one.score - (0 if one.is_whole else 1000)


def _show_result(console: Screen, result: dict[str, Any], search: Search) -> None:
    """Print the number of trials, the rank of the best one, and the scores over fresh seeds, test scores last."""
    from shoal.runs.journal import count_ends, say_rank
    from shoal.wording import count

    tried, best = search.tried, search.best
    assert best is not None
    seeds = result["seeds"]
    many = count(len(seeds), "fresh seed")
    cut = ", cut short by the time: give more --minutes" if result["is_cut"] else ""
    console.say(f"\n{count_ends(tried)}")
    console.say(
        f"trial {best.number}, {say_rank(tried, best)}: validation {result['metric']} {best.score:.4f}"
    )
    if sum(one.is_whole for one in tried) == 1:
        more = f"shoal tune --resume {search.folder} --minutes N"
        console.notice(f"nothing was compared: continue with `{more}`, or give more --minutes")
    for name, scores in result.items():
        if name.startswith(("val_", "test_")):
            spread = f" ± {scores['deviation']:.4f}" if len(seeds) > 1 else ""
            console.say(f"{name.replace('_', ' ', 1)} {scores['mean']:.4f}{spread} over {many}{cut}")


def _next_folder(data: str) -> Path:
    """runs/DATA-tune-N with the first N that is free."""
    stem, number = Path(data).resolve().name.split(".")[0], 1
    while (folder := Path("runs") / f"{stem}-tune-{number}").exists():
        number += 1
    return folder
