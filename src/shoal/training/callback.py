"""Callback: hooks into training, registered by name or passed as objects."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from shoal.errors import ShoalError
from shoal.registry import Registry

if TYPE_CHECKING:
    from shoal.batch import Batch
    from shoal.training.trainer import Trainer


class Callback:
    """Hooks that the trainer calls on every rank; override what you need.

    A record is an epoch's line in `metrics.jsonl`. A callback may add to it, with the same numbers on every rank.
    `trainer.stop()`, called in any hook, ends training after the epoch.
    """

    name: ClassVar[str] = ""
    shows_progress: ClassVar[bool] = False  # True: `fit` shows no progress bar of its own

    def on_start(self, trainer: Trainer) -> None:
        """Before the first epoch of a call of `fit`.

        Args:
            trainer: the trainer.
        """

    def on_batch(self, trainer: Trainer, batch: Batch, loss: float) -> None:
        """After every optimizer step. Costs nothing unless overridden.

        Args:
            trainer: the trainer.
            batch: the batch of the step.
            loss: its loss.
        """

    def on_epoch(self, trainer: Trainer, record: dict[str, Any]) -> None:
        """After every epoch and its evaluation, before the checkpoint is written.

        Args:
            trainer: the trainer.
            record: figures of the epoch by name; a callback may add to them.
        """

    def on_end(self, trainer: Trainer) -> None:
        """After the last epoch, with the best weights in the model.

        Args:
            trainer: the trainer.
        """

    def on_close(self, trainer: Trainer) -> None:
        """When `fit` ends, before `on_end` and also after an exception: close what `on_start` opened.

        Args:
            trainer: the trainer.
        """

    def on_scores(self, trainer: Trainer, scores: dict[str, Any]) -> None:
        """At the end of a run of `shoal train`.

        Args:
            trainer: the trainer.
            scores: the best epoch and the test scores by name.
        """


CALLBACKS: Registry[type[Callback]] = Registry("callback", "shoal.training.callbacks")


def make_callbacks(given: Any) -> list[Callback]:
    """Callbacks from one or several objects, classes or names."""
    found = []
    for one in given if isinstance(given, list | tuple) else [given]:
        made = CALLBACKS[one]() if isinstance(one, str) else one() if isinstance(one, type) else one
        if not isinstance(made, Callback):
            raise ShoalError(
                f"callbacks has {one!r}: expected a shoal.Callback, or the name of a registered one"
            )
        found.append(made)
    return found


@contextmanager
def show_epochs(
    trainer: Trainer, progress: bool | None, on_epoch: Callable[[dict[str, Any]], None] | None
) -> Iterator[Callable[[dict[str, Any]], None] | None]:
    """Yields the function that `fit` calls after every epoch: `on_epoch`, with a progress bar if `progress`.

    `progress` None: a bar in a notebook or on a terminal, unless `on_epoch` or a callback shows epochs already.
    """
    if progress is None:
        shown = on_epoch is not None or any(one.shows_progress for one in trainer.callbacks)
        progress = not shown and _is_watched()
    if not progress:
        yield on_epoch
        return
    import shoal

    bar = shoal.ProgressBar()

    def show(record: dict[str, Any]) -> None:
        bar.on_epoch(trainer, record)
        if on_epoch is not None:
            on_epoch(record)

    bar.on_start(trainer)
    try:
        yield show
    finally:
        bar.on_close(trainer)


def _is_watched() -> bool:
    """Whether output goes to a notebook or a terminal."""
    if "ipykernel" in sys.modules:
        return True
    try:
        return bool(sys.stdout.isatty())
    except (AttributeError, ValueError):  # stdout is closed, or an object without isatty
        return False
