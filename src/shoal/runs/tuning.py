"""Search: trials of settings under a time budget, chosen by validation score; the best is trained with fresh seeds.

The folder holds `tune.yaml` (the request), `graph.json` (the graph's identity), `trials.journal` (Optuna's, JSON lines),
`trials.csv`, `best.yaml` (a recipe) and at the end `result.json`.
"""

from __future__ import annotations

import copy
import csv
import json
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

from shoal.distributed.runtime import share_cores
from shoal.distributed.transport import LocalTransport
from shoal.errors import ShoalError, missing_extra
from shoal.files import parse_json, replace_file
from shoal.graph import Graph
from shoal.runs.choose import leave_open, settle_method
from shoal.runs.config import AUTO, FROM_GRAPH, RunConfig, apply_setting, make_config
from shoal.runs.data import identify, load_graph, make_paths_absolute
from shoal.runs.folder import GRAPH, check_new, make_folder
from shoal.runs.journal import Tried, list_tried, open_study, say_rank
from shoal.runs.space import flatten, propose, select_start
from shoal.runs.trial import Clock, Watch, hide_test_labels, predict_test, score_test, train_trial
from shoal.training.epoch_state import Record
from shoal.training.metrics import choose_metric, worst_score
from shoal.training.trainer import Trainer

try:
    import optuna
except ModuleNotFoundError as error:
    if error.name != "optuna":
        raise
    raise missing_extra("Optuna", "tune", "shoal tune") from None

ASKED, JOURNAL, TABLE, RECIPE, RESULT = (
    "tune.yaml",
    "trials.journal",
    "trials.csv",
    "best.yaml",
    "result.json",
)
METHODS = ("full", "sampled")
_PARTS = 20  # of a trial's epochs; pruning is considered after each
LONGEST = 0.25  # largest share of the time for one trial
_FAILURES = 10  # failures in a row that end a search
_MARGIN = 1.2  # time reserved for a fresh seed over the time of the best trial


@dataclass(frozen=True)
class Asked:
    """The request of a search.

    Attributes:
        data: the graph to search on.
        settings: fixed settings of all trials, `key=value` as for `shoal train --set`.
        plugins: modules or files that register components.
        seed: seed of the trials and of the search; fresh seeds follow it.
        seeds: number of fresh seeds to train the best configuration with.
    """

    data: str
    settings: tuple[str, ...] = ()
    plugins: tuple[str, ...] = ()
    seed: int = 0
    seeds: int = 3

    @property
    def fixed(self) -> set[str]:
        """Dotted keys of the settings that are not searched."""
        return {setting.partition("=")[0] for setting in self.settings}

    def make_base(self) -> RunConfig:
        """The configuration of `shoal train` with these settings."""
        config = RunConfig(data=self.data, plugins=list(self.plugins))
        for setting in self.settings:
            apply_setting(config, setting)
        if "training.seed" in self.fixed:
            raise ShoalError("--set training.seed does not set the search's seed: give --seed instead")
        config.training.seed = self.seed
        if "method" not in self.fixed:
            leave_open(config)
        config.validate()
        if config.method not in (*METHODS, AUTO):
            raise ShoalError(
                f"method {config.method} is not searched: tune trains in one process, method {' or '.join(METHODS)}"
            )
        make_paths_absolute(config)
        return config


class Search:
    """A search in a folder. Trials see no test labels. `confirm` reads them once, after all training."""

    def __init__(self, folder: Path, asked: Asked) -> None:
        self.folder, self.asked = folder, asked
        self.plain = asked.make_base()
        self.base = copy.deepcopy(self.plain)  # with defaults that follow from the graph, as in `shoal train`
        self.base.defaults = FROM_GRAPH
        self.threads = share_cores(LocalTransport(), self.base.training.threads)
        self._graph, self.notices = load_graph(self.base)
        if self.plain.model.given.get("directions") == "both" and not self._graph.directed:
            raise ShoalError(f"graph {self._graph.name!r} is undirected: leave out model.directions=both")
        self.graph: Graph = hide_test_labels(self._graph)
        self.notices += settle_method(self.base, self.graph)
        settle_method(self.plain, self.graph)
        for config in (self.base, self.plain):
            config.fill_depth()
        if self.graph.val_mask is None or not self.graph.val_mask.any():
            raise ShoalError(
                f"graph {self.graph.name!r} has no validation nodes, which tune needs to choose settings: give it a val_mask"
            )
        self.metric = choose_metric(self.base.training.metric, self.graph)
        if worst_score(self.metric) > 0:
            raise ShoalError(
                f"{self.metric} is lower for better models, and tune maximises its metric: give another training.metric, such as r2"
            )

    @classmethod
    def create(cls, folder: Path, asked: Asked) -> Search:
        """Start a new search. Everything is checked before the folder is made."""
        check_new(folder)
        search = cls(folder, asked)
        about = asdict(asked) | {"data": search.base.data, "plugins": search.base.plugins}
        about["settings"] = list(asked.settings)
        identity = json.dumps(identify(search.graph), indent=2) + "\n"
        make_folder(folder, {ASKED: yaml.safe_dump(about, sort_keys=False), GRAPH: identity})
        search._open()
        return search

    @classmethod
    def open(cls, folder: Path, *, seeds: int | None = None) -> Search:
        """Resume a search. An interrupted trial is repeated."""
        try:
            about = yaml.safe_load((folder / ASKED).read_text(encoding="utf-8"))
            lists = {name: tuple(map(str, about[name])) for name in ("settings", "plugins")}
            asked = Asked(
                str(about["data"]), **lists, seed=int(about["seed"]), seeds=seeds or int(about["seeds"])
            )
        except FileNotFoundError:
            raise ShoalError(f"{folder} is not a folder of `shoal tune`: it has no {ASKED}") from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, yaml.YAMLError):
            raise ShoalError(f"{folder / ASKED} is damaged: start a new search") from None
        search = cls(folder, asked)
        try:
            began = parse_json((folder / GRAPH).read_bytes())
        except (OSError, ValueError):
            raise ShoalError(f"{folder / GRAPH} is damaged or missing: start a new search") from None
        if began != identify(search.graph):
            raise ShoalError(
                f"{folder} searched on another graph than {asked.data} is now: put the graph back, or start a new search"
            )
        search._open()
        return search

    def _open(self) -> None:
        self._study = open_study(self.folder / JOURNAL)
        self._study.pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=_PARTS // 4)

    @property
    def tried(self) -> list[Tried]:
        """The finished trials so far, in order, without interrupted ones."""
        return list_tried(self._study)

    @property
    def best(self) -> Tried | None:
        """The trial with the best validation score."""
        scored = [one for one in self.tried if one.is_whole]
        return max(scored, key=lambda one: (one.score, -one.number), default=None)

    def run(
        self,
        clock: Clock,
        most: int | None = None,
        on_epoch: Callable[[Trainer, Record], None] = lambda trainer, record: None,
        on_trial: Callable[[Tried], None] = lambda tried: None,
    ) -> None:
        """Run trials until only the time for the fresh seeds is left, or until there are `most` trials."""
        while (most is None or len(self.tried) < most) and (left := clock.left - self._reserve(clock)) > 0:
            tried = self.tried
            if len(tried) >= _FAILURES and not any(one.is_whole for one in tried[-_FAILURES:]):
                raise ShoalError(f"the last {_FAILURES} trials failed: {tried[-1].ended}")
            limit = min(left if tried else left / 2, LONGEST * clock.total)  # two trials fit at least
            on_trial(self._try(len(tried), time.monotonic() + limit, on_epoch))
            self._write()

    def _reserve(self, clock: Clock) -> float:
        """Seconds reserved for the fresh seeds: at most half of the total."""
        best = self.best
        needed = math.inf if best is None else self.asked.seeds * _MARGIN * best.seconds
        return 0.0 if clock.total == math.inf else min(needed, clock.total / 2)

    def _try(self, number: int, limit: float, on_epoch: Callable[[Trainer, Record], None]) -> Tried:
        """One trial: first the defaults, then `STARTS`, then Optuna's proposals.

        Proposals depend only on the trials so far, the seed and the number, so a resumed search makes the same ones.
        """
        self._study.sampler = optuna.samplers.TPESampler(
            seed=(self.asked.seed * 1_000_003 + number) % 2**32, n_startup_trials=8
        )
        if number and (start := select_start(self.plain, self.asked.fixed, number - 1)) is not None:
            self._study.enqueue_trial(start)
        trial = self._study.ask()
        config = self.base
        if number:
            config = propose(self.plain, self.asked.fixed, self.graph, lambda *asked: _suggest(trial, *asked))
        trial.set_user_attr("config", config.to_dict())
        judged = 0

        def judge(trainer: Trainer, record: Record) -> bool:
            nonlocal judged
            on_epoch(trainer, record)
            part = _PARTS * trainer.epoch // config.training.epochs
            if trainer.best_epoch and part > judged:
                judged = part
                trial.report(trainer.best_score, part)
                return number > 0 and part < _PARTS and trial.should_prune()
            return False

        watch, began = Watch(limit, judge), time.monotonic()
        try:
            trainer = train_trial(config, self.graph, self.folder, watch)
        except ShoalError as error:
            self._finish(trial, {"ended": f"failed: {error}", "seconds": time.monotonic() - began})
        else:
            ended = "pruned" if watch.is_pruned else "out of time" if watch.is_cut else "done"
            figures = {"ended": ended, "epochs": trainer.epoch, "best_epoch": trainer.best_epoch}
            figures |= {"seconds": time.monotonic() - began, "metric": trainer.metric}
            self._finish(trial, figures, trainer.best_score)
        return self.tried[-1]

    def _finish(self, trial: optuna.trial.Trial, figures: dict[str, Any], score: float | None = None) -> None:
        trial.set_user_attr("figures", figures)
        state = optuna.trial.TrialState
        if score is None:
            self._study.tell(trial, state=state.FAIL)
        elif figures["ended"] == "pruned":
            self._study.tell(trial, state=state.PRUNED)
        else:
            self._study.tell(trial, score)

    def confirm(
        self, clock: Clock, on_epoch: Callable[[Trainer, Record], None] = lambda trainer, record: None
    ) -> dict[str, Any]:
        """Train the best configuration with fresh seeds, as time allows; returns and writes their scores.

        A seed that runs out of time counts only if no other was finished. Test labels are read after the last seed.
        """
        best = self._require_best()
        finished: list[tuple[int, float, Any]] = []
        is_cut = False

        def follow(trainer: Trainer, record: Record) -> bool:
            on_epoch(trainer, record)
            return False

        for seed in range(self.asked.seed + 1, self.asked.seed + 1 + self.asked.seeds):
            if finished and clock.left < best.seconds / 2:
                break
            config = self.recipe(seed)
            watch = Watch(clock.end, follow)
            trainer = train_trial(config, self.graph, self.folder, watch)
            if watch.is_cut and trainer.epoch < config.training.epochs:
                is_cut = True
                if finished:
                    break
            has_test = trainer.has_nodes("test")
            logits = predict_test(trainer, self.graph) if has_test else None
            finished.append((seed, trainer.best_score, logits))
            if is_cut:
                break
        metric = self.base.training.metric
        tests = [score_test(self._graph, logits, metric) for _, _, logits in finished if logits is not None]
        result = {
            "trials": len(self.tried),
            "best_trial": best.number,
            "metric": self.metric,
            "validation": best.score,
            "seeds": [seed for seed, _, _ in finished],
            "is_cut": is_cut and len(finished) == 1,
            f"val_{self.metric}": _summarize([score for _, score, _ in finished]),
        }
        if tests:
            result |= {f"test_{name}": _summarize([one[name] for one in tests]) for name in tests[0]}
        self._write(result)
        return result

    def recipe(self, seed: int | None = None) -> RunConfig:
        """The best configuration. If its trial ran out of time, `epochs` is the number it trained."""
        best = self._require_best()
        config = make_config(best.config)
        if best.ended == "out of time":
            config.training.epochs = best.epochs
        if seed is not None:
            config.training.seed = seed
        return config

    def _require_best(self) -> Tried:
        best = self.best
        if best is None:
            tried = self.tried
            why = f"the first {tried[0].ended}" if tried else "no trial ended"
            raise ShoalError(f"no trial has a validation score: {why}; give more minutes, or other settings")
        return best

    def _write(self, result: dict[str, Any] | None = None) -> None:
        """Write the table of trials, the recipe of the best one, and the result."""
        tried = self.tried
        with replace_file(self.folder / TABLE) as scratch, open(scratch, "w", newline="") as file:
            settings = [flatten(make_config(one.config)) for one in tried]
            keys = dict.fromkeys(key for one in settings for key in one)
            differ = [key for key in keys if any(one.get(key) != settings[0].get(key) for one in settings)]
            writer = csv.DictWriter(file, [*tried[0].to_row(), *differ], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(one.to_row() | its for one, its in zip(tried, settings))
        if self.best is None:
            return
        config, best = self.recipe(), self.best
        said = f"# Found by `shoal tune`: validation {best.metric} {best.score:.4f}, {say_rank(tried, best)}."
        if result is not None:
            with replace_file(self.folder / RESULT) as scratch:
                scratch.write_text(json.dumps(result, indent=2) + "\n")
            if (test := result.get(f"test_{self.metric}")) is not None:
                config.target.metric, config.target.score = self.metric, test["mean"]
                config.target.deviation = test["deviation"]
                config.target.source = f"shoal tune, {len(result['seeds'])} fresh seeds"
        with replace_file(self.folder / RECIPE) as scratch:
            scratch.write_text(f"{said}\n{config.to_yaml()}")


def _suggest(trial: optuna.trial.Trial, key: str, values: Any) -> Any:
    if isinstance(values, tuple):
        return trial.suggest_categorical(key, values)
    return float(f"{trial.suggest_float(key, values.low, values.high, log=True):.2g}")


def _summarize(each: list[float]) -> dict[str, Any]:
    """Mean, standard deviation (0 for a single score) and single values of some scores."""
    spread = statistics.stdev(each) if len(each) > 1 else 0.0
    return {"mean": statistics.mean(each), "deviation": spread, "each": each}
