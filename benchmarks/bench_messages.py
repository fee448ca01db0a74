"""Scores of integer messages, stale halos and sampled boundaries beside exact training, with the same seeds on the same parts.

    python benchmarks/bench_messages.py                          eight graphs, two ranks with random parts, five seeds
    python benchmarks/bench_messages.py cora --seeds 1 --epochs 20 --ranks 4 --method metis
    python benchmarks/bench_messages.py pubmed --ways exact int8  some ways only
    python benchmarks/bench_messages.py table                    what was measured, as a table

Real ranks of one thread each train all ways of a seed in turn; the epoch with the best validation score is the one tested,
and evaluation is exact in all of them. In two random parts half of all entries cross, more than in any parts one would train
with. Rows and covers are sampled such that both send the same bytes: covers, which are fewer, at a higher rate. Every result is added to benchmarks/results/messages-scores.jsonl as it comes; what is
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
from shoal.analysis.simulate import open_parts
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
_PLANETOID = ({}, _GCN, {"lr": 0.01, "weight_decay": 0.005, "epochs": 150})
_SHORTER = {"amazon-computers": {"lr": 0.01, "epochs": 60}, "hetero-tolokers": {"epochs": 100}}
_SHORTER |= {"pubmed": {"epochs": 100}, "ppi": {"epochs": 40}, "wordnet30": {"epochs": 30}}
OWN = {"cora": _PLANETOID, "citeseer": _PLANETOID}
EXACT = "exact"
RATE = 0.1  # of the boundary's rows
WAYS: dict[str, dict[str, Any]] = {
    EXACT: {},
    "bfloat16": {"messages": "bfloat16"},
    "int8": {"messages": "int8"},
    "int4": {"messages": "int4"},
    "stale": {"staleness": 1},
    "stale, smoothed .5": {"staleness": 1, "smoothing": 0.5},
    "stale, smoothed .95": {"staleness": 1, "smoothing": 0.95},
    "int8, stale": {"messages": "int8", "staleness": 1},
    "rows sampled": {"boundary_rate": RATE, "cover": False},
    "covers sampled": {"boundary_rate": RATE, "cover": True},  # the rate that sends as much
}
MAIN = (EXACT, "int8", "int4", "stale", "stale, smoothed .5", "rows sampled", "covers sampled")


def run_graph(name: str, args: argparse.Namespace) -> None:
    importer, model, training = OWN.get(name) or SETTINGS.get(name, ({}, _SAGE, {}))
    path = args.data / f"{name}.npz"
    graph = shoal.load(str(path) if path.is_file() else name, **importer)
    graph = graph if graph.has_split else graph.with_split(seed=0)
    training = _TRAINING | training | {"eval_every": 10} | _SHORTER.get(name, {})
    training |= {"metric": "roc_auc"} if graph.num_classes == 2 else {}
    if args.epochs is not None:
        training["epochs"] = args.epochs
    told = {"graph": name, "parts": args.ranks, "method": args.method, "model": model, "training": training}
    done = {(line["way"], line["seed"]) for line in read(told)}
    wanted = [(way, seed) for seed in range(args.seeds) for way in args.ways if (way, seed) not in done]
    if wanted:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "parts"
            store_parts(graph, shoal.partition_graph(graph, args.ranks, args.method, seed=0), folder)
            exchanges = WAYS | {"covers sampled": {"cover": True, "boundary_rate": match_rate(folder)}}
            jobs = [
                {"told": told | {"way": way}, "exchange": exchanges[way], "seed": seed}
                | {"model": model, "training": training}
                for way, seed in wanted
            ]
            start_ranks(args.ranks, folder, jobs, RESULTS)
    report(told, read(told))


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
    return [line for line in lines if told is None or all(line[key] == told[key] for key in told)]


def report(told: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """Test scores of every way, beside exact training with the same seed; a mean below by two standard errors loses."""
    print(
        f"{told['graph']}, {told['parts']} {told['method']} parts, {told['training']['epochs']} epochs",
        flush=True,
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


def compare(lines: list[dict[str, Any]], way: str) -> list[float]:
    """Points by which each seed of a way is above exact training with that seed."""
    exact = {line["seed"]: line for line in lines if line["way"] == EXACT}
    chosen = [line for line in lines if line["way"] == way and line["seed"] in exact]
    return [100 * (line["test"] - exact[line["seed"]]["test"]) for line in chosen]


def report_all(groups: list[list[dict[str, Any]]]) -> None:
    """The mean over graphs of every way's distance from exact training; each graph's seeds tell its error."""
    print("all graphs")
    for way in [way for way in WAYS if way != EXACT]:
        apart = [found for lines in groups if len(found := compare(lines, way)) > 1]
        if apart:
            mean = statistics.mean(statistics.mean(found) for found in apart)
            error = sum(statistics.variance(found) / len(found) for found in apart) ** 0.5 / len(apart)
            print(f"  {way:20} {len(apart)} graphs: {mean:+.2f} from exact (standard error {error:.2f})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=GRAPHS, help="Graphs, or `table`.")
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, help="Instead of each graph's own number.")
    parser.add_argument("--method", default="random", help="How graphs are cut.")
    parser.add_argument("--ways", nargs="+", default=MAIN, choices=list(WAYS))
    args = parser.parse_args()
    if list(args.graphs) == ["table"]:
        groups: dict[str, list[dict[str, Any]]] = {}
        names = ("graph", "parts", "method", "model", "training")
        for line in read():
            groups.setdefault(json.dumps({name: line[name] for name in names}), []).append(line)
        for key, lines in groups.items():
            report(json.loads(key), lines)
        report_all(list(groups.values()))
        return
    for name in args.graphs:
        run_graph(name, args)
    print(f"torch {__import__('torch').__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
