"""Interruption: training that is asked, by a signal or by the clock, to save after the step, and perhaps to end."""

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
_BITS = 13  # of a number that up to 4,096 ranks add 1 to


class Interruption:
    """What a trainer is asked to do after a step. Requests travel with the step's loss, so that all ranks act alike.

    Args:
        minutes: from one checkpoint to the next inside an epoch, None for none.
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
        """Signals in the block let the step end; a second Ctrl-C does not. Only a program's main thread receives signals."""
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
        """Training begins. Where only some ranks have a folder for checkpoints, none is written inside an epoch: that takes
        all of them."""
        if transport.size > 1:
            transport.phase = "who has a folder for checkpoints"
            saves = bool(transport.gather(np.array([int(saves)]))[:, 0].all())
        self.saves = saves
        self.restart_clock()

    def restart_clock(self) -> None:
        """A checkpoint was written, or training begins."""
        self._since = time.monotonic()

    def tell(self, *, keeps_time: bool) -> int:
        """What this rank asks for, as a number to be summed over ranks: one of them `keeps_time`."""
        asked = 0 if self._signal is None else 1 << _BITS * SIGNALS.index(signal.Signals(self._signal))
        minutes = self.minutes if keeps_time and self.saves else None
        if minutes is not None and time.monotonic() - self._since >= 60 * minutes:
            asked += 1 << _BITS * len(SIGNALS)
        return asked

    def hear(self, total: int) -> None:
        """What all ranks ask for together."""
        self._heard = total

    @property
    def is_due(self) -> bool:
        """Whether a checkpoint is to be written now."""
        return self._heard != 0

    def obey(self) -> None:
        """End training if a signal asked for it, on whichever rank."""
        for place, number in enumerate(SIGNALS):
            if self._heard >> _BITS * place & ((1 << _BITS) - 1):
                raise Stopped(number)
        self._heard = 0
