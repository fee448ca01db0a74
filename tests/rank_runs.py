"""Runs trained by live ranks, undisturbed, to compare others with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.distributed.transport import Transport
from shoal.runs.config import make_config
from shoal.runs.run import Run


def train_run(
    transport: Transport, settings: dict[str, Any], folder: str, epochs: int | None = None
) -> list[int]:
    """Train a new run, or go on with the one in the folder; returns the first and last epoch of this call."""
    path = Path(folder)
    if (path / "config.yaml").is_file():
        run = Run.open(path, transport, epochs=epochs)
    else:
        run = Run.create(path, make_config(settings), transport)
    first = run.trainer.epoch
    run.train()
    return [first, run.trainer.epoch]
