"""Interruption: signals and a timer that make training write a checkpoint after the step, and stop after a signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import numpy as np

from shoal.distributed.transport import Transport
from shoal.errors import Stopped

SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGUSR1,
)  # Ctrl-C, kill and Slurm, Slurm before its time limit
_BITS = 13  # enough for a counter to which up to 4,096 ranks add 1


class Interruption:
    """Requests to checkpoint or stop after a step. They are summed with the step's loss, so that all ranks act together.

    Args:
        minutes: minutes between checkpoints inside an epoch; None for none.
    """

    def __init__(self, minutes: float | None = None) -> None:
        self.minutes = minutes
        self.saves = True  # inside an epoch
        self.missed: int | None = None  # a signal that came after the last step
        self._signal: int | None = None
        self._since = time.monotonic()
        self._heard = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Inside the `with` block a signal takes effect after the step, a second Ctrl-C at once.

        Only the main thread can handle signals; in other threads this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def hear(number: int, frame: FrameType | None) -> None:
            if number == signal.SIGINT and self._signal == signal.SIGINT:
                raise KeyboardInterrupt
            self._signal = number

        self.missed = None
        before = {number: signal.signal(number, hear) for number in SIGNALS}
        try:
            yield
        finally:
            self.missed, self._signal, self._heard = self._signal, None, 0
            for number, handler in before.items():
                signal.signal(number, handler)

    def begin(self, transport: Transport, *, saves: bool) -> None:
        """Start the timer. Checkpoints are written inside an epoch only if all ranks have a checkpoint folder."""
        if transport.size > 1:
            transport.phase = "the comparison of checkpoint folders"
            saves = bool(transport.gather(np.array([int(saves)]))[:, 0].all())
        self.saves = saves
        self.restart_clock()

    def restart_clock(self) -> None:
        """Restart the timer: a checkpoint was written, or training begins."""
        self._since = time.monotonic()

    def tell(self, *, keeps_time: bool) -> int:
        """This rank's requests as a number to be summed over ranks. The timer counts on the rank that `keeps_time`."""
        asked = 0 if self._signal is None else 1 << _BITS * SIGNALS.index(signal.Signals(self._signal))
        minutes = self.minutes if keeps_time and self.saves else None
        if minutes is not None and time.monotonic() - self._since >= 60 * minutes:
            asked += 1 << _BITS * len(SIGNALS)
        return asked

    def hear(self, total: int) -> None:
        """Take the sum of all ranks' requests."""
        self._heard = total

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is to be written now."""
        return self._heard != 0

    def obey(self) -> None:
        """Raise Stopped if any rank received a signal."""
        for place, number in enumerate(SIGNALS):
            if self._heard >> _BITS * place & ((1 << _BITS) - 1):
                raise Stopped(number)
        self._heard = 0
