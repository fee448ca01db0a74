"""Scores of integer messages, stale halos and sampled boundaries beside exact training, with the same seeds on the same parts.

    python benchmarks/bench_messages.py                          eight graphs, two ranks with random parts, five seeds
    python benchmarks/bench_messages.py cora --seeds 1 --epochs 20 --ranks 4 --method metis
    python benchmarks/bench_messages.py pubmed --ways exact int8  some ways only
    python benchmarks/bench_messages.py table                    what was measured, as a table

Real ranks of one thread each train all ways of a seed in turn; the epoch with the best validation score is the one tested,
and evaluation is exact in all of them. In two random parts half of all entries cross, more than in any parts one would train
with. Rows and covers are sampled such that both send the same bytes: covers, which are fewer, at a higher rate. Settings
are such that the validation score of exact training no longer rises in the last fifth of the epochs; every line has its
validation curve. Every result is added to benchmarks/results/messages-scores.jsonl as it comes; what is there already is
not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from bench_boundary import _GCN, _SAGE, _SHORT, start_ranks
from shoal.analysis.simulate import open_parts
from shoal.datasets.importers.node_lists import standardize_features
from shoal.distributed.exchange import EXCHANGES
from shoal.partitioning.stored import store_parts

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "messages-scores.jsonl"
GRAPHS = (
    "cora",
    "citeseer",
    "pubmed",
    "amazon-computers",
    "coauthor-physics",
    "hetero-tolokers",
    "ppi",
    "wordnet30",
)
_PLANETOID = (False, _GCN, {"lr": 0.01, "weight_decay": 0.005, "epochs": 150})
# Whether features are standardised, model, training. Exact training settles: its validation score no longer rises.
SETTINGS: dict[str, tuple[bool, dict[str, Any], dict[str, Any]]] = {
    "cora": _PLANETOID,
    "citeseer": _PLANETOID,
    "pubmed": (False, _GCN, {"lr": 0.01, "weight_decay": 0.0005, "epochs": 100}),
    "amazon-computers": (True, _SAGE, {"lr": 0.01, "epochs": 200}),
    "coauthor-physics": (False, _SHORT | {"dropout": 0.5}, {"lr": 0.01, "epochs": 100}),
    "hetero-tolokers": (True, _SAGE | {"residual": True, "dropout": 0.2}, {"lr": 0.02, "epochs": 300}),
    "ppi": (True, _SHORT | {"hidden": 128}, {"lr": 0.01, "epochs": 300}),
    "wordnet30": (False, _SHORT, {"lr": 0.02, "epochs": 50}),
}
EVALUATIONS = 20
EXACT = "exact"
RATE = 0.1  # of the boundary's rows
WAYS: dict[str, dict[str, Any]] = {
    EXACT: {},
    "bfloat16": {"messages": "bfloat16"},
    "int8": {"messages": "int8"},
    "int4": {"messages": "int4"},
    "stale": {"staleness": 1},
    "stale, smoothed .5": {"staleness": 1, "smoothing": 0.5},
    "stale, smoothed .9": {"staleness": 1, "smoothing": 0.9},
    "stale, smoothed .95": {"staleness": 1, "smoothing": 0.95},
    "int8, stale": {"messages": "int8", "staleness": 1},
    "rows sampled": {"boundary_rate": RATE, "cover": False},
    "covers sampled": {"boundary_rate": RATE, "cover": True},  # the rate that sends as much
}
MAIN = (EXACT, "int8", "int4", "stale", "stale, smoothed .9", "rows sampled", "covers sampled")


def run_graph(name: str, args: argparse.Namespace) -> None:
    scaled, model, training = SETTINGS.get(name, (False, _SAGE, {"lr": 0.01, "epochs": 80}))
    graph = load_graph(name, args.data, scaled=scaled)
    training = {"schedule": "cosine"} | training
    training |= {"metric": "roc_auc"} if graph.num_classes == 2 else {}
    if args.epochs is not None:
        training["epochs"] = args.epochs
    training["eval_every"] = max(training["epochs"] // EVALUATIONS, 1)
    told = {"graph": name, "parts": args.ranks, "method": args.method, "scaled": scaled}
    told |= {"model": model, "training": training}
    done = {(line["way"], line["seed"]) for line in read(told)}
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    wanted = [(way, seed) for seed in seeds for way in args.ways if (way, seed) not in done]
    if wanted:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "parts"
            store_parts(graph, shoal.partition_graph(graph, args.ranks, args.method, seed=0), folder)
            exchanges = WAYS | {"covers sampled": {"cover": True, "boundary_rate": match_rate(folder)}}
            jobs = [
                {"told": told | {"way": way}, "exchange": exchanges[way], "seed": seed}
                | {"model": model, "training": training, "detailed": True}
                for way, seed in wanted
            ]
            start_ranks(args.ranks, folder, jobs, RESULTS)
    report(told, read(told))


def load_graph(name: str, data: Path, *, scaled: bool) -> shoal.Graph:
    """A graph with a split; `scaled`: with features standardised on the training nodes."""
    path = data / f"{name}.npz"
    graph = shoal.load(str(path) if path.is_file() else name)
    graph = graph if graph.has_split else graph.with_split(seed=0)
    if not scaled:
        return graph
    masks = {name: getattr(graph, name) for name in ("train_mask", "val_mask", "test_mask")}
    x = standardize_features(dense_features(graph), masks["train_mask"], path)
    return shoal.Graph(graph.indptr, graph.indices, x=x, y=graph.y, directed=graph.directed, **masks)


def dense_features(graph: shoal.Graph) -> np.ndarray:
    x: Any = graph.x
    return np.asarray(x.toarray() if hasattr(x, "toarray") else x)


def match_rate(folder: Path) -> float:
    """The rate at which sampled rows and sums are as many as rows at RATE."""
    rows, items = (
        int(EXCHANGES["p2p"](cover=on).count_rows(open_parts(folder)).sum()) for on in (False, True)
    )
    return min(RATE * rows / items, 1.0)


def read(told: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The results so far, those of one graph and its settings if told."""
    if not RESULTS.is_file():
        return []
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return [line for line in lines if told is None or all(line.get(key) == told[key] for key in told)]


def report(told: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Test scores of every way, beside exact training with the same seed; a mean below by two standard errors loses."""
    print(
        f"{told['graph']}, {told['parts']} {told['method']} parts, {told['training']['epochs']} epochs",
        flush=True,
    )
    rises = [find_rise(line["curve"]) for line in lines if line["way"] == EXACT and "curve" in line]
    if rises:
        print(
            f"  exact validation scores rise by {100 * max(rises):+.2f} at most in the last fifth of the epochs"
        )
    for way in dict.fromkeys(line["way"] for line in lines):
        chosen = [line for line in lines if line["way"] == way]
        scores = [100 * line["test"] for line in chosen]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        apart = compare(lines, way)
        beside = ""
        if way != EXACT and apart:
            mean = statistics.mean(apart)
            beside = f", {mean:+.2f} from exact"
            if len(apart) > 1:
                error = statistics.stdev(apart) / len(apart) ** 0.5
                beside += f" (standard error {error:.2f})" + (" LOSES" if mean < -2 * error else "")
        sent = statistics.median(line["bytes"] for line in chosen) / 1e6
        print(
            f"  {way:20} {len(chosen)} seeds: test {statistics.mean(scores):6.2f} ± {spread:.2f}{beside}; {sent:.3f} MB an epoch",
            flush=True,
        )


def find_rise(curve: list[list[float]]) -> float:
    """How far the best score of the last fifth of evaluations is above the best before."""
    scores = [score for _, score in curve]
    before = len(scores) * 4 // 5
    return max(scores[before:]) - max(scores[:before])


def compare(lines: list[dict[str, Any]], way: str) -> list[float]:
    """Points by which each seed of a way is above exact training with that seed."""
    exact = {line["seed"]: line for line in lines if line["way"] == EXACT}
    chosen = [line for line in lines if line["way"] == way and line["seed"] in exact]
    return [100 * (line["test"] - exact[line["seed"]]["test"]) for line in chosen]


def report_all(groups: list[list[dict[str, Any]]]) -> None:
    """The mean over graphs of every way's distance from exact training; each graph's seeds tell its error."""
    print(f"all graphs, {groups[0][0]['parts']} {groups[0][0]['method']} parts")
    for way in [way for way in WAYS if way != EXACT]:
        apart = [found for lines in groups if len(found := compare(lines, way)) > 1]
        if apart:
            mean = statistics.mean(statistics.mean(found) for found in apart)
            error = sum(statistics.variance(found) / len(found) for found in apart) ** 0.5 / len(apart)
            print(f"  {way:20} {len(apart)} graphs: {mean:+.2f} from exact (standard error {error:.2f})")


def render(groups: list[list[dict[str, Any]]]) -> None:
    """A table in Markdown: exact scores with the deviation of seeds, distances from them with standard errors."""
    ways = [way for way in WAYS if way != EXACT and any(compare(lines, way) for lines in groups)]
    print("| " + " | ".join(["graph", "epochs", "seeds", EXACT, *ways]) + " |")
    print("|---" * (len(ways) + 4) + "|")
    for lines in groups:
        scores = [100 * line["test"] for line in lines if line["way"] == EXACT]
        cells = [lines[0]["graph"], str(lines[0]["training"]["epochs"]), str(len(scores))]
        cells.append(f"{statistics.mean(scores):.2f} ± {statistics.stdev(scores):.2f}")
        for way in ways:
            apart = compare(lines, way)
            error = statistics.stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
            cells.append(f"{statistics.mean(apart):+.2f} ± {error:.2f}" if len(apart) > 1 else "")
        print("| " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=GRAPHS, help="Graphs, or `table`.")
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, help="Instead of each graph's own number.")
    parser.add_argument("--method", default="random", help="How graphs are cut.")
    parser.add_argument("--ways", nargs="+", default=MAIN, choices=list(WAYS))
    args = parser.parse_args()
    if list(args.graphs) == ["table"]:
        groups: dict[str, list[dict[str, Any]]] = {}
        names = ("graph", "parts", "method", "scaled", "model", "training")
        for line in read():
            groups.setdefault(json.dumps({name: line.get(name) for name in names}), []).append(line)
        for key, lines in groups.items():
            report(json.loads(key), lines)
        counted = [lines for lines in groups.values() if sum(line["way"] == EXACT for line in lines) > 1]
        for cut in dict.fromkeys((lines[0]["parts"], lines[0]["method"]) for lines in counted):
            same = [lines for lines in counted if (lines[0]["parts"], lines[0]["method"]) == cut]
            report_all(same)
            render(same)
        return
    for name in args.graphs:
        run_graph(name, args)
    print(f"torch {__import__('torch').__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
