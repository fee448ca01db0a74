"""Output of commands: sentences, tables, JSON and progress, on a terminal, in a pipe and in a notebook."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from shoal.commands.tables import fact_table as fact_table
from shoal.commands.tables import plain_table as plain_table
from shoal.wording import format_bytes as format_bytes

_SECONDS_BETWEEN_LINES = 10.0  # of progress in a pipe


class Screen(Console):
    """A console whose sentences are printed as they are: wrapped at words on a terminal, one line each in a pipe."""

    def say(self, sentence: str = "", *, style: str | None = None) -> None:
        """Print a sentence without markup or highlighting."""
        self.print(sentence, style=style, markup=False, highlight=False, soft_wrap=not self.is_terminal)

    def notice(self, *sentences: str) -> None:
        """Print sentences that a reader should not miss."""
        for sentence in sentences:
            self.say(f"notice: {sentence}")


def open_console(*, stderr: bool = False) -> Screen:
    """A console for results (stdout), or for progress and everything beside JSON (stderr)."""
    return Screen(stderr=stderr, highlight=False)


def print_json(figures: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print figures as JSON to stdout; a number that is not finite becomes null."""
    click.echo(json.dumps(_make_plain(figures), indent=2, ensure_ascii=False, allow_nan=False))


def _make_plain(value: Any) -> Any:
    """Convert paths, NumPy scalars and any containers to values that JSON has."""
    if isinstance(value, Mapping):
        return {str(name): _make_plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | np.ndarray):
        return [_make_plain(one) for one in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.bool_ | np.integer):
        return value.item()
    return float(value) if math.isfinite(value) else None


@contextmanager
def follow_steps(console: Screen, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields `follow(done, total)`: a bar on a terminal, and in a pipe a line every ten seconds."""
    began = said = time.monotonic()

    def follow(done: int, total: int) -> None:
        nonlocal said
        bar.update(task, completed=done, total=total)
        if not console.is_terminal and time.monotonic() - said >= _SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            console.say(f"{what}: {done:,} of {total:,} steps, {said - began:.0f} s")

    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        if not console.is_terminal:
            console.say(f"{what} …", style="dim")
        yield follow


class _Figures(ProgressColumn):
    """How much is done: bytes with their speed, or a count."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.speed, self.count = DownloadColumn(), TransferSpeedColumn(), MofNCompleteColumn()

    def render(self, task: Task) -> Text:
        if task.fields["counted"]:
            return self.count.render(task)
        return Text.assemble(self.bytes.render(task), " ", self.speed.render(task))


class ScreenWatcher:
    """Shows a fetch or an import on stderr: a bar with what is done and the time left, and a line for every step."""

    def __init__(self) -> None:
        self.console = open_console(stderr=True)
        self.progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            _Figures(),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._said = time.monotonic()

    def __enter__(self) -> ScreenWatcher:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()

    def on_bytes(self, file: str, done: int, total: int | None) -> None:
        """Show how much of a file has arrived."""
        if file not in self.tasks:
            self.tasks[file] = self.progress.add_task(file, total=total, counted=False)
            if not self.console.is_terminal:
                size = format_bytes(total) if total is not None else "size unknown"
                resumed = f", {format_bytes(done)} of it here already" if done else ""
                self.on_step(f"fetching {file} ({size}{resumed})")
        self.progress.update(self.tasks[file], completed=done, total=total)

    def on_count(self, what: str, done: int, total: int) -> None:
        """`done` of `total`: a bar on a terminal, and in a pipe a line every ten seconds."""
        now = time.monotonic()
        if what not in self.tasks:
            self.tasks[what] = self.progress.add_task(what, total=total, counted=True)
            self._began[what] = now
        self.progress.update(self.tasks[what], completed=done, total=total)
        if not self.console.is_terminal and now - self._said >= _SECONDS_BETWEEN_LINES:
            self._said = now
            left = (now - self._began[what]) * (total - done) / max(done, 1)
            self.on_step(f"{what}: {done:,} of {total:,}, {left:.0f} s left")

    def on_step(self, sentence: str) -> None:
        """Print a step."""
        self.console.say(sentence, style="dim")
