"""Weights & Biases: `--set training.callbacks=[wandb] --set training.wandb.project=mine`; WANDB_MODE=offline uploads nothing."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated, Any

from shoal.settings import Null
from shoal.training.callback import CALLBACKS
from shoal.training.logger import RunLogger, require

_KEPT = "wandb-run.txt"  # in the run folder: the id of the W&B run that a resumed run continues


@CALLBACKS.register
class WandbLogger(RunLogger):
    """Logs every epoch's figures to a Weights & Biases run; a resumed run continues the same one."""

    name = "wandb"

    def __init__(
        self,
        *,
        project: Annotated[str, "W&B project of the run"] = "shoal",
        run: Annotated[str | None, Null("the run folder's name"), "name of the run"] = None,
        group: Annotated[str | None, Null("none"), "W&B group of the run"] = None,
    ) -> None:
        self.project, self.run, self.group = project, run, group
        self._module = require("wandb", "wandb", "wandb")

    def open(self, folder: Path | None, settings: dict[str, Any], epoch: int) -> None:
        known: dict[str, Any] = {}
        if folder is not None:
            kept = folder / _KEPT
            if not kept.is_file():
                kept.write_text(f"{secrets.token_hex(8)}\n")
            known = {"id": kept.read_text().strip(), "resume": "allow", "dir": str(folder)}
        name = self.run or (None if folder is None else folder.name)
        self._run = self._module.init(
            project=self.project, name=name, group=self.group, config=settings, **known
        )

    def log(self, values: dict[str, float], epoch: int) -> None:
        self._run.log(values, step=epoch)

    def close(self) -> None:
        self._run.finish()
