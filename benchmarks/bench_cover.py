"""Partitions for covers, measured: what `cover` sends by minimum covers over the rows that `hypergraph` sends.

    python benchmarks/bench_cover.py --base OLD/src           # every graph in $SHOAL_DATA, small ones first
    python benchmarks/bench_cover.py --graphs cora --parts 16
    python benchmarks/bench_cover.py --show                   # the summary of what was measured

Every case runs in a process of its own on one thread; CPU seconds are the process's and those
of the processes it starts. Results are written after each case, and what they
hold is not measured again. `--base` is a source tree whose `hypergraph` the volumes are over: without it that of this tree.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import shoal
import timing
from shoal.partitioning.cover import count_covers

METHODS = ("base", "random", "metis", "metis-volume", "hypergraph", "cover")
NAME = "cover-volumes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="*", help="names in $SHOAL_DATA; all of them by default")
    parser.add_argument("--parts", type=int, nargs="*", default=[16, 64])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--effort", default="default")
    parser.add_argument("--base", type=Path, help="source tree of the hypergraph method to compare with")
    parser.add_argument("--limit", type=float, default=600, help="seconds for a case")
    parser.add_argument("--again", action="store_true", help="measure cases that the results hold too")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--case", action="store_true", help="measure one case in this process and print it")
    args = parser.parse_args()
    if args.case:
        print(json.dumps(run_case(args.graphs[0], args.parts[0], args.methods[0], args.effort)))
        return
    path = timing.RESULTS / f"{NAME}.json"
    results: list[dict] = json.loads(path.read_text())["results"] if path.exists() else []
    if not args.show:
        folder = Path(os.environ["SHOAL_DATA"])
        graphs = args.graphs or sorted(
            (one.stem for one in folder.glob("*.npz")), key=lambda name: shoal.load(name).num_entries
        )
        for graph in graphs:
            for parts in args.parts:
                measure(graph, parts, args, results)
    show(results)
    timing.print_environment()


def measure(graph: str, parts: int, args: argparse.Namespace, results: list[dict]) -> None:
    """All methods on one graph, into `results` and the file."""
    case = next((one for one in results if (one["graph"], one["parts"]) == (graph, parts)), None)
    if case is None:
        case = {"graph": graph, "parts": parts, "degree": mean_degree(graph), "methods": {}}
        results.append(case)
    for method in args.methods:
        if method in case["methods"] and not args.again:
            continue
        case["methods"][method] = run_apart(graph, parts, method, args)
        timing.save(NAME, results)
        print(graph, parts, method, case["methods"][method], flush=True)


def mean_degree(name: str) -> float:
    graph = shoal.load(name)
    return graph.num_entries / graph.num_nodes


def run_apart(graph: str, parts: int, method: str, args: argparse.Namespace) -> dict:
    command = [sys.executable, __file__, "--case", "--graphs", graph, "--parts", str(parts), "--methods"]
    command += ["hypergraph" if method == "base" else method, "--effort", args.effort]
    environment = dict(os.environ)
    if method == "base" and args.base:
        environment["PYTHONPATH"] = os.pathsep.join((str(args.base), str(Path(__file__).parent)))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=args.limit, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {args.limit:g} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    found: dict = json.loads(done.stdout.splitlines()[-1])
    return found


def run_case(name: str, parts: int, method: str, effort: str) -> dict:
    graph, digits = shoal.load(name), shoal.load("digits")
    options = {"effort": effort} if method == "cover" else {}
    for small in (digits, shoal.Graph(digits.indptr, digits.indices, directed=True)):
        shoal.partition_graph(small, 4, method, threads=1, **options)  # compiles
    began = sum(os.times()[:4])
    partition = shoal.partition_graph(graph, parts, method, threads=1, **options)
    seconds = sum(os.times()[:4]) - began  # those of processes that it started too
    quality, sent = partition.quality(relative=False), count_covers(graph, partition.assignment, parts)
    return {
        "rows": quality.total_volume,
        "cover": int(sent.sum()),
        "max_send": int(sent.sum(1).max()),
        "max_receive": int(sent.sum(0).max()),
        "max_send_rows": quality.max_send_volume,
        "weight_balance": quality.weight_balance,
        "cpu_seconds": seconds,
        "steps": partition.seconds,
        "load": round(os.getloadavg()[0], 1),
    }


def show(results: list[dict]) -> None:
    """A line for every case, medians, and the cases that lose."""
    done = [one for one in results if all("rows" in one["methods"].get(m, {}) for m in ("base", "cover"))]
    ratios, lost = [], []
    for case in done:
        base, ours = case["methods"]["base"], case["methods"]["cover"]
        ratio, slower = ours["cover"] / base["rows"], ours["cpu_seconds"] / base["cpu_seconds"]
        ratios.append(ratio)
        covers = "  ".join(
            f"{name} {found['cover']:,}" for name, found in case["methods"].items() if "cover" in found
        )
        print(
            f"{case['graph']}, {case['parts']}: {ratio:.3f} of {base['rows']:,} rows, time {slower:.2f} ×  {covers}"
        )
        others = [found["cover"] for found in case["methods"].values() if "cover" in found]
        if ratio > 1 or slower > 2 or ours["cover"] > min(others):
            lost.append(f"{case['graph']} {case['parts']}: {ratio:.3f}, time {slower:.2f} ×")
    dense = [ratio for ratio, case in zip(ratios, done) if case["degree"] > 10]
    if ratios:
        print(
            f"cover / rows of hypergraph, median of {len(ratios)}: {np.median(ratios):.3f}, largest {max(ratios):.3f}"
        )
    if dense:
        print(f"of {len(dense)} with more than 10 entries a row: {np.median(dense):.3f}")
    print("lost (more than the base's rows, twice its time, or another method's cover):", *lost, sep="\n  ")


if __name__ == "__main__":
    main()
