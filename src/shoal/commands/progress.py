"""Progress of training: a bar on a terminal or in a notebook, lines anywhere else."""

from __future__ import annotations

from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from shoal.commands.screen import Screen
from shoal.sampling.base import Sampler
from shoal.training.callback import Callback
from shoal.training.epoch_state import Record

if TYPE_CHECKING:
    from shoal.training.trainer import Trainer

_MOST_LINES = 50  # where there is no bar
_WIDTH_WITH_BAR = 110  # columns; narrower terminals show figures without a bar
_LEAST_COMPILING = 0.1  # seconds of compilation that are shown


class TrainingProgress:
    """A context manager whose `show` takes every epoch's record: loss, score, nodes per second, time left.

    Args:
        console: where to print.
        epochs: the last epoch.
        metric: the validation score to show.
        done: epochs trained before.
    """

    def __init__(self, console: Console, epochs: int, metric: str, done: int = 0) -> None:
        self.console = console
        self.epochs = epochs
        self.metric = metric
        self._cell = None if not console.is_jupyter else NotebookBar(epochs)
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
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar and leave it on the screen."""
        self._bar.stop()

    def show(self, record: Record) -> None:
        """Show a finished epoch. Without a bar at most 50 epochs get a line."""
        text = describe_epoch(record, self.metric)
        if self._cell is not None:
            self._cell.show(record["epoch"], text)
        elif self.console.is_terminal:
            self._bar.update(self._task, completed=record["epoch"], description=text)
        elif record["epoch"] % -(-self.epochs // _MOST_LINES) == 0 or record["epoch"] in (1, self.epochs):
            line = f"epoch {record['epoch']}/{self.epochs}  {text}"
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)


class NotebookBar:
    """A bar in a notebook's cell, drawn by the browser."""

    def __init__(self, epochs: int) -> None:
        from IPython.display import display

        self.epochs = epochs
        self._handle = display(self._draw(0, "starting"), display_id=True)

    def show(self, epoch: int, text: str) -> None:
        """Move the bar to an epoch."""
        self._handle.update(self._draw(epoch, text))

    def _draw(self, epoch: int, text: str) -> Any:
        from IPython.display import HTML

        bar = f"<progress value={epoch} max={self.epochs}></progress>"
        return HTML(f"{bar} epoch {epoch}/{self.epochs} &nbsp; {escape(text)}")


class ProgressBar(Callback):
    """Shows a bar while `fit` runs, in a notebook or on a terminal, and a line per epoch anywhere else.

    shoal.Trainer(model, graph, callbacks=shoal.ProgressBar()).fit(30)
    """

    shows_progress = True

    def __init__(self) -> None:
        self._shown: TrainingProgress | None = None

    def on_start(self, trainer: Trainer) -> None:
        """Open the bar, on rank 0."""
        if trainer.transport.rank == 0:
            self._shown = TrainingProgress(Console(), trainer.epochs, trainer.metric, trainer.epoch)
            self._shown.__enter__()

    def on_epoch(self, trainer: Trainer, record: Record) -> None:
        """Show the epoch's figures."""
        if self._shown is not None:
            self._shown.show(record)

    def on_close(self, trainer: Trainer) -> None:
        """Close the bar."""
        if self._shown is not None:
            self._shown.__exit__(None, None, None)
            self._shown = None

    @property
    def is_closed(self) -> bool:
        """Whether no bar is being drawn."""
        return self._shown is None


def describe_epoch(record: Record, metric: str) -> str:
    """One epoch in a line. Nodes per second exclude compilation."""
    parts = [f"loss {record['loss']:.4f}"]
    if f"val_{metric}" in record:
        error = f" ± {record[name]:.4f}" if (name := f"val_{metric}_error") in record else ""
        parts.append(f"val {metric} {record[f'val_{metric}']:.4f}{error}")
    parts += [f"{record['nodes_per_second']:,.0f} nodes/s", f"{record['seconds']:.2f} s"]
    if (compiling := record.get("compile_seconds", 0.0)) >= _LEAST_COMPILING:
        parts.append(f"({compiling:.1f} s compiling)")
    return "  ".join(parts)


def show_counting(console: Screen, sampler: Sampler) -> None:
    """Estimate a normalised sampler's sampling probabilities, with a progress bar; nothing for other samplers."""
    if sampler.coverage is None:
        return
    with Progress(
        TextColumn("[bold]estimating sampling probabilities"),
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
