"""MLflow: `--set training.callbacks=[mlflow]`; the tracking server is MLFLOW_TRACKING_URI or `training.mlflow.uri`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any

from shoal.settings import Null
from shoal.training.callback import CALLBACKS
from shoal.training.logger import RunLogger, require

_KEPT = "mlflow-run.txt"  # in the run folder: which of MLflow's runs a resumed one goes on with


@CALLBACKS.register
class MlflowLogger(RunLogger):
    """Figures of every epoch as a run of MLflow; a resumed run goes on with its own."""

    name = "mlflow"

    def __init__(
        self,
        *,
        experiment: Annotated[str, "experiment that the run belongs to"] = "shoal",
        uri: Annotated[
            str | None, Null("MLFLOW_TRACKING_URI, or MLflow's own default"), "where runs are tracked"
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
        with redirect_stdout(sys.stderr):  # it prints an address, and stdout may be JSON
            self._module.end_run()
