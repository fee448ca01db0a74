"""Training runs with something to see: progress, scores, the target of a recipe. Only rank 0 shows it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.distributed.transport import Transport
    from shoal.runs.config import RunConfig
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run


def train_here(config: RunConfig | None, folder: Path, epochs: int | None, transport: Transport) -> None:
    """Train as one of the ranks, or alone; only rank 0 shows how it goes."""
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run

    quiet = transport.rank != 0
    if config is not None and config.repeat > 1:
        _train_all(Repeat.create(folder, config, transport), quiet=quiet)
    elif config is not None:
        _train_run(Run.create(folder, config, transport), quiet=quiet)
    elif Repeat.is_one(folder):
        _train_all(Repeat.open(folder, transport, epochs=epochs), quiet=quiet)
    else:
        _train_run(Run.open(folder, transport, epochs=epochs), quiet=quiet)


def _train_all(repeat: Repeat, *, quiet: bool = False) -> None:
    """Train every seed's run and tell mean and deviation of the scores, unless `quiet`."""
    from shoal.commands.screen import open_console

    console = open_console()
    console.quiet = quiet
    for number, run in enumerate(repeat.runs(), 1):
        console.print(
            f"run {number} of {repeat.config.repeat}, seed {run.config.training.seed}", markup=False
        )
        _train_run(run, quiet=quiet)
    if quiet:
        return
    summary = repeat.summarize()
    for name, scores in summary.items():
        if name.startswith("test_"):
            text = f"{scores['mean']:.4f} ± {scores['deviation']:.4f} over {repeat.config.repeat} seeds"
            console.print(f"{name.replace('_', ' ', 1)} {text}", highlight=False)
    means = {name: value["mean"] for name, value in summary.items() if name != "seeds"}
    _compare_target(repeat.config, means)
    console.print(f"run folder: {repeat.folder}", markup=False)


def _train_run(run: Run, *, quiet: bool = False) -> dict[str, float]:
    """Train a run to its end, showing how it goes unless `quiet`; returns its test scores."""
    from shoal.commands.progress import TrainingProgress, show_counting
    from shoal.commands.screen import open_console

    console = open_console()
    console.quiet = quiet
    trainer, config = run.trainer, run.config
    console.print(run.describe(), markup=False)
    console.print(run.check_memory(), markup=False)
    show_counting(console, trainer.sampler)
    for notice in (*run.notices, *trainer.sampler.notices):
        console.print(f"notice: {notice}", markup=False)
    if (ended := run.explain_end()) is not None:
        console.print(f"notice: {ended}", markup=False)
    if (interval := run.explain_interval()) is not None:
        console.print(interval, markup=False)
    try:
        with TrainingProgress(console, config.training.epochs, trainer.metric, trainer.epoch) as progress:
            scores = run.train(progress.show)
    except KeyboardInterrupt:
        if not run.has_checkpoint:
            raise KeyboardInterrupt("interrupted before the first epoch ended: nothing was kept") from None
        raise KeyboardInterrupt(f"interrupted; continue with: shoal train --resume {run.folder}") from None
    if scores["best_epoch"]:
        console.print(
            f"best validation {trainer.metric} {trainer.best_score:.4f} in epoch {scores['best_epoch']}"
        )
    for name, value in scores.items():
        if name.startswith("test_"):
            console.print(f"{name.replace('_', ' ', 1)} {value:.4f}")
    if not quiet:
        _compare_target(config, scores)
    if (memory := run.summarize_memory()) is not None:
        console.print(memory, markup=False, highlight=False)
    console.print(f"run folder: {run.folder}", markup=False)
    return scores


def _compare_target(config: RunConfig, scores: dict[str, float]) -> None:
    """Say whether the score a recipe states was reached, within its published deviation."""
    from shoal.commands.screen import open_console

    target = config.target
    found = scores.get(f"test_{target.metric}")
    if target.score is None or found is None:
        return
    reached = "reached" if found >= target.score - target.deviation else "not reached"
    spread = f" ± {target.deviation}" if target.deviation else ""
    open_console().print(
        f"target {target.metric} {target.score}{spread}: {reached} ({target.source})",
        markup=False,
        highlight=False,
    )
