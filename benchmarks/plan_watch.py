"""Plug-in of `bench_plan.py`: CPU seconds of every epoch, and the most anonymous memory of the process, in the run's records.

Evaluation and checkpoints are not part of an epoch's seconds. Of ranks, each writes its memory to a file of $BENCH_PLAN.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from shoal.runs.rehearsal import MemoryWatch
from shoal.training.callback import CALLBACKS, Callback
from shoal.training.trainer import Trainer

WATCH = MemoryWatch().__enter__()
PLACE = Path(os.environ["BENCH_PLAN"])


@CALLBACKS.register
class PlanWatch(Callback):
    """Adds `cpu` to every record."""

    name = "plan-watch"

    def on_start(self, trainer: Trainer) -> None:
        train_epoch = trainer.train_epoch

        def timed(*args: Any) -> dict[str, Any]:
            began = time.process_time()
            record = train_epoch(*args)
            return record | {"cpu": time.process_time() - began}

        trainer.train_epoch = timed

    def on_epoch(self, trainer: Trainer, record: dict[str, Any]) -> None:
        (PLACE / str(os.getpid())).write_text(str(WATCH.most))
