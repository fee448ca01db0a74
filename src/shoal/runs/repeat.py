"""Repeated runs: the same configuration with several seeds, one run folder each; mean and standard deviation."""

from __future__ import annotations

import copy
import json
import math
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shoal.distributed.transport import LocalTransport, Transport
from shoal.errors import ShoalError, Stopped
from shoal.files import replace_file
from shoal.lock import clear_folder
from shoal.runs.config import RunConfig, read_config
from shoal.runs.data import make_paths_absolute
from shoal.runs.folder import (
    CHECKPOINTS,
    CONFIG,
    JOB,
    METRICS,
    REPEAT,
    SUMMARY,
    check_new,
    describe_job,
    make_folder,
    read_metrics,
)
from shoal.runs.run import Run
from shoal.training.epoch_state import Record
from shoal.training.keeper import list_last


class Repeat:
    """A folder with `repeat.yaml`, a run folder `seed-S` for every seed, and at the end `summary.json`.

    Several ranks, connected by `transport`, train every run together; rank 0 writes.
    """

    def __init__(self, folder: Path, config: RunConfig, transport: Transport | None = None) -> None:
        config.validate()
        self.folder = folder
        self.config = config
        self.transport = transport if transport is not None else LocalTransport()
        self.writes = self.transport.rank == 0
        self._job: str | None = None
        config.ranks = self.transport.size if self.transport.size > 1 else None

    @classmethod
    def create(cls, folder: Path, config: RunConfig, transport: Transport | None = None) -> Repeat:
        """Start new runs. The folder is made when the first run begins."""
        make_paths_absolute(config)
        job = describe_job(config)
        repeat = cls(folder, config, transport)
        repeat._job = job
        if repeat.writes:
            check_new(folder)
        return repeat

    @classmethod
    def is_one(cls, folder: Path) -> bool:
        """Whether a folder holds repeated runs."""
        return (folder / REPEAT).is_file()

    @classmethod
    def open(
        cls, folder: Path, transport: Transport | None = None, *, epochs: int | None = None, **changes: Any
    ) -> Repeat:
        """Resume repeated runs. Finished ones stay as they are, unless more epochs are given."""
        config = read_config(folder / REPEAT)
        config.validate()  # before its values are used
        changes |= {} if epochs is None else {"epochs": epochs}
        config.training.update(changes, "--set")
        return cls(folder, config, transport)

    @property
    def seeds(self) -> range:
        """The seeds, ascending from `training.seed`."""
        return range(self.config.training.seed, self.config.training.seed + self.config.repeat)

    @property
    def has_trained(self) -> bool:
        """Whether any run has a checkpoint."""
        return any(list_last(self.folder / f"seed-{seed}" / CHECKPOINTS) for seed in self.seeds)

    def runs(self) -> Iterator[Run]:
        """Yields the runs one after the other. Each must be trained before the next is opened."""
        if self.writes and self.folder.exists():
            clear_folder(self.folder)
            self._write()  # epochs may have changed
        for seed in self.seeds:
            folder = self.folder / f"seed-{seed}"
            if self._has_begun(folder):
                given = self.config.training.given
                changed = {name: given[name] for name in ("epochs", "patience") if name in given}
                run = Run.open(folder, self.transport, **changed)
            else:
                config = copy.deepcopy(self.config)
                config.repeat, config.training.seed = 1, seed
                run = Run.create(folder, config, self.transport, before=self._write)
            yield run
            if seed != self.seeds[-1]:
                self._heed(run.trainer.asked.missed)

    def _heed(self, missed: int | None) -> None:
        """Raise Stopped if a signal reached any rank after a run's last step."""
        self.transport.phase = "the signals that ranks have received"
        if number := int(self.transport.gather(np.array([missed or 0])).max()):
            raise Stopped(number)

    def _write(self) -> None:
        """Write `repeat.yaml`, in a new folder if there is none."""
        if not self.folder.exists():
            make_folder(self.folder, {REPEAT: self.config.to_yaml(), JOB: self._job})
            return
        with replace_file(self.folder / REPEAT) as scratch:
            scratch.write_text(self.config.to_yaml())

    def _has_begun(self, folder: Path) -> bool:
        """Whether rank 0 finds the run's folder."""
        there = (folder / CONFIG).is_file()
        self.transport.phase = f"the search for {folder.name}"
        return bool(self.transport.gather(np.array([int(there)]))[0, 0])

    def summarize(self) -> dict[str, Any]:
        """Mean and standard deviation of every test score over the seeds, also written to `summary.json`. For rank 0."""
        folders = [self.folder / f"seed-{seed}" for seed in self.seeds]
        summary: dict[str, Any] = {"seeds": list(self.seeds)} | summarize_scores(folders)
        with replace_file(self.folder / SUMMARY) as scratch:
            scratch.write_text(json.dumps(summary, indent=2) + "\n")
        return summary


def summarize_scores(folders: Iterable[Path]) -> dict[str, Any]:
    """Mean, standard deviation and single values of every test score of finished runs; 0 deviation for one run."""
    finals = [_read_final(folder / METRICS) for folder in folders]
    summary = {}
    for name in finals[0]:
        if name.startswith("test_"):
            each: list[Any] = [final.get(name) for final in finals]
            if not all(isinstance(value, int | float) and math.isfinite(value) for value in each):
                raise ShoalError(f"the runs' {name} are {each}: expected a number in every run's {METRICS}")
            spread = statistics.stdev(each) if len(each) > 1 else 0.0
            summary[name] = {"mean": statistics.mean(each), "deviation": spread, "each": each}
    return summary


def _read_final(path: Path) -> Record:
    """The last record of a finished run: its test scores."""
    records = read_metrics(path) if path.is_file() else []
    if not records:
        raise ShoalError(f"{path} has no records: train the run to its end first")
    return records[-1]
