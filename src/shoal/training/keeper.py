"""The checkpoints of a run: the last ones, newest first, and the best weights."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from shoal.errors import ShoalError
from shoal.training.checkpoint import check_progress, drop_own, load_checkpoint, save_checkpoint
from shoal.training.epoch_state import EpochState
from shoal.training.metrics import worst_score

if TYPE_CHECKING:
    from shoal.training.trainer import Trainer
    from shoal.training.weights import KeptWeights

BEST = "best.safetensors"


def name_last(folder: Path, age: int) -> Path:
    """The file of the last checkpoint, or of the one `age` before it."""
    return folder / (f"last-{age}.safetensors" if age else "last.safetensors")


def list_last(folder: Path) -> list[Path]:
    """The checkpoints in a folder, newest first."""
    older = {
        int(path.stem[5:]): path for path in folder.glob("last-*.safetensors") if path.stem[5:].isdigit()
    }
    newest = name_last(folder, 0)
    return [path for path in (newest, *(older[age] for age in sorted(older))) if path.is_file()]


def save_last(trainer: Trainer, folder: Path, keep: int, done: EpochState | None = None) -> None:
    """Write the newest checkpoint, after an epoch, or inside one whose state is `done`. Every rank writes its own state.

    Older checkpoints are renamed only once it is on disk, so that a full disk or a killed writer loses none of them.
    """
    trainer.share.save(folder, trainer.step, trainer.model, keep=max(keep, 2), in_epoch=done is not None)
    if trainer.transport.rank == 0:
        save_progress(trainer, name_last(folder, 0), done, keep)
        drop_own(folder, list_last(folder), trainer.step)
    trainer.asked.restart_clock()


def save_progress(trainer: Trainer, path: Path, done: EpochState | None = None, keep: int = 1) -> None:
    """Write one checkpoint, from which training resumes exactly."""
    progress: dict[str, Any] = {
        "epoch": trainer.epoch,
        "step": trainer.step,
        "best_epoch": trainer.best_epoch,
        "best_score": trainer.best_score,
        "ranks": trainer.transport.size,
    }
    if done is not None:
        progress |= asdict(done)
    rates = trainer.rates.read()
    if trainer.rates.changed:
        progress["rates"] = rates
    if trainer.weights.average:
        progress |= {"averaged_steps": trainer.weights.steps, "average": trainer.weights.average}
    if trainer.weights.statistics is not None:
        progress["statistics"] = trainer.weights.statistics
    unreadable = [old for old in trainer.unreadable if old.parent == path.parent]
    shift = (lambda: _shift(path.parent, keep, unreadable)) if keep > 1 else None
    save_checkpoint(path, trainer.last_weights, trainer.optimizer, progress, shift)
    trainer.unreadable = []


def _shift(folder: Path, keep: int, unreadable: list[Path]) -> None:
    """Rename older checkpoints, and link the newest one as `last-1`. Delete unreadable ones, and all beyond `keep`.

    The newest keeps its name until it is replaced.
    """
    for path in unreadable:
        path.unlink(missing_ok=True)
    for path in list_last(folder)[keep:]:
        path.unlink(missing_ok=True)
    for age in range(keep - 1, 1, -1):
        with suppress(FileNotFoundError):
            os.replace(name_last(folder, age - 1), name_last(folder, age))
    newest, before = name_last(folder, 0), name_last(folder, 1)
    if newest.is_file():
        before.unlink(missing_ok=True)  # a link cannot replace an existing file
        try:
            os.link(newest, before)
        except OSError:  # the file system has no hard links
            os.replace(newest, before)


def load_best(trainer: Trainer, folder: Path) -> list[str]:
    """Load the best weights of `folder`, if every rank can read them; otherwise return a notice and continue without."""
    failure, there = "", (folder / BEST).is_file()
    trainer.weights.best = None
    if folder.is_file():
        failure = f"{folder} has no best weights beside the last ones"
    try:
        if there:
            load_checkpoint(folder / BEST, trainer.model)
    except ShoalError as error:
        failure = str(error)
    said = trainer.transport.gather_texts(failure) if trainer.transport.size > 1 else [failure]
    if any(said):
        return [f"{next(filter(None, said))}; the best weights are chosen from later evaluations only"]
    if there:
        trainer.weights.keep_best()
    return []


def load_last(trainer: Trainer, folder: Path) -> tuple[EpochState | None, list[str]]:
    """Load the newest checkpoint that every rank can read; returns the state of its epoch, and notices.

    If a checkpoint, or a rank's own file of it, is damaged, the one before it is tried. A file in place of the folder is the only one.
    """
    found, failures = [folder] if folder.is_file() else list_last(folder), list[str]()
    for path in found or [name_last(folder, 0)]:
        failure, loaded = "", None
        try:
            loaded = _load(trainer, path.parent, path)
        except ShoalError as error:
            failure = str(error)
        said = trainer.transport.gather_texts(failure) if trainer.transport.size > 1 else [failure]
        failure = next((one for one in said if one), "")
        if not failure:
            assert loaded is not None
            done, notices = loaded
            trainer.unreadable = found[: len(failures)]
            if failures:
                notices.insert(0, f"{failures[0]}; resumed from {path.name}, after epoch {trainer.epoch:,}")
            return done, notices
        failures.append(failure)
    raise ShoalError(failures[0])


def _load(trainer: Trainer, folder: Path, path: Path) -> tuple[EpochState | None, list[str]]:
    progress = load_checkpoint(path, trainer.model, trainer.optimizer)
    trainer.epoch, trainer.best_epoch, trainer.best_score = check_progress(path, progress)
    size = trainer.transport.size
    steps = _read_count(path, progress, "averaged_steps", 0)
    trainer.step = _read_count(path, progress, "step", trainer.epoch * trainer.sampler.num_batches)
    average, statistics = progress.get("average", {}), progress.get("statistics", [])
    trainer.weights.resume(path, trainer.step, average, steps, statistics)
    trainer.rates.restore(_check_rates(path, progress.get("rates"), len(trainer.optimizer.param_groups)))
    ranks = _read_count(path, progress, "ranks", size)
    done = None
    if "losses" in progress:
        batches, nodes = (_read_count(path, progress, name) for name in ("batches", "nodes"))
        done = EpochState(batches, progress["losses"], nodes, _read_seconds(path, progress))
    if ranks == size:
        trainer.share.resume(folder, trainer.step, trainer.model, in_epoch=done is not None)
        return done, []
    return done, trainer.share.adopt(ranks, done)


def _check_rates(path: Path, rates: Any, groups: int) -> list[float] | None:
    """The learning rates that a callback changed, None if none did."""
    if rates is None:
        return None
    if not isinstance(rates, list) or len(rates) != groups or any(type(rate) is not float for rate in rates):
        raise ShoalError(f"{path} does not fit this optimizer: its learning rates are {rates!r:.80}")
    return rates


def _read_seconds(path: Path, progress: dict[str, Any]) -> float:
    value = progress.get("seconds", 0.0)
    if type(value) not in (int, float) or not 0 <= value < 2**53:
        raise ShoalError(f"{path} is damaged: its seconds are {value!r:.40}, expected a number")
    return float(value)


def _read_count(path: Path, progress: dict[str, Any], name: str, default: int | None = None) -> int:
    value = progress.get(name, default)
    if type(value) is not int or not 0 <= value < 2**53:
        raise ShoalError(f"{path} is damaged: its {name} is {value!r:.40}, expected a number")
    return value


class Resumable:
    """A trainer's methods to write a checkpoint and to resume from one."""

    weights: KeptWeights
    metric: str
    notices: list[str]
    best_epoch: int
    best_score: float
    _resumed: EpochState | None

    def save(self, path: str | Path) -> None:
        """Write a checkpoint from which training resumes exactly.

        Args:
            path: the file to write.
        """
        save_progress(cast("Trainer", self), Path(path).expanduser())

    def resume(self, folder: str | Path) -> None:
        """Resume from the last checkpoint, or from the one before if that is damaged.

        Args:
            folder: folder of the checkpoints, or a file that `save` wrote.
        """
        self.weights.last = None
        trainer, folder = cast("Trainer", self), Path(folder).expanduser()
        lost = load_best(trainer, folder)
        self._resumed, notices = load_last(trainer, folder)
        self.notices = notices + lost
        if lost:
            self.best_epoch, self.best_score = 0, worst_score(self.metric)
