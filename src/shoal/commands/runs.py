"""Starting, continuing and showing runs: what `shoal train` and `shoal recipes --run` do once they know which."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.runs.config import RunConfig
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run


def train_configured(config: RunConfig, folder: Path) -> None:
    """Train what a recipe describes, once or repeatedly; go on where the folder is there already."""
    from shoal.errors import ShoalError

    if config.method == "partitioned":
        raise ShoalError("trained across ranks: run it with `shoal train --recipe NAME`, or under torchrun")
    if folder.exists():
        continue_run(folder, None)
    else:
        start_run(config, folder)


def start_run(config: RunConfig, folder: Path) -> None:
    """Train a new run, or as many as the configuration repeats, in one process."""
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run

    if config.repeat > 1:
        _train_all(Repeat.create(folder, config))
    else:
        _train_run(Run.create(folder, config))


def continue_run(folder: Path, epochs: int | None) -> None:
    """Go on with a run or repeated runs where they stopped, to other `epochs` if given."""
    from shoal.runs.repeat import Repeat
    from shoal.runs.run import Run

    if Repeat.is_one(folder):
        _train_all(Repeat.open(folder, epochs=epochs))
    else:
        _train_run(Run.open(folder, epochs=epochs))


def train_ranks(config: RunConfig | None, folder: Path, workers: int | None, epochs: int | None) -> None:
    """Train across ranks: as one of them, or by starting them. Without a config the folder's run goes on."""
    import sys

    from shoal.distributed.detect import detect_launch
    from shoal.distributed.launch import joined_ranks, start_workers
    from shoal.errors import ShoalError
    from shoal.runs.config import read_config
    from shoal.runs.partitioned_run import PartitionedRun
    from shoal.runs.repeat import Repeat

    launch = detect_launch()
    if launch.size > 1 and workers not in (None, launch.size):
        raise ShoalError(
            f"--workers {workers} in a group of {launch.size} ranks that {launch.launcher} started: leave it out"
        )
    if launch.size == 1:
        known = config.partition if config is not None else read_config(_find_config(folder)).partition
        stored = _count_parts(known.folder) or (known.parts if config is None else None)
        if stored is not None and workers not in (None, stored):
            raise ShoalError(
                f"there are {stored} parts and --workers is {workers}: start {stored} ranks, or partition again"
            )
        count = workers or stored or known.parts or 1
        if count > 1:
            if config is not None and known.folder is None:
                _check_data_here(config.data)
            arguments = sys.argv[1:] if config is None else [*sys.argv[1:], "--out", str(folder)]
            sys.exit(start_workers(count, arguments))
        if not known.keeps_boundary:
            raise ShoalError(
                "a boundary rate is for several ranks and there is one: add --workers N, or start ranks (docs/cluster.md)"
            )
    with joined_ranks() as transport:
        quiet = transport.rank != 0
        if config is not None and config.repeat > 1:
            _train_all(Repeat.create(folder, config, transport), quiet=quiet)
        elif config is not None:
            _train_run(PartitionedRun.start(folder, config, transport), quiet=quiet)
        elif Repeat.is_one(folder):
            _train_all(Repeat.open(folder, transport, epochs=epochs), quiet=quiet)
        else:
            _train_run(PartitionedRun.go_on(folder, transport, epochs=epochs), quiet=quiet)


def is_partitioned(folder: Path) -> bool:
    """Whether a run folder, or one of repeated runs, is of method partitioned."""
    from shoal.runs.config import read_config

    path = _find_config(folder)
    return path.is_file() and read_config(path).method == "partitioned"


def _find_config(folder: Path) -> Path:
    """The file that holds a run's configuration, or that of repeated runs."""
    single = folder / "config.yaml"
    return single if single.is_file() else folder / "repeat.yaml"


def _count_parts(folder: str | None) -> int | None:
    if folder is None:
        return None
    from shoal.partitioning.stored import read_manifest

    return int(read_manifest(Path(folder))["num_parts"])


def _check_data_here(data: str) -> None:
    """Refuse data that is not on this machine, before ranks are started that would each say so."""
    from shoal.datasets.places import find_graph
    from shoal.datasets.registry import BUILT_IN
    from shoal.errors import ShoalError

    if data not in BUILT_IN and not Path(data).exists() and find_graph(data) is None:
        raise ShoalError(
            f"{data} is not on this machine: `shoal data list` shows what is, `shoal data get` fetches"
        )


def _train_all(repeat: Repeat, *, quiet: bool = False) -> None:
    """Train every seed's run and tell mean and deviation of the scores, unless `quiet`."""
    from shoal.commands.screen import open_console

    console = open_console()
    console.quiet = quiet
    for number, run in enumerate(repeat.runs(), 1):
        console.print(
            f"run {number} of {repeat.config.repeat}, seed {run.config.training.seed}", markup=False
        )
        _train_run(run, quiet=quiet)
    if quiet:
        return
    summary = repeat.summarize()
    for name, scores in summary.items():
        if name.startswith("test_"):
            text = f"{scores['mean']:.4f} ± {scores['deviation']:.4f} over {repeat.config.repeat} seeds"
            console.print(f"{name.replace('_', ' ', 1)} {text}", highlight=False)
    means = {name: value["mean"] for name, value in summary.items() if name != "seeds"}
    _compare_target(repeat.config, means)
    console.print(f"run folder: {repeat.folder}", markup=False)


def _train_run(run: Run, *, quiet: bool = False) -> dict[str, float]:
    """Train a run to its end, showing how it goes unless `quiet`; returns its test scores."""
    from shoal.commands.progress import TrainingProgress, show_counting
    from shoal.commands.screen import open_console

    console = open_console()
    console.quiet = quiet
    trainer, config = run.trainer, run.config
    console.print(run.describe(), markup=False)
    show_counting(console, trainer.sampler)
    for notice in (*run.notices, *trainer.sampler.notices):
        console.print(f"notice: {notice}", markup=False)
    if (ended := run.explain_end()) is not None:
        console.print(f"notice: {ended}", markup=False)
    try:
        with TrainingProgress(console, config.training.epochs, trainer.metric, trainer.epoch) as progress:
            scores = run.train(progress.show)
    except KeyboardInterrupt:
        if not run.has_checkpoint:
            raise KeyboardInterrupt("interrupted before the first epoch ended: nothing was kept") from None
        raise KeyboardInterrupt(f"interrupted; continue with: shoal train --resume {run.folder}") from None
    if scores["best_epoch"]:
        console.print(
            f"best validation {trainer.metric} {trainer.best_score:.4f} in epoch {scores['best_epoch']}"
        )
    for name, value in scores.items():
        if name.startswith("test_"):
            console.print(f"{name.replace('_', ' ', 1)} {value:.4f}")
    if not quiet:
        _compare_target(config, scores)
    if (memory := run.summarize_memory()) is not None:
        console.print(memory, markup=False, highlight=False)
    console.print(f"run folder: {run.folder}", markup=False)
    return scores


def _compare_target(config: RunConfig, scores: dict[str, float]) -> None:
    """Say whether the score a recipe states was reached, within its published deviation."""
    from shoal.commands.screen import open_console

    target = config.target
    found = scores.get(f"test_{target.metric}")
    if target.score is None or found is None:
        return
    reached = "reached" if found >= target.score - target.deviation else "not reached"
    spread = f" ± {target.deviation}" if target.deviation else ""
    open_console().print(
        f"target {target.metric} {target.score}{spread}: {reached} ({target.source})",
        markup=False,
        highlight=False,
    )
