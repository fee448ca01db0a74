"""Facts of runs: the records of a run folder as plain data for charts, tables and pages."""

from __future__ import annotations

import itertools
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from shoal.errors import ShoalError
from shoal.files import parse_json
from shoal.report.settings import describe_method, list_defaults, list_values
from shoal.runs.config import RunConfig
from shoal.runs.folder import (
    GRAPH,
    MEASURED,
    METRICS,
    OUTCOMES,
    RANKS,
    REPEAT,
    read_any_config,
    read_metrics,
    read_run_config,
)
from shoal.training.epoch_state import Record
from shoal.training.metrics import worst_score

# Where the seconds of a run go, in the order in which charts have them: (key, name).
TIME_PARTS = (
    ("sampling", "sampling"),
    ("aggregation", "aggregation"),
    ("dense", "dense products"),
    ("compute", "other computing"),
    ("exposed", "exchange, exposed"),
    ("reduce", "all-reduces"),
    ("idle", "waiting for ranks"),
    ("evaluation", "evaluation"),
    ("start", "compiling, once"),
)


@dataclass
class RunFacts:
    """The records of one run, during training or at its end.

    Attributes:
        records: one for every epoch, as in `metrics.jsonl`.
        final: the record of the end, with test scores; None during training.
        ranks, outcomes, measured: content of `ranks.json`, `outcomes.json` and `measured.json`, empty without the file.
    """

    folder: Path
    config: RunConfig
    records: list[Record]
    final: Record | None = None
    graph: dict[str, Any] = field(default_factory=dict)
    ranks: list[dict[str, int]] = field(default_factory=list)
    outcomes: dict[str, Any] = field(default_factory=dict)
    measured: dict[str, Any] = field(default_factory=dict)

    @property
    def seed(self) -> int:
        """The seed that decided weights and batches."""
        return int(self.config.training.seed)

    @property
    def epochs(self) -> int:
        """Epochs that were trained."""
        return len(self.records)

    @cached_property
    def metric(self) -> str:
        """The metric that decides which weights are best."""
        found = {name for record in self.records for name in record if name.startswith("val_")}
        found |= {name.replace("test_", "val_", 1) for name in self.final or {} if name.startswith("test_")}
        given = self.config.training.given.get("metric")
        known = [given] if isinstance(given, str) else []
        known += [one for one in ("accuracy", "f1_micro", "r2") if f"val_{one}" in found]
        return known[0] if known else "accuracy"

    @cached_property
    def clock(self) -> list[float]:
        """Seconds of training and evaluation until each epoch's end."""
        spent = [record["seconds"] + record.get("eval_seconds", 0.0) for record in self.records]
        return list(itertools.accumulate(spent))

    @cached_property
    def scores(self) -> list[tuple[int, float, float]]:
        """(epoch, seconds, validation score) of every evaluation."""
        name = f"val_{self.metric}"
        rows = zip(self.records, self.clock)
        return [(record["epoch"], seconds, record[name]) for record, seconds in rows if name in record]

    @cached_property
    def losses(self) -> list[tuple[int, float, float]]:
        """(epoch, seconds, training loss) of every epoch."""
        rows = zip(self.records, self.clock)
        return [(record["epoch"], seconds, record["loss"]) for record, seconds in rows]

    @cached_property
    def best(self) -> tuple[int, float, float] | None:
        """(epoch, seconds, validation score) of the best evaluation; None where there was none."""
        if not self.scores:
            return None
        sign = -1 if self.lower_is_better else 1
        return max(self.scores, key=lambda one: (sign * one[2], -one[0]))

    @property
    def seconds_to_best(self) -> float | None:
        """Seconds of training and evaluation until the best evaluation, without compilation."""
        if self.best is None:
            return None
        upto = [record for record in self.records if record["epoch"] <= self.best[0]]
        kinds = ("compile_seconds", "eval_compile_seconds")
        return max(self.best[1] - sum(record.get(kind, 0.0) for record in upto for kind in kinds), 0.0)

    @property
    def lower_is_better(self) -> bool:
        """Whether the metric is an error."""
        return worst_score(self.metric) > 0

    @property
    def test(self) -> float | None:
        """The test score of the metric."""
        return None if self.final is None else self.final.get(f"test_{self.metric}")

    @property
    def epoch_seconds(self) -> float | None:
        """Median seconds of an epoch, without the first, which compiles."""
        later = [record["seconds"] for record in self.records[1:]] or [
            record["seconds"] for record in self.records
        ]
        return statistics.median(later) if later else None

    @property
    def peak(self) -> int | None:
        """Peak bytes of the largest rank."""
        held = self.measured.get("peak") or [rank["peak"] for rank in self.ranks]
        return max(held, default=None)

    @property
    def epoch_bytes(self) -> float | None:
        """Median bytes that all ranks sent in an epoch; None for one process."""
        sent = [record["bytes"] for record in self.records if "bytes" in record]
        return statistics.median(sent) if sent else None

    @cached_property
    def time_parts(self) -> dict[str, float]:
        """Seconds of all epochs by kind (`TIME_PARTS`), mean over ranks; computing is split as in the profiled step.

        Without recorded `compile_seconds` and `eval_compile_seconds`, compilation is estimated: the excess over the
        median of the first epoch or evaluation, and of those that take five times the median.
        """
        spent = {key: 0.0 for key, _ in TIME_PARTS}
        for record in self.records:
            for kind, seconds in record.get("time", {"compute": record["seconds"]}).items():
                spent[kind] = spent.get(kind, 0.0) + seconds
            spent["evaluation"] += record.get("eval_seconds", 0.0)
        for prefix, kind in (("", "compute"), ("eval_", "evaluation")):
            compiled = f"{prefix}compile_seconds"
            once = sum(record.get(compiled, 0.0) for record in self.records)
            if not any(compiled in record for record in self.records):
                once = _add_surplus([one[key] for one in self.records if (key := f"{prefix}seconds") in one])
            once = min(once, spent[kind])
            spent["start"] += once
            spent[kind] -= once
        profile = self.measured.get("profile")
        if profile and profile["seconds"] > 0:
            computing = spent["compute"]
            for kind in ("aggregation", "dense"):
                spent[kind] = computing * min(profile[kind] / profile["seconds"], 1.0)
                spent["compute"] -= spent[kind]
            spent["compute"] = max(spent["compute"], 0.0)
        return {key: seconds for key, seconds in spent.items() if seconds > 0}

    @property
    def hidden(self) -> float:
        """Seconds in which exchanges overlapped with computing, mean over ranks."""
        return float(sum(record.get("hidden", 0.0) for record in self.records))

    @cached_property
    def sent(self) -> list[list[int]] | None:
        """Bytes that each rank sent to each in the last epoch that recorded them; None if none did."""
        told = next((record["peers"] for record in reversed(self.records) if record.get("peers")), None)
        if told is None:
            return None
        size = self.config.num_ranks or 1 + max(max(row[0], row[1]) for row in told)
        table = [[0] * size for _ in range(size)]
        for sender, receiver, _, _, sent, _ in told:
            table[sender][receiver] += sent
        return table

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Every setting by its key, as in `config.yaml`."""
        return list_values(self.config)

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Defaults of the settings; those of components that are not installed are left out."""
        return list_defaults(self.config)

    @property
    def method(self) -> str:
        """How the run trained, in a few words."""
        return describe_method(self.config)


@dataclass
class Group:
    """Runs that differ by their seed only."""

    label: str
    runs: list[RunFacts]

    @property
    def first(self) -> RunFacts:
        """The run that is shown where only one can be."""
        return self.runs[0]

    def gather(self, name: str) -> list[float]:
        """A figure of every run that has it."""
        return [value for run in self.runs if (value := getattr(run, name)) is not None]

    def average(self, name: str) -> tuple[float, float] | None:
        """Mean and deviation of a figure over the seeds; None where no run has it."""
        values = self.gather(name)
        if not values:
            return None
        return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0

    def add_outcomes(self) -> dict[str, Any]:
        """The outcomes of all seeds: counts are summed; a regression's points are the first run's."""
        kept = [run.outcomes for run in self.runs if run.outcomes]
        if not kept or kept[0]["task"] == "regression":
            return kept[0] if kept else {}
        total = dict(kept[0])
        for key in ("hits", "false", "missed"):
            total[key] = [sum(values) for values in zip(*(one[key] for one in kept))]
        if "confusion" in total:
            tables = [one["confusion"] for one in kept]
            total["confusion"] = [[sum(cells) for cells in zip(*rows)] for rows in zip(*tables)]
        return total


def read_runs(folders: Sequence[Path]) -> list[RunFacts]:
    """The facts of run folders; a folder of repeated runs counts as all of its seeds that have started."""
    found = []
    for folder in folders:
        if (folder / REPEAT).is_file():
            read_any_config(folder)  # raises if it is damaged
            seeds = sorted(folder.glob("seed-*"), key=lambda path: (len(path.name), path.name))
            found += [read_run(one) for one in seeds if (one / "config.yaml").is_file()]
        else:
            found.append(read_run(folder))
    return found


def read_run(folder: Path) -> RunFacts:
    """The facts of one run folder, whose run may still be training."""
    config = read_run_config(folder)
    path = folder / METRICS
    records = read_metrics(path) if path.is_file() else []
    epochs = [_check_record(record, path) for record in records if "epoch" in record]
    ended = records[-1] if records and "epoch" not in records[-1] else None
    others = {name: _read_json(folder / name) for name in (GRAPH, RANKS, OUTCOMES, MEASURED)}
    ranks = others[RANKS] if isinstance(others[RANKS], list) else []
    graph, outcomes, measured = (
        others[name] if isinstance(others[name], dict) else {} for name in (GRAPH, OUTCOMES, MEASURED)
    )
    return RunFacts(folder, config, epochs, ended, graph, ranks, outcomes, measured)


def _add_surplus(spans: list[float]) -> float:
    """Excess over the median of the first span, and of those above five times the median."""
    if len(spans) < 3:
        return 0.0
    usual = statistics.median(spans[1:])
    return sum(max(span - usual, 0.0) for number, span in enumerate(spans) if number == 0 or span > 5 * usual)


def _check_record(record: Record, path: Path) -> Record:
    for name in ("loss", "seconds"):
        if not isinstance(record.get(name), int | float):
            raise ShoalError(
                f"{path} is damaged: epoch {record['epoch']} has no number {name!r}; remove the line, or the file"
            )
    return record


def _read_json(path: Path) -> Any:
    if not path.is_file():
        return None
    try:
        return parse_json(path.read_bytes())
    except ValueError:
        raise ShoalError(
            f"{path} is damaged: expected JSON; remove it, the report works without it"
        ) from None


def group_runs(runs: Sequence[RunFacts]) -> list[Group]:
    """Group runs whose settings differ only in the seed, in the given order.

    Runs with the same seed too, such as a copy or a second attempt, are in different groups.
    """
    groups: dict[tuple[str, int], list[RunFacts]] = {}
    counts: Counter[tuple[str, int]] = Counter()
    for run in runs:
        same = {key: value for key, value in run.settings.items() if key not in ("training.seed", "repeat")}
        settings = json.dumps(same, sort_keys=True, default=str)
        groups.setdefault((settings, counts[settings, run.seed]), []).append(run)
        counts[settings, run.seed] += 1
    labels = [_name_group(members) for members in groups.values()]
    return [
        Group(_name_group(members, parents=labels.count(label) > 1), members)
        for label, members in zip(labels, groups.values())
    ]


def _name_group(runs: list[RunFacts], *, parents: bool = False) -> str:
    folders = {
        run.folder.resolve().parent if run.folder.name.startswith("seed-") else run.folder.resolve()
        for run in runs
    }
    first = min(folders, key=lambda path: (len(path.name), path.name))
    name = f"{first.parent.name}/{first.name}" if parents else first.name
    return name if len(folders) == 1 else f"{name} +{len(folders) - 1}"
