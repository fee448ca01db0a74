"""A run's folder: the names of its files, and its metrics."""

from __future__ import annotations

import json
from pathlib import Path

from shoal.errors import ShoalError
from shoal.runs.config import RunConfig, read_config
from shoal.training.share import Record

CONFIG = "config.yaml"
GRAPH = "graph.json"
METRICS = "metrics.jsonl"
PLAN = "plan.txt"
RANKS = "ranks.json"
CHECKPOINTS = "checkpoints"
SCRATCH = "scratch"
REPEAT = "repeat.yaml"
SUMMARY = "summary.json"


def find_config(folder: Path) -> Path:
    """The file with a run's configuration, or that of repeated runs."""
    single = folder / CONFIG
    return single if single.is_file() else folder / REPEAT


def read_run_config(folder: Path) -> RunConfig:
    """The configuration of one run."""
    if not (folder / CONFIG).is_file():
        seeds = sorted(path.name for path in folder.glob("seed-*"))
        hint = f"; it holds repeated runs, name one: {folder / seeds[0]}" if seeds else ""
        raise ShoalError(f"{folder} is not a run folder: it has no {CONFIG}{hint}")
    config = read_config(folder / CONFIG)
    for section in (config.model, config.partition):
        section.forgive()
    return config


def read_any_config(folder: Path) -> RunConfig:
    """The configuration of one run, or of repeated ones."""
    return read_config(folder / REPEAT) if (folder / REPEAT).is_file() else read_run_config(folder)


def read_metrics(path: Path) -> list[Record]:
    """The records of a metrics.jsonl; a last line cut short by a kill is left out."""
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records
