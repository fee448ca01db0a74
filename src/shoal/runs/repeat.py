"""Repeated runs: the same configuration with several seeds, one run folder each, and their mean and deviation."""

from __future__ import annotations

import copy
import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shoal.distributed.transport import LocalTransport, Transport
from shoal.errors import ShoalError
from shoal.files import check_place, replace_file
from shoal.runs.config import RunConfig, read_config
from shoal.runs.data import make_paths_absolute
from shoal.runs.folder import CONFIG, METRICS, REPEAT, SUMMARY, read_metrics
from shoal.runs.run import Run


class Repeat:
    """A folder `RUN` with `repeat.yaml`, one run folder `seed-S` for every seed, and at the end `summary.json`.

    Several ranks, joined by `transport`, train every run together; rank 0 writes.
    """

    def __init__(self, folder: Path, config: RunConfig, transport: Transport | None = None) -> None:
        config.validate()
        self.folder = folder
        self.config = config
        self.transport = transport if transport is not None else LocalTransport()
        self.writes = self.transport.rank == 0
        config.ranks = self.transport.size if self.transport.size > 1 else None

    @classmethod
    def create(cls, folder: Path, config: RunConfig, transport: Transport | None = None) -> Repeat:
        """Start anew; the folder is made when the first run begins."""
        make_paths_absolute(config)
        repeat = cls(folder, config, transport)
        if repeat.writes:
            if folder.exists():
                raise ShoalError(
                    f"{folder} exists already: choose another --out, or continue it with --resume"
                )
            check_place(folder)
        return repeat

    @classmethod
    def is_one(cls, folder: Path) -> bool:
        return (folder / REPEAT).is_file()

    @classmethod
    def open(cls, folder: Path, transport: Transport | None = None, *, epochs: int | None = None) -> Repeat:
        """Go on with what was started: finished runs stay, unless more epochs are asked for."""
        config = read_config(folder / REPEAT)
        if epochs is not None:
            config.training.epochs = epochs
        return cls(folder, config, transport)

    @property
    def seeds(self) -> range:
        return range(self.config.training.seed, self.config.training.seed + self.config.repeat)

    def runs(self) -> Iterator[Run]:
        """The runs one after the other, each opened when it is its turn and to be trained before the next."""
        for seed in self.seeds:
            folder = self.folder / f"seed-{seed}"
            if self._has_begun(folder):
                yield Run.open(folder, self.transport, epochs=self.config.training.epochs)
                continue
            config = copy.deepcopy(self.config)
            config.repeat, config.training.seed = 1, seed
            run = Run.create(folder, config, self.transport)
            if self.writes:
                with replace_file(self.folder / REPEAT) as scratch:
                    scratch.write_text(self.config.to_yaml())
            yield run

    def _has_begun(self, folder: Path) -> bool:
        """Whether the run is there already, as rank 0 sees it."""
        there = (folder / CONFIG).is_file()
        self.transport.phase = f"the search for {folder.name}"
        return bool(self.transport.gather(np.array([int(there)]))[0, 0])

    def summarize(self) -> dict[str, Any]:
        """Mean and deviation of every test score over the seeds, written to `summary.json` too; rank 0 has the scores."""
        folders = [self.folder / f"seed-{seed}" for seed in self.seeds]
        summary: dict[str, Any] = {"seeds": list(self.seeds)} | summarize_scores(folders)
        with replace_file(self.folder / SUMMARY) as scratch:
            scratch.write_text(json.dumps(summary, indent=2) + "\n")
        return summary


def summarize_scores(folders: Iterable[Path]) -> dict[str, Any]:
    """Mean, deviation and each value of every test score that finished run folders have; one alone deviates by 0."""
    finals = [read_metrics(folder / METRICS)[-1] for folder in folders]
    summary = {}
    for name in finals[0]:
        if name.startswith("test_"):
            each = [final[name] for final in finals]
            spread = statistics.stdev(each) if len(each) > 1 else 0.0
            summary[name] = {"mean": statistics.mean(each), "deviation": spread, "each": each}
    return summary
