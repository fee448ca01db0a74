"""MLflow: `--set training.callbacks=[mlflow]`; the tracking server is MLFLOW_TRACKING_URI or `training.mlflow.uri`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

from shoal.settings import Null
from shoal.training.callback import CALLBACKS
from shoal.training.logger import RunLogger, require

_KEPT = "mlflow-run.txt"  # in the run folder: the id of the MLflow run that a resumed run continues


@CALLBACKS.register
class MlflowLogger(RunLogger):
    """Logs every epoch's figures to an MLflow run; a resumed run continues the same one."""

    name = "mlflow"

    def __init__(
        self,
        *,
        experiment: Annotated[str, "MLflow experiment of the run"] = "shoal",
        uri: Annotated[
            str | None, Null("MLFLOW_TRACKING_URI, or MLflow's own default"), "tracking server or folder"
        ] = None,
    ) -> None:
        self.experiment, self.uri = experiment, uri
        self._module = require("mlflow", "mlflow", "mlflow")

    def open(self, folder: Path | None, settings: dict[str, Any], epoch: int) -> None:
        if self.uri is not None:
            self._module.set_tracking_uri(self.uri)
        self._module.set_experiment(self.experiment)
        kept = None if folder is None else folder / _KEPT
        if epoch and kept is not None and kept.is_file():
            self._module.start_run(run_id=kept.read_text().strip())
            return
        started = self._module.start_run(run_name=None if folder is None else folder.name)
        if kept is not None:
            kept.write_text(f"{started.info.run_id}\n")
        self._module.log_params({key: str(value)[:500] for key, value in settings.items()})

    def log(self, values: dict[str, float], epoch: int) -> None:
        self._module.log_metrics({name.replace("/", "."): one for name, one in values.items()}, step=epoch)

    def close(self) -> None:
        with redirect_stdout(sys.stderr):  # MLflow prints an address, and stdout may be JSON
            self._module.end_run()
