"""Repeated runs: the same configuration with several seeds, one run folder each, and their mean and deviation."""

from __future__ import annotations

import copy
import json
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shoal.config import RunConfig, read_config
from shoal.datasets.places import check_place
from shoal.errors import ShoalError
from shoal.files import replace_file
from shoal.training.run import METRICS, Run, read_metrics

CONFIG = "repeat.yaml"
SUMMARY = "summary.json"


class Repeat:
    """A folder `RUN` with `repeat.yaml`, one run folder `seed-S` for every seed, and at the end `summary.json`."""

    def __init__(self, folder: Path, config: RunConfig) -> None:
        config.validate()
        self.folder = folder
        self.config = config

    @classmethod
    def create(cls, folder: Path, config: RunConfig) -> Repeat:
        """Start anew; the folder is made when the first run begins."""
        if folder.exists():
            raise ShoalError(f"{folder} exists already: choose another --out, or continue it with --resume")
        check_place(folder)
        return cls(folder, config)

    @classmethod
    def is_one(cls, folder: Path) -> bool:
        return (folder / CONFIG).is_file()

    @classmethod
    def open(cls, folder: Path, *, epochs: int | None = None) -> Repeat:
        """Go on with what was started: finished runs stay, unless more epochs are asked for."""
        config = read_config(folder / CONFIG)
        if epochs is not None:
            config.training.epochs = epochs
        return cls(folder, config)

    @property
    def seeds(self) -> range:
        return range(self.config.training.seed, self.config.training.seed + self.config.repeat)

    def runs(self) -> Iterator[Run]:
        """The runs one after the other, each opened when it is its turn and to be trained before the next."""
        for seed in self.seeds:
            folder = self.folder / f"seed-{seed}"
            if (folder / "config.yaml").is_file():
                yield Run.open(folder, epochs=self.config.training.epochs)
                continue
            config = copy.deepcopy(self.config)
            config.repeat, config.training.seed = 1, seed
            run = Run.create(folder, config)
            with replace_file(self.folder / CONFIG) as scratch:
                scratch.write_text(self.config.to_yaml())
            yield run

    def summarize(self) -> dict[str, Any]:
        """Mean and deviation of every test score over the seeds, written to `summary.json` too."""
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
