"""EpochState: progress of an epoch, which becomes its record."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from shoal.errors import ShoalError

Record = dict[str, Any]


@dataclass
class EpochState:
    """Progress of an epoch: its batches so far, their losses, nodes and seconds."""

    batches: int = 0
    losses: list[float] = field(default_factory=list)
    nodes: int = 0
    seconds: float = 0.0

    def add(self, loss: float, nodes: int) -> None:
        """Count one more batch."""
        self.batches += 1
        self.losses.append(loss)
        self.nodes += nodes

    def to_record(self, epoch: int, lr: float, compiling: float = 0.0) -> Record:
        """The record of a finished epoch, of which `compiling` seconds went into compilation. Raises if the loss is not
        finite."""
        mean = sum(self.losses) / len(self.losses)
        if not math.isfinite(mean):
            raise ShoalError(
                f"the loss became {mean} in epoch {epoch}: lower the learning rate, or clip gradients"
            )
        compiling = min(compiling, self.seconds)
        rate = self.nodes / max(self.seconds - compiling, 0.01 * self.seconds)
        return {
            "epoch": epoch,
            "loss": mean,
            "batches": len(self.losses),
            "lr": lr,
            "seconds": self.seconds,
            "compile_seconds": compiling,
            "nodes_per_second": rate,
        }
