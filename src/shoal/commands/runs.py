"""Train runs and print progress, scores and a recipe's target; only rank 0 prints."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import ShoalError, Stopped
from shoal.wording import count

if TYPE_CHECKING:
    from shoal.commands.screen import Screen
    from shoal.distributed.detect import Launch
    from shoal.distributed.transport import Transport
    from shoal.runs.config import RunConfig
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run
    from shoal.training.epoch_state import Record

NO_VALIDATION = "the graph has no validation nodes: all epochs are trained, nothing stops early, and the last weights are kept"


def train_here(
    config: RunConfig | None,
    folder: Path,
    changes: dict[str, Any],
    transport: Transport,
    parts: str | None = None,
    *,
    as_json: bool = False,
    report: bool = False,
    live: int | None = None,
) -> None:
    """Train a new run in `folder`, or resume the one in it (no `config`), on this rank.

    Only rank 0 prints progress and scores, serves them on port `live`, and writes a `report`. A run that this job
    started before is resumed: its launcher has restarted the ranks. With `as_json` the last figures are printed as
    JSON and everything else goes to stderr.
    """
    from shoal.commands.screen import open_console, print_json
    from shoal.commands.viewing import live_view, write_report
    from shoal.lock import writing
    from shoal.runs.folder import check_new
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run

    console = open_console(stderr=as_json)
    console.quiet = quiet = transport.rank != 0
    if config is not None:
        folder, begun = _choose_folder(folder, config, transport)
        config = None if begun else config
    is_single = config is not None and config.repeat == 1  # it takes the lock when it is trained
    if config is not None and not quiet and not is_single:
        check_new(folder)
    view = nullcontext() if quiet or live is None else live_view(folder, live, console)
    with (
        nullcontext() if quiet or is_single else writing(folder),
        view,
        _explaining(folder, is_new=config is not None),
    ):
        if config is not None and config.repeat > 1:
            found = _train_all(Repeat.create(folder, config, transport), console)
        elif config is not None:
            found = _train_run(Run.create(folder, config, transport), folder, console)
        elif Repeat.is_one(folder):
            found = _train_all(Repeat.open(folder, transport, **changes), console)
        else:
            run = Run.open(folder, transport, **changes, parts=parts)
            epochs = changes.get("epochs")
            if epochs is not None and epochs < run.trainer.epoch:
                raise ShoalError(
                    f"{folder} has trained {count(run.trainer.epoch, 'epoch')}: --epochs {epochs} is less, give more"
                )
            found = _train_run(run, folder, console)
    if report and not quiet:
        write_report(folder, console)
    if as_json and not quiet:
        print_json(found)


@contextmanager
def _explaining(folder: Path, *, is_new: bool) -> Iterator[None]:
    """Say of an interruption while data are loaded that nothing was saved, or how to resume a run that is there."""
    try:
        yield
    except KeyboardInterrupt as error:
        if str(error):  # training has said more
            raise
        raise _explain_end(error, None if is_new else folder) from None


def _choose_folder(folder: Path, config: RunConfig, transport: Transport) -> tuple[Path, bool]:
    """Rank 0's folder, and whether this job has started the run in it before."""
    from shoal.runs.data import make_paths_absolute
    from shoal.runs.folder import is_of_this_job

    make_paths_absolute(config)
    begun = transport.rank == 0 and is_of_this_job(folder, config)
    transport.phase = "the choice of the run's folder"
    first, _, name = transport.gather_texts(f"{int(begun)} {folder}")[0].partition(" ")
    return Path(name), first == "1"


def _train_all(repeat: Repeat, console: Screen) -> Record:
    """Train every seed's run and report mean and deviation of the scores; returns them."""
    said: set[str] = set()  # lines that later seeds do not repeat
    try:
        for number, run in enumerate(repeat.runs(), 1):
            before = f"run {number} of {repeat.config.repeat}, seed {run.config.training.seed}"
            _train_run(run, repeat.folder, console, said, before)
    except KeyboardInterrupt as error:
        if not repeat.has_trained:
            raise
        raise _explain_end(error, repeat.folder) from None
    if console.quiet:
        return {}
    summary = repeat.summarize()
    for name, scores in summary.items():
        if name.startswith("test_"):
            text = (
                f"{scores['mean']:.4f} ± {scores['deviation']:.4f} over {count(repeat.config.repeat, 'seed')}"
            )
            console.say(f"{name.replace('_', ' ', 1)} {text}")
    means = {name: value["mean"] for name, value in summary.items() if name != "seeds"}
    target = _compare_target(repeat.config, means, console)
    console.say(f"run folder: {repeat.folder}")
    return {"folder": repeat.folder} | summary | target


def note_resume(launch: Launch, folder: Path) -> str | None:
    """The command that resumes `folder`, if the launcher ends all ranks when one is lost: then nobody could print it."""
    if launch.size == 1 or launch.launcher not in ("mpi", "slurm"):
        return None
    return f"if a rank is lost, start the ranks again with: shoal train --resume {shlex.quote(str(folder))}"


def _introduce(run: Run, folder: Path, console: Screen, said: set[str]) -> None:
    """Print data, memory need and notices of a run, without lines that were `said` for earlier seeds."""
    from shoal.commands.progress import show_counting
    from shoal.distributed.detect import detect_launch

    def say(lines: list[str]) -> None:
        for line in lines:
            if line not in said:
                console.say(line)
                said.add(line)

    trainer, memory = run.trainer, run.check_memory()
    say([run.describe()] if said else [run.describe(), memory])
    show_counting(console, trainer.sampler)
    notices = [*run.notices, *trainer.sampler.notices]
    if not trainer.has_nodes("val"):
        notices.append(NO_VALIDATION)
    if (ended := run.explain_end()) is not None:
        notices.append(ended)
    say([f"notice: {notice}" for notice in notices])
    if (interval := run.explain_interval()) is not None:
        say([interval])
    if (resume := note_resume(detect_launch(), folder)) is not None:
        say([resume])


def _train_run(
    run: Run, folder: Path, console: Screen, said: set[str] | None = None, before: str | None = None
) -> Record:
    """Train a run to its end, printing progress; returns its last figures.

    Args:
        folder: what to resume after an interruption.
        said: lines that were printed for earlier seeds.
        before: a line to print first.
    """
    from shoal.commands.progress import TrainingProgress

    trainer, config = run.trainer, run.config
    with run.remove_unless_trained():
        _introduce(run, folder, console, set() if said is None else said)
    if before is not None:
        console.say(before)
    try:
        with TrainingProgress(console, config.training.epochs, trainer.metric, trainer.epoch) as progress:
            scores = run.train(progress.show)
    except KeyboardInterrupt as error:
        raise _explain_end(error, folder if run.has_checkpoint else None) from None
    best: Record = {}
    if scores["best_epoch"]:
        best = {f"val_{trainer.metric}": trainer.best_score}
        of = "" if trainer.eval_sample is None else f" of {trainer.eval_sample.size:,} nodes"
        score = f"{trainer.metric}{of} {trainer.best_score:.4f}"
        ended = trainer.is_out_of_patience() and trainer.epoch < config.training.epochs
        why = f"; ended after epoch {trainer.epoch} by training.patience={trainer.patience}" if ended else ""
        console.say(f"best validation {score} in epoch {scores['best_epoch']}{why}")
    for name, value in scores.items():
        if name.startswith(("test_", "val_")):
            console.say(f"{name.replace('_', ' ', 1)} {value:.4f}")
    target = _compare_target(config, scores, console)
    if before is None and (poor := explain_poor(run, scores)) is not None:
        console.notice(poor)
    if (memory := run.summarize_memory()) is not None:
        console.say(memory)
    console.say(f"run folder: {run.folder}")
    return {"folder": run.folder, "epochs": trainer.epoch} | best | scores | target


def explain_poor(run: Run, scores: Record) -> str | None:
    """A notice if a finished run does not beat a baseline: which one, and what to try. None if it beats them."""
    from shoal.training.baselines import CONSTANT, find_better_baseline

    trainer, config = run.trainer, run.config
    if not trainer.best_epoch:
        return None
    score = scores.get(f"val_{trainer.metric}", trainer.best_score)
    if (better := find_better_baseline(trainer, score)) is None:
        return None
    data = "DATA" if config.data == config.partition.folder else shlex.quote(config.data)
    tips = ["more --epochs (the last was the best)"] if trainer.best_epoch == trainer.epoch else []
    tips.append(f"`shoal tune {data}`")
    if better.name == CONSTANT:
        tips.append(f"`shoal data info {data}`, which shows labels, features and edges")
    else:
        tips.append(f"`shoal predict {shlex.quote(str(run.folder))} --smooth -o labels.parquet`")
        training = config.training
        fixed = config.draws and config.sampler.name in ("asgcn", "rows")  # inputs that labels cannot join
        if not (training.label_reuse or training.history or fixed):
            tips.append("--set training.label_reuse=0.5")
    said = f"validation {trainer.metric} is {score:.4f}, and {better.name} scores {better.score:.4f}"
    return f"a poor run: {said}; try {', or '.join(tips)}"


def _explain_end(error: KeyboardInterrupt, folder: Path | None) -> Stopped:
    """The interruption, with the command that resumes `folder`; None: nothing was saved."""
    number = error.signal if isinstance(error, Stopped) else signal.SIGINT
    ended = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    if folder is None:
        return Stopped(number, f"{ended} before the first step ended: nothing was saved")
    return Stopped(number, f"{ended}; continue with: shoal train --resume {folder}")


def _compare_target(config: RunConfig, scores: Record, console: Screen) -> Record:
    """Report whether the score a recipe states was reached, within its published deviation; returns the comparison."""
    from shoal.training.metrics import reaches

    target = config.target
    found = scores.get(f"test_{target.metric}")
    if target.score is None or found is None:
        return {}
    assert target.metric is not None
    is_reached = reaches(target.metric, found, target.score, target.deviation)
    spread = f" ± {target.deviation}" if target.deviation else ""
    said = "reached" if is_reached else "not reached"
    console.say(f"target {target.metric} {target.score}{spread}: {said} ({target.source})")
    return {"target": {"metric": target.metric, "score": target.score, "reached": is_reached}}
