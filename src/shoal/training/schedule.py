"""Learning-rate schedules: a pure function of the epoch, so that a resumed run needs no state for them."""

import math
from collections.abc import Callable

from shoal.errors import unknown_name


def _step(done: float) -> float:
    return 1.0 if done < 0.5 else 0.1 if done < 0.75 else 0.01


_FACTORS: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "cosine": lambda done: 0.5 * (1 + math.cos(math.pi * done)),
    "linear": lambda done: 1.0 - done,
    "step": _step,
}
SCHEDULES = tuple(_FACTORS)


def scale_learning_rate(schedule: str, epoch: int, epochs: int, warmup: int = 0) -> float:
    """The factor on the learning rate in epoch number `epoch` (0 is the first) of `epochs`.

    It rises in equal steps over `warmup` epochs. Then `constant` stays at 1, `cosine` and `linear` fall towards 0, and
    `step` falls to 0.1 after half and to 0.01 after three quarters of the remaining epochs.
    """
    if schedule not in _FACTORS:
        raise unknown_name("schedule", schedule, SCHEDULES)
    if epoch < warmup:
        return (epoch + 1) / (warmup + 1)
    return _FACTORS[schedule]((epoch - warmup) / max(epochs - warmup, 1))
