"""What a person sees while training runs: a bar on a terminal, lines anywhere else."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shoal.sampling.base import Sampler
from shoal.training.share import Record

_MOST_LINES = 50  # where there is no bar
_WIDTH_WITH_BAR = 110  # columns; on a narrower terminal figures come first


class TrainingProgress:
    """A context manager whose `show` takes every epoch's record: loss, score, nodes per second, time left."""

    def __init__(self, console: Console, epochs: int, metric: str, done: int = 0) -> None:
        self.console = console
        self.epochs = epochs
        self.metric = metric
        bar = [BarColumn(bar_width=24)] if console.width >= _WIDTH_WITH_BAR else []
        self._bar = Progress(
            TextColumn("[bold]epoch"),
            MofNCompleteColumn(),
            *bar,
            TextColumn("{task.description}"),
            TextColumn("[dim]left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=epochs, completed=done)

    def __enter__(self) -> TrainingProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, record: Record) -> None:
        text = describe_epoch(record, self.metric)
        if self.console.is_terminal:
            self._bar.update(self._task, completed=record["epoch"], description=text)
        elif record["epoch"] % -(-self.epochs // _MOST_LINES) == 0 or record["epoch"] in (1, self.epochs):
            self.console.print(f"epoch {record['epoch']}/{self.epochs}  {text}", highlight=False)


def show_counting(console: Console, sampler: Sampler) -> None:
    """Count what a normalised sampler's batches are divided by, with a bar; nothing for the others."""
    if sampler.coverage is None:
        return
    with Progress(
        TextColumn("[bold]counting batches"),
        MofNCompleteColumn(),
        BarColumn(bar_width=24),
        TextColumn("{task.description}"),
        console=console,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, left: float) -> None:
            bar.update(task, completed=done, total=total, description=f"{left:.0f} s left")

        sampler.normalize(sampler.coverage, progress=show)


def describe_epoch(record: Record, metric: str) -> str:
    """One epoch in a line."""
    parts = [f"loss {record['loss']:.4f}"]
    if f"val_{metric}" in record:
        parts.append(f"val {metric} {record[f'val_{metric}']:.4f}")
    parts += [f"{record['nodes_per_second']:,.0f} nodes/s", f"{record['seconds']:.2f} s"]
    return "  ".join(parts)
