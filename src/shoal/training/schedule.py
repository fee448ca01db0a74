"""Learning-rate schedules: a pure function of the epoch, so that a resumed run needs no state for them."""

import math
from collections.abc import Callable, Sequence
from typing import Annotated

from torch.optim import Optimizer

from shoal.errors import ShoalError, unknown_name
from shoal.settings import Choices


def _step(done: float) -> float:
    return 1.0 if done < 0.5 else 0.1 if done < 0.75 else 0.01


_FACTORS: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "linear": lambda done: 1.0 - done,
    "step": _step,
}
SCHEDULES = tuple(_FACTORS)


Schedule = Annotated[
    str | Callable[[int], float], Choices(SCHEDULES), "how the learning rate changes over the epochs"
]


def scale_learning_rate(
    schedule: str | Callable[[int], float], epoch: int, epochs: int, warmup: int = 0
) -> float:
    """The factor on the learning rate in epoch number `epoch` (0 is the first) of `epochs`.

    It rises in equal steps over `warmup` epochs. Then `constant` stays at 1, `cosine` and `linear` fall towards 0, and
    `step` falls to 0.1 after half and to 0.01 after three quarters of the remaining epochs. A function returns the factor of
    the epoch it is given.
    """
    if isinstance(schedule, str) and schedule not in _FACTORS:
        raise unknown_name("schedule", schedule, SCHEDULES)
    if epoch < warmup:
        return (epoch + 1) / (warmup + 1)
    if isinstance(schedule, str):
        return _FACTORS[schedule]((epoch - warmup) / max(epochs - warmup, 1))
    factor = schedule(epoch)
    if not isinstance(factor, int | float) or not 0 <= factor < math.inf:
        raise ShoalError(
            f"the schedule returned {factor!r:.80} for epoch {epoch}: expected a factor of 0 or more"
        )
    return float(factor)


class LearningRates:
    """The learning rate of every parameter group, times a schedule's factor. What a callback changes in between stays.

    Attributes:
        base: the rates without the factor.
        changed: whether they are no longer those that the optimizer was made with.
    """

    def __init__(self, optimizer: Optimizer, schedule: object = None) -> None:
        if isinstance(schedule, type):
            raise ShoalError(
                f"schedule is the class {schedule.__name__}: expected {', '.join(SCHEDULES)}, or a function of the epoch "
                "that returns a factor, such as lambda epoch: 0.5 ** (epoch // 10)"
            )
        self.optimizer = optimizer
        self.base = [float(group["lr"]) for group in optimizer.param_groups]
        self.changed = False
        self._made, self._factor = list(self.base), 1.0

    def scale(self, factor: float) -> None:
        """Multiply the rates by another factor from here on."""
        self.read()
        self._write(factor)

    def read(self) -> list[float]:
        """The rates without the factor, with what was changed in the groups."""
        for place, group in enumerate(self.optimizer.param_groups):
            rate, is_new = float(group["lr"]), place == len(self.base)
            if is_new or rate != self.base[place] * self._factor:
                self.base[place:] = [rate / (self._factor or 1.0), *self.base[place + 1 :]]
                self.changed = True
        return self.base

    def restore(self, base: Sequence[float] | None) -> None:
        """Go on with the changed rates of a checkpoint, or with those that the optimizer was made with."""
        self.changed = base is not None
        self.base = list(self._made if base is None else base)
        self._write(1.0)

    def _write(self, factor: float) -> None:
        self._factor = factor
        for rate, group in zip(self.base, self.optimizer.param_groups):
            group["lr"] = rate * factor
