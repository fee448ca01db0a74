"""RunLogger: a callback that logs every epoch's figures to an experiment tracker, on rank 0."""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from shoal.errors import missing_extra
from shoal.training.callback import Callback
from shoal.training.epoch_state import Record
from shoal.training.trainer import Trainer


class RunLogger(Callback):
    """Opens a tracker when training starts, logs the numbers of every epoch, and test scores at a run's end.

    If a tracker raises, training continues: the cause is printed once, and nothing more is logged to it.

    Attributes:
        is_open: whether this rank is logging; only rank 0 does.
    """

    is_open = False

    @abstractmethod
    def open(self, folder: Path | None, settings: dict[str, Any], epoch: int) -> None:
        """Open the tracker, or resume after `epoch`. `folder` is the run folder, if any; `settings` are the run's."""

    @abstractmethod
    def log(self, values: dict[str, float], epoch: int) -> None:
        """Log the figures of an epoch, by name."""

    @abstractmethod
    def close(self) -> None:
        """Close the tracker: all figures are logged."""

    def on_start(self, trainer: Trainer) -> None:
        if trainer.transport.rank == 0 and not self.is_open:
            folder = None if trainer.checkpoints is None else trainer.checkpoints.parent
            settings = read_settings(folder)
            self.is_open = self._try(lambda: self.open(folder, settings, trainer.epoch))

    def on_epoch(self, trainer: Trainer, record: Record) -> None:
        self._log(record, trainer.epoch)

    def on_end(self, trainer: Trainer) -> None:
        if self.is_open and trainer.checkpoints is None:  # in a run, test scores follow
            self._close()

    def on_scores(self, trainer: Trainer, scores: Record) -> None:
        self._log(scores, trainer.epoch)
        if self.is_open:
            self._close()

    def _log(self, record: Record, epoch: int) -> None:
        if self.is_open and not self._try(lambda: self.log(list_numbers(record), epoch)):
            self.is_open = False
            with suppress(Exception):  # figures logged before are kept
                self.close()

    def _close(self) -> None:
        self.is_open = False
        self._try(self.close)

    def _try(self, call: Callable[[], None]) -> bool:
        """Call the tracker; if it raises, print a notice and return False."""
        try:
            call()
        except Exception as error:
            cause = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            said = f"notice: {self.name or type(self).__name__} failed and gets no more figures ({cause}); training continues"
            print(said, file=sys.stderr, flush=True)
            return False
        return True


def list_numbers(record: Record) -> dict[str, float]:
    """The numbers of a record by name; nested ones are named like `time/sampling`."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= {f"{name}/{key}": one for key, one in list_numbers(value).items()}
        elif isinstance(value, int | float) and not isinstance(value, bool) and name != "epoch":
            found[name] = float(value)
    return found


def read_settings(folder: Path | None) -> dict[str, Any]:
    """A run's settings by key; empty without a folder."""
    path = None if folder is None else folder / "config.yaml"
    if path is None or not path.is_file():
        return {}
    found: dict[str, Any] = {}
    for name, value in yaml.safe_load(path.read_text()).items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": one for key, one in value.items()}
        else:
            found[name] = value
    return found


def require(module: str, package: str, extra: str) -> Any:
    """Import an optional module; the error for a missing one names the extra that installs it."""
    try:
        return import_module(module)
    except ImportError:
        raise missing_extra(package, extra, f"callback {extra}") from None
