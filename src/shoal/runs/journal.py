"""Trials in a file: Optuna's journal, JSON lines written by one process at a time."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import ShoalError
from shoal.wording import count

if TYPE_CHECKING:
    import optuna

_NAME = "tune"


@dataclass(frozen=True)
class Tried:
    """A trial that has ended.

    Attributes:
        number: counted from 0, which is the trial with the default settings.
        config: the configuration, in the form of a recipe.
        ended: done, pruned, out of time, or failed with a reason.
        score: best validation score; None if it failed.
    """

    number: int
    config: dict[str, Any]
    ended: str
    score: float | None
    metric: str = ""
    epochs: int = 0
    best_epoch: int = 0
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether its score can be compared with others: it was neither pruned nor failed."""
        return self.score is not None and self.ended != "pruned"

    def to_row(self) -> dict[str, Any]:
        """Its figures, for a table."""
        names = ("number", "ended", "score", "epochs", "best_epoch", "seconds")
        return {"trial" if name == "number" else name: getattr(self, name) for name in names}


def open_study(path: Path) -> optuna.Study:
    """The study in a journal; a missing journal is created.

    A last line that a killed process cut short is dropped. A trial that never ended is marked as failed.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    _drop_cut_line(path)
    lock: Any = NoLock()
    backend = JournalFileBackend(str(path), lock)
    try:
        storage = optuna.storages.JournalStorage(backend)
        study = optuna.create_study(
            storage=storage, study_name=_NAME, direction="maximize", load_if_exists=True
        )
        for trial in study.get_trials(deepcopy=False):
            if not trial.state.is_finished():
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        list_tried(study)
    except (ValueError, KeyError, TypeError, AttributeError, AssertionError):
        raise ShoalError(f"{path} is damaged: expected Optuna's journal; start a new search") from None
    return study


def list_tried(study: optuna.Study) -> list[Tried]:
    """The finished trials, numbered in order, without interrupted ones."""
    found: list[Tried] = []
    for trial in study.get_trials(deepcopy=False):
        figures = trial.user_attrs.get("figures")
        if figures is None or not trial.state.is_finished():
            continue
        score = None if figures["ended"].startswith("failed") else trial.value
        found.append(Tried(len(found), trial.user_attrs["config"], score=score, **figures))
    return found


def count_ends(tried: list[Tried]) -> str:
    """The number of trials, and how they ended, in words."""
    ends = Counter(one.ended.partition(":")[0] for one in tried)
    return f"{count(len(tried), 'trial')}: {', '.join(f'{number} {end}' for end, number in ends.items())}"


def say_rank(tried: list[Tried], best: Tried) -> str:
    """The best trial's rank in words; a single trial with a score is not called the best."""
    if sum(one.is_whole for one in tried) > 1:
        return f"the best of {len(tried)} trials"
    return "the only trial with a score" if best.number else "the defaults, the only trial with a score"


def _drop_cut_line(path: Path) -> None:
    if path.is_file():
        kept = path.read_bytes().rpartition(b"\n")
        if kept[2]:
            os.truncate(path, len(kept[0]) + len(kept[1]))


class NoLock:
    """Replaces Optuna's lock: a search already holds the folder's lock (`shoal.lock`), which ends with its process."""

    def acquire(self) -> bool:
        """Always succeed."""
        return True

    def release(self) -> None:
        """Do nothing."""
