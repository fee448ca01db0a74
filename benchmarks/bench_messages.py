"""Scores of integer messages and stale halos beside exact training, with the same seeds on the same parts.

    python benchmarks/bench_messages.py                          eight graphs, four ranks, five seeds
    python benchmarks/bench_messages.py cora --seeds 1 --epochs 20 --ranks 2
    python benchmarks/bench_messages.py pubmed --ways exact int8  some ways only
    python benchmarks/bench_messages.py table                    what was measured, as a table

Real ranks of one thread each train all ways of a seed in turn; the epoch with the best validation score is the one tested,
and evaluation is exact in all of them. Every result is added to benchmarks/results/messages-scores.jsonl as it comes; what is
there already is not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

import shoal
from bench_boundary import _GCN, _SAGE, _TRAINING, SETTINGS, start_ranks
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
_PLANETOID = ({}, _GCN, {"lr": 0.01, "weight_decay": 0.005, "epochs": 200})
OWN = {"cora": _PLANETOID, "citeseer": _PLANETOID}
EXACT = "exact"
WAYS: dict[str, dict[str, Any]] = {
    EXACT: {},
    "bfloat16": {"messages": "bfloat16"},
    "int8": {"messages": "int8"},
    "int4": {"messages": "int4"},
    "stale": {"staleness": 1},
    "stale, smoothed .5": {"staleness": 1, "smoothing": 0.5},
    "stale, smoothed .95": {"staleness": 1, "smoothing": 0.95},
    "int8, stale": {"messages": "int8", "staleness": 1},
}


def run_graph(name: str, args: argparse.Namespace) -> None:
    importer, model, training = OWN.get(name) or SETTINGS.get(name, ({}, _SAGE, {}))
    path = args.data / f"{name}.npz"
    graph = shoal.load(str(path) if path.is_file() else name, **importer)
    graph = graph if graph.has_split else graph.with_split(seed=0)
    training = _TRAINING | training | ({"metric": "roc_auc"} if graph.num_classes == 2 else {})
    if args.epochs is not None:
        training["epochs"] = args.epochs
    told = {"graph": name, "parts": args.ranks, "method": args.method, "model": model, "training": training}
    done = {(line["way"], line["seed"]) for line in read(told)}
    jobs = [
        {
            "told": told | {"way": way},
            "exchange": WAYS[way],
            "seed": seed,
            "model": model,
            "training": training,
        }
        for seed in range(args.seeds)
        for way in args.ways
        if (way, seed) not in done
    ]
    if jobs:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "parts"
            store_parts(graph, shoal.partition_graph(graph, args.ranks, args.method, seed=0), folder)
            start_ranks(args.ranks, folder, jobs, RESULTS)
    report(told, read(told))


def read(told: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """The results so far, those of one graph and its settings if told."""
    if not RESULTS.is_file():
        return []
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    return [line for line in lines if told is None or all(line[key] == told[key] for key in told)]


def report(told: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Test scores of every way, beside exact training with the same seed; a mean below by two standard errors loses."""
    print(
        f"{told['graph']}, {told['parts']} {told['method']} parts, {told['training']['epochs']} epochs",
        flush=True,
    )
    exact = {line["seed"]: line for line in lines if line["way"] == EXACT}
    for way in dict.fromkeys(line["way"] for line in lines):
        chosen = [line for line in lines if line["way"] == way]
        scores = [100 * line["test"] for line in chosen]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        apart = [
            100 * (line["test"] - exact[line["seed"]]["test"]) for line in chosen if line["seed"] in exact
        ]
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=GRAPHS, help="Graphs, or `table`.")
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="Instead of each graph's own number.")
    parser.add_argument("--method", default="metis", help="How graphs are cut.")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    args = parser.parse_args()
    if list(args.graphs) == ["table"]:
        groups: dict[str, list[dict[str, Any]]] = {}
        names = ("graph", "parts", "method", "model", "training")
        for line in read():
            groups.setdefault(json.dumps({name: line[name] for name in names}), []).append(line)
        for key, lines in groups.items():
            report(json.loads(key), lines)
        return
    for name in args.graphs:
        run_graph(name, args)
    print(f"torch {__import__('torch').__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
