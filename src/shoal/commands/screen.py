"""What commands show: tables that survive a pipe, and a Watcher with a download bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

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

from shoal.commands.tables import plain_table as plain_table
from shoal.wording import format_bytes as format_bytes

_SECONDS_BETWEEN_LINES = 10.0  # of progress in a pipe
WIDTH_IN_A_PIPE = 1000  # a file or another program gets whole lines, whatever the terminal's width


def open_console(*, stderr: bool = False) -> Console:
    """A console for results (stdout) or for progress (stderr)."""
    console = Console(stderr=stderr, highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = WIDTH_IN_A_PIPE
    return console


@contextmanager
def follow_steps(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yields `follow(done, total)`: a bar on a terminal, and in a pipe a line every ten seconds."""
    began = said = time.monotonic()

    def follow(done: int, total: int) -> None:
        nonlocal said
        bar.update(task, completed=done, total=total)
        if not console.is_terminal and time.monotonic() - said >= _SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            console.print(f"{what}: {done:,} of {total:,} steps, {said - began:.0f} s", markup=False)

    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        if not console.is_terminal:
            console.print(f"{what} …", style="dim", markup=False)
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
        self.console.print(sentence, style="dim", markup=False)
