"""TensorBoard: `--set training.callbacks=[tensorboard]`, then `tensorboard --logdir runs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from shoal.settings import Null
from shoal.training.callback import CALLBACKS
from shoal.training.logger import RunLogger, require


@CALLBACKS.register
class TensorBoardLogger(RunLogger):
    """Logs every epoch's figures to TensorBoard event files in the run folder."""

    name = "tensorboard"

    def __init__(
        self,
        *,
        folder: Annotated[
            str | None, Null("tensorboard in the run folder"), "folder of the event files"
        ] = None,
    ) -> None:
        self.folder = folder
        self._module = require("torch.utils.tensorboard", "tensorboard", "tensorboard")

    def open(self, folder: Path | None, settings: dict[str, Any], epoch: int) -> None:
        place = self.folder or str((folder or Path()) / "tensorboard")
        self._writer = self._module.SummaryWriter(place, purge_step=epoch + 1 if epoch else None)
        if settings and not epoch:
            rows = "\n".join(f"| {key} | {value} |" for key, value in settings.items())
            self._writer.add_text("settings", f"| setting | value |\n|---|---|\n{rows}")

    def log(self, values: dict[str, float], epoch: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, epoch)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
