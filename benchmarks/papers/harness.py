"""What the experiments of the papers share: an Experiment, how one is run and saved, and where its results are.

    python benchmarks/papers/run.py                             all at the small profile; what was run here is skipped
    python benchmarks/papers/run.py --profile regular           the same, larger
    python benchmarks/papers/theorem1.py --again                one of them, anew

A file holds one experiment, `EXPERIMENT`, which `declare` makes from the file's functions. `run(settings)` makes rows of
plain values, which are saved in benchmarks/results/papers, or its folder of a larger profile, with date, machine and load. Tables, plots and
paragraphs are made from rows and from what the paper published, so that no figure is typed by hand: `pages.py` writes
them to docs/papers.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GRAPHS = ROOT.parent / "shared" / "data"  # as in other benchmarks; $SHOAL_DATA comes first
if GRAPHS.is_dir():
    os.environ.setdefault("SHOAL_DATA", str(GRAPHS))
sys.path[:0] = [str(HERE), str(HERE.parent)]

import timing  # noqa: E402

RESULTS = timing.RESULTS / "papers"
KEPT = ROOT / "build/papers"
PROFILES = ("small", "regular", "large")
# Generated in place of graphs that are not here, with their size, degree and number of features; Kronecker graphs have 2^scale nodes.
GENERATED: dict[str, tuple[str, dict[str, Any]]] = {
    "blocks:Yelp": (
        "blocks",
        {"num_nodes": 716_847, "degree": 19.5, "num_features": 300, "num_classes": 100},
    ),
    "kronecker:Amazon": ("kronecker", {"scale": 21, "degree": 165, "num_features": 200, "num_classes": 107}),
    "kronecker:Amazon/8": (
        "kronecker",
        {"scale": 18, "degree": 165, "num_features": 200, "num_classes": 107},
    ),
    "kronecker:amazon0601": ("kronecker", {"scale": 19, "degree": 8.4, "num_features": 0, "directed": True}),
    "kronecker:cit-Patents": ("kronecker", {"scale": 22, "degree": 4.4, "num_features": 0, "directed": True}),
    "kronecker:com-Youtube": ("kronecker", {"scale": 20, "degree": 5.3, "num_features": 0}),
    "kronecker:com-Youtube/4": ("kronecker", {"scale": 18, "degree": 5.3, "num_features": 0}),
}
LOG = {"xscale": "log", "yscale": "log"}  # for plots

Row = dict[str, Any]
Table = list[list[str]]  # the header first


@dataclass(frozen=True)
class Published:
    """What a paper reports: values by name, and where they stand."""

    place: str
    values: dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """One figure, table or theorem, made by this code.

    Args:
        paper: the page it stands on: one of those in `pages.PAGES`.
        ours, theirs: the conditions of both.
        profiles: settings of `run` by profile; `tiny` is for tests.
        published: what the paper reports.
        run: settings → rows.
        tabulate: rows → a table whose header comes first, ours and the paper's side by side.
        explain: rows → what agrees, what does not, why.
        draw: (axes, rows) draws the plot.
        reads: files of benchmarks/results that tables and paragraphs read besides the rows.
    """

    name: str
    paper: str
    title: str
    ours: str
    theirs: str
    profiles: dict[str, dict[str, Any]]
    published: Published
    run: Callable[[dict[str, Any]], list[Row]]
    tabulate: Callable[[list[Row]], Table]
    explain: Callable[[list[Row]], str]
    draw: Callable[[Any, list[Row]], None]
    reads: tuple[str, ...] = ()

    def find_file(self, profile: str) -> Path:
        """Where results are; those of larger profiles do not replace the small one's."""
        folder = RESULTS if profile in {"tiny", "small"} else RESULTS / profile
        return folder / f"{self.name}.json"


def declare(
    module: dict[str, Any],
    *,
    profiles: dict[str, dict[str, Any]],
    common: dict[str, Any] | None = None,
    **said: str,
) -> Experiment:
    """The experiment of a file, from the file's names.

    Args:
        module: the file's `globals()`: `PUBLISHED`, the functions `run`, `tabulate`, `explain` and `draw`, and `SAVED`, the
            file or files that it reads, if any.
        profiles: settings by profile.
        common: settings of all profiles, which a profile may replace.
        said: paper, title, ours, theirs.
    """
    saved = module.get("SAVED", ())
    return Experiment(
        name=Path(module["__file__"]).stem,
        profiles={name: (common or {}) | own for name, own in profiles.items()},
        published=module["PUBLISHED"],
        reads=(saved,) if isinstance(saved, str) else saved,
        **{name: module[name] for name in ("run", "tabulate", "explain", "draw")},
        **said,
    )


def read_record(experiment: Experiment, profile: str = "small") -> dict[str, Any] | None:
    """What was saved of an experiment, None before its first run at that profile."""
    file = experiment.find_file(profile)
    if not file.exists():
        return None
    record: dict[str, Any] = json.loads(file.read_text())
    return record


def read_saved(name: str) -> Any:
    """A file of benchmarks/results: the record of JSON, the list of JSON lines."""
    text = (timing.RESULTS / name).read_text()
    return [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)


def run_experiment(experiment: Experiment, profile: str) -> dict[str, Any]:
    """Run it and save what it found."""
    settings = experiment.profiles[profile]
    wall, cpu = time.perf_counter(), count_processor()
    rows = experiment.run(settings)
    record = {
        "command": f"python benchmarks/papers/{experiment.name}.py --profile {profile}",
        "profile": profile,
        "settings": settings,
        "date": datetime.date.today().isoformat(),
        "seconds": round(time.perf_counter() - wall, 1),
        "cpu_seconds": round(count_processor() - cpu, 1),
        "environment": timing.environment(),
        "rows": rows,
    }
    file = experiment.find_file(profile)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(timing.format_record(record))
    mark = find_mark(experiment, profile)
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps(settings))
    return record


def count_processor() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    return sum(os.times()[:4])


def find_mark(experiment: Experiment, profile: str) -> Path:
    """Where it is noted that an experiment has been run in this clone: results of elsewhere come with it."""
    return KEPT / "done" / f"{experiment.name}-{profile}.json"


def is_done(experiment: Experiment, profile: str) -> bool:
    """Whether it has been run here with this profile and these settings, and its results are of that."""
    mark, record = find_mark(experiment, profile), read_record(experiment, profile)
    wanted = json.loads(json.dumps(experiment.profiles[profile]))
    is_marked = mark.exists() and json.loads(mark.read_text()) == wanted
    return is_marked and record is not None and record["profile"] == profile


def main(experiment: Experiment, description: str | None) -> None:
    """The command line of one experiment."""
    options = read_options(description)
    if is_done(experiment, options.profile) and not options.again:
        print(f"{experiment.name}: done before ({options.profile}); --again runs it anew")
    else:
        from shoal.errors import ShoalError

        try:
            run_experiment(experiment, options.profile)
        except ShoalError as error:  # most often a graph that is not here
            sys.exit(f"{experiment.name}: {error}")
    record = read_record(experiment, options.profile)
    assert record is not None
    for line in experiment.tabulate(record["rows"]):
        print("  ".join(line))
    print(experiment.explain(record["rows"]))
    print(f"{record['seconds']} s, load {record['environment']['load']}")


def read_options(description: str | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", choices=PROFILES, default="small")
    parser.add_argument("--again", action="store_true", help="run what has been run before")
    return parser.parse_args()


def keep(name: str, make: Callable[[], Any]) -> Any:
    """An array that takes long to make, kept in build/papers for other experiments and profiles."""
    import numpy as np

    path = KEPT / f"{name}.npy"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = make()
        scratch = path.with_suffix(".part.npy")
        np.save(scratch, made)
        scratch.rename(path)
    return np.load(path)


def load_graph(name: str, **options: Any) -> Any:
    """A graph with a split: one by name, one of `GENERATED`, or `kronecker:SCALE:DEGREE`."""
    import shoal

    if name in GENERATED:
        name, options = GENERATED[name][0], GENERATED[name][1] | options
    elif name.startswith("kronecker:"):
        scale, degree = map(int, name.split(":")[1:])
        name, options = "kronecker", {"scale": scale, "degree": degree, **options}
    graph = shoal.load(name, **options)
    return graph if graph.has_split or graph.y is None else graph.with_split(seed=0)


def cut_graph(graph: Any, parts: int, method: str, **options: Any) -> Any:
    """The part of each node, kept for other experiments; `options` go to the method."""
    import shoal

    name = "-".join(
        map(str, [graph.name, graph.num_nodes, len(graph.indices), parts, method, *options.values()])
    )
    return keep(name, lambda: shoal.partition_graph(graph, parts, method, seed=0, **options).assignment)


def train_on_ranks(
    graph: Any, parts: int, method: str, jobs: list[dict[str, Any]], **options: Any
) -> list[Row]:
    """What rank 0 reports of each job (`boundary_rank.py`), one rank of one thread for every part; `options` go to the partition method."""
    from shoal.partitioning.partition import Partition

    return train_on_parts(
        graph, Partition(graph, cut_graph(graph, parts, method, **options), parts, method), jobs
    )


def train_on_parts(graph: Any, partition: Any, jobs: list[dict[str, Any]]) -> list[Row]:
    """The same with a partition at hand."""
    import tempfile

    from bench_boundary import start_ranks
    from shoal.partitioning.stored import store_parts

    with tempfile.TemporaryDirectory() as place:
        store_parts(graph, partition, Path(place) / "parts")
        start_ranks(partition.num_parts, Path(place) / "parts", jobs, Path(place) / "out")
        return [json.loads(line) for line in (Path(place) / "out").read_text().splitlines()]


def make_job(rate: float, seed: int = 0, way: str = "nodes", **more: Any) -> dict[str, Any]:
    """A job with boundary rate p; `more` holds the model, the training and the rest, and settings of the exchange as `exchange`."""
    exchange = {"boundary_rate": rate, "boundary_sampling": way} | more.pop("exchange", {})
    return {"told": {"rate": rate, "way": way}, "exchange": exchange, "seed": seed, "detailed": True} | more


def group(rows: list[Row], name: str) -> dict[Any, list[Row]]:
    """The rows by one of their values, in the order of its first appearance."""
    return {
        value: [row for row in rows if row[name] == value]
        for value in dict.fromkeys(row[name] for row in rows)
    }


def draw_lines(axes: Any, groups: dict[str, Any], x: Any, y: Any, style: Any = "o-", **labels: Any) -> None:
    """A line for each group: `x` and `y` are keys of its rows (or of its points: 0 and 1), or functions of a row; `style` may be a function of the name."""
    for name, rows in groups.items():
        places, values = ([one(row) if callable(one) else row[one] for row in rows] for one in (x, y))
        axes.plot(places, values, style(name) if callable(style) else style, label=name)
    axes.set(**labels)


def draw_bars(
    axes: Any,
    names: list[str],
    groups: dict[str, Any],
    level: float | None = None,
    *,
    theirs: Any = (),
    upright: bool = False,
    **labels: Any,
) -> None:
    """Bars for each name, one of each group, side by side, the first on top; a line at `level`; marks at what the paper has for each group."""
    step = 0.8 / len(groups)
    for i, (label, values) in enumerate(groups.items()):
        places = [k + step * i for k in range(len(names))]
        heights = [float("nan") if value is None else value for value in values]
        (axes.bar if upright else axes.barh)(places, heights, 0.9 * step, label=label)
        if i < len(theirs):
            axes.plot(theirs[i], places, "k|", markersize=12, label=f"{label.split(',')[0]}, paper")
    ticks = [k + step * (len(groups) - 1) / 2 for k in range(len(names))]
    (axes.set_xticks if upright else axes.set_yticks)(ticks, names)
    if not upright:
        axes.invert_yaxis()
    if level is not None:
        axes.axvline(level, color="black", linestyle="--")
    axes.set(**labels)


def draw_level(axes: Any, value: float, label: str | None = None) -> None:
    axes.axhline(value, color="black", linestyle="--", label=label)


def mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def span(values: Any, digits: int = 2) -> str:
    """`a to b`, or one number where both are written alike."""
    values = list(values)
    low, high = f"{min(values):,.{digits}f}", f"{max(values):,.{digits}f}"
    return low if low == high else f"{low} to {high}"


def percent(value: float, digits: int = 0) -> str:
    return f"{100 * value:.{digits}f} %"
