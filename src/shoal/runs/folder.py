"""A run's folder: the names of its files, and its metrics."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from shoal.distributed.detect import JOB as OWN_JOB
from shoal.distributed.detect import name_job
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import check_place, flush, flush_tree, parse_json
from shoal.lock import building
from shoal.runs.config import RunConfig, read_config
from shoal.training.epoch_state import Record
from shoal.training.keeper import name_last

CONFIG = "config.yaml"
GRAPH = "graph.json"
METRICS = "metrics.jsonl"
PLAN = "plan.txt"
RANKS = "ranks.json"
OUTCOMES = "outcomes.json"
MEASURED = "measured.json"
PAGE = "report.html"
CHECKPOINTS = "checkpoints"
SCRATCH = "scratch"
REPEAT = "repeat.yaml"
SUMMARY = "summary.json"
JOB = "job.json"


def check_new(folder: Path) -> None:
    """Raise if a new run cannot be made in a folder."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ShoalError(f"{folder} exists already: choose another --out, or continue it with --resume")
    check_place(folder)


def make_folder(folder: Path, files: Mapping[str, str | np.ndarray | None]) -> None:
    """Make a run's folder with its first files, atomically."""
    with explain_full_disk(folder), building(folder) as scratch:
        fresh = scratch / "new"
        fresh.mkdir()
        for name, content in files.items():
            if isinstance(content, str):
                (fresh / name).write_text(content)
            elif content is not None:
                np.save(fresh / name, content, allow_pickle=False)
        flush_tree(fresh)
        check_new(folder)  # another process may have made it
        os.rename(fresh, folder)
        flush(folder.parent)


def remove_folder(folder: Path) -> None:
    """Remove a run's folder. It is renamed first, so that a killed process leaves no half of it."""
    with suppress(OSError, ShoalError), building(folder) as scratch:
        os.rename(folder, scratch / "old")
        return
    shutil.rmtree(folder, ignore_errors=True)


def describe_job(config: RunConfig) -> str | None:
    """The identity of a run that a launcher's job starts: job and configuration; None without a launcher's job id."""
    job = name_job()
    if job is None:
        return None
    digest = hashlib.sha256(config.to_yaml().encode()).hexdigest()
    return json.dumps({"job": job, "config": digest}, indent=1) + "\n"


def is_of_this_job(folder: Path, config: RunConfig) -> bool:
    """Whether this job started the run in `folder` with this configuration, so that restarted ranks resume it.

    A cluster job may run several commands, even the same one twice, so a finished run is not resumed. Ranks that `shoal`
    itself started have their own job id.
    """
    try:
        if (folder / JOB).read_text() != describe_job(config):
            return False
        return OWN_JOB in os.environ or not _has_ended(folder)
    except (OSError, UnicodeDecodeError, ShoalError):
        return False


def _has_ended(folder: Path) -> bool:
    """Whether a run, or all repeated runs, have test scores."""
    path = folder / METRICS
    records = read_metrics(path) if path.is_file() else []
    return (folder / SUMMARY).is_file() or (bool(records) and "epoch" not in records[-1])


def find_config(folder: Path) -> Path:
    """The file with a run's configuration, or that of repeated runs."""
    single = folder / CONFIG
    return single if single.is_file() else folder / REPEAT


def read_run_config(folder: Path) -> RunConfig:
    """The configuration of one run."""
    if not (folder / CONFIG).is_file():
        seeds = sorted(path.name for path in folder.glob("seed-*"))
        hint = f"; it holds repeated runs, name one: {folder / seeds[0]}" if seeds else ""
        if name_last(folder, 0).is_file():
            hint = "; it holds checkpoints of a shoal.Trainer, which trainer.resume(folder) reads"
        raise ShoalError(f"{folder} is not a run folder: it has no {CONFIG}{hint}")
    config = read_config(folder / CONFIG)
    for section in (config.model, config.partition):
        section.forgive()
    if config.sampler.name == "ladies":  # a configuration without row_normalize means false
        config.sampler.given.setdefault("row_normalize", False)
    return config


def read_any_config(folder: Path) -> RunConfig:
    """The configuration of one run, or of repeated ones."""
    return read_config(folder / REPEAT) if (folder / REPEAT).is_file() else read_run_config(folder)


def read_metrics(path: Path) -> list[Record]:
    """The records of a metrics.jsonl. A last line cut short by a kill is left out; other damage is an error."""
    lines = path.read_bytes().splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = parse_json(line)
            if not isinstance(record, dict) or type(record.get("epoch", 0)) is not int:
                raise ValueError
        except ValueError:
            if number == len(lines):
                break
            raise ShoalError(
                f"{path} is damaged: line {number} is not a record of an epoch; remove the line, or the file"
            ) from None
        records.append(record)
    return records
