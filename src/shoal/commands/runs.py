"""Training runs with something to see: progress, scores, the target of a recipe. Only rank 0 shows it."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import ShoalError, Stopped

if TYPE_CHECKING:
    from shoal.distributed.transport import Transport
    from shoal.runs.config import RunConfig
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run

NO_VALIDATION = "the graph has no validation nodes: all epochs are trained, nothing stops early, and the last weights are kept"


def train_here(
    config: RunConfig | None,
    folder: Path,
    epochs: int | None,
    transport: Transport,
    parts: str | None = None,
) -> None:
    """Train as one of the ranks, or alone; only rank 0 shows how it goes.

    A run that this very job has begun before goes on: a launcher has started its ranks again.
    """
    from shoal.lock import writing
    from shoal.runs.folder import check_new
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run

    quiet = transport.rank != 0
    if config is not None:
        folder, begun = _choose_folder(folder, config, transport)
        config = None if begun else config
    is_single = config is not None and config.repeat == 1  # which takes the lock when it is trained
    if config is not None and not quiet and not is_single:
        check_new(folder)
    with nullcontext() if quiet or is_single else writing(folder):
        if config is not None and config.repeat > 1:
            _train_all(Repeat.create(folder, config, transport), quiet=quiet)
        elif config is not None:
            _train_run(Run.create(folder, config, transport), folder, quiet=quiet)
        elif Repeat.is_one(folder):
            _train_all(Repeat.open(folder, transport, epochs=epochs), quiet=quiet)
        else:
            run = Run.open(folder, transport, epochs=epochs, parts=parts)
            if epochs is not None and epochs < run.trainer.epoch:
                raise ShoalError(
                    f"{folder} has trained {run.trainer.epoch} epochs: --epochs {epochs} would end before, give more"
                )
            _train_run(run, folder, quiet=quiet)


def _choose_folder(folder: Path, config: RunConfig, transport: Transport) -> tuple[Path, bool]:
    """Rank 0's folder, and whether this job has begun the run in it before."""
    from shoal.runs.data import make_paths_absolute
    from shoal.runs.folder import is_of_this_job

    make_paths_absolute(config)
    begun = transport.rank == 0 and is_of_this_job(folder, config)
    transport.phase = "the choice of the run's folder"
    first, _, name = transport.gather_texts(f"{int(begun)} {folder}")[0].partition(" ")
    return Path(name), first == "1"


def _train_all(repeat: Repeat, *, quiet: bool = False) -> None:
    """Train every seed's run and tell mean and deviation of the scores, unless `quiet`."""
    from shoal.commands.screen import open_console

    console = open_console()
    console.quiet = quiet
    try:
        for number, run in enumerate(repeat.runs(), 1):
            said = f"run {number} of {repeat.config.repeat}, seed {run.config.training.seed}"
            console.print(said, markup=False)
            _train_run(run, repeat.folder, quiet=quiet)
    except KeyboardInterrupt as error:
        if not repeat.has_trained:
            raise
        raise _explain_end(error, repeat.folder) from None
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


def _train_run(run: Run, folder: Path, *, quiet: bool = False) -> dict[str, float]:
    """Train a run to its end, showing how it goes unless `quiet`; returns its test scores. `folder` is what to resume."""
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
    if not trainer.has_nodes("val"):
        console.print(f"notice: {NO_VALIDATION}", markup=False)
    if (ended := run.explain_end()) is not None:
        console.print(f"notice: {ended}", markup=False)
    if (interval := run.explain_interval()) is not None:
        console.print(interval, markup=False)
    try:
        with TrainingProgress(console, config.training.epochs, trainer.metric, trainer.epoch) as progress:
            scores = run.train(progress.show)
    except KeyboardInterrupt as error:
        raise _explain_end(error, folder if run.has_checkpoint else None) from None
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


def _explain_end(error: KeyboardInterrupt, folder: Path | None) -> Stopped:
    """The interruption with how to go on in `folder`, None where nothing was kept."""
    number = error.signal if isinstance(error, Stopped) else signal.SIGINT
    ended = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    if folder is None:
        return Stopped(number, f"{ended} before the first step ended: nothing was kept")
    return Stopped(number, f"{ended}; continue with: shoal train --resume {folder}")


def _compare_target(config: RunConfig, scores: dict[str, float]) -> None:
    """Say whether the score a recipe states was reached, within its published deviation."""
    from shoal.commands.screen import open_console
    from shoal.training.metrics import reaches

    target = config.target
    found = scores.get(f"test_{target.metric}")
    if target.score is None or found is None:
        return
    assert target.metric is not None
    is_reached = reaches(target.metric, found, target.score, target.deviation)
    reached = "reached" if is_reached else "not reached"
    spread = f" ± {target.deviation}" if target.deviation else ""
    open_console().print(
        f"target {target.metric} {target.score}{spread}: {reached} ({target.source})",
        markup=False,
        highlight=False,
    )
