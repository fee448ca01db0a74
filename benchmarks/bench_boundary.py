"""Boundary sampling: scores, traffic and time at boundary rates from 1 to 0 (BNS-GCN's tables 4, 7 and 9, figures 4, 5 and 8).

    python benchmarks/bench_boundary.py scores --graph pubmed --parts 2 4 8        METIS parts, five seeds
    python benchmarks/bench_boundary.py scores --graph pubmed --parts 4 --method random
    python benchmarks/bench_boundary.py edges --graph pubmed --parts 4             DropEdge and boundary edges beside nodes
    python benchmarks/bench_boundary.py memory --graph pubmed --parts 8 --seeds 1   a process for every rate
    python benchmarks/bench_boundary.py hosts                                      4 namespaces at 100 Mbit/s and 1 Gbit/s
    python benchmarks/bench_boundary.py table                                      what was measured, as a table

Real ranks of one thread each. SAGE with the same settings on every graph; the epoch with the best validation score is the one
tested. Results are added to benchmarks/results/boundary-*.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import shoal
from bench_distributed import make_graph, run_job, store
from hosts import network_hosts, why_not
from shoal.partitioning.part import split_graph
from shoal.partitioning.stored import store_parts
from shoal.training.run import with_split

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
RATES = (1.0, 0.1, 0.01, 0.0)
_SETTINGS = ("graph", "parts", "method", "hidden", "layers", "dropout", "lr", "epochs", "eval_every")
LIMIT = 3 * 3600


def run_scores(args: argparse.Namespace) -> None:
    graph = with_split(shoal.load(args.graph, **json.loads(args.options)))
    metric = "roc_auc" if graph.num_classes == 2 else None
    ways = [(rate, "nodes") for rate in args.rates]
    if args.what == "edges":
        ways = [(1.0, "nodes"), (0.1, "nodes"), (0.1, "edges"), (0.1, "dropedge")]
    common = {"hidden": args.hidden, "layers": args.layers, "dropout": args.dropout, "lr": args.lr}
    common |= {"epochs": args.epochs, "eval_every": args.eval_every, "metric": metric}
    common["is_alone"] = args.what == "memory"
    jobs = [common | {"rate": p, "way": way, "seed": seed} for seed in range(args.seeds) for p, way in ways]
    for parts in args.parts:
        with tempfile.TemporaryDirectory() as place:
            store_parts(
                graph, shoal.partition_graph(graph, parts, args.method, seed=0), Path(place) / "parts"
            )
            for group in [[job] for job in jobs] if args.what == "memory" else [jobs]:
                start_ranks(parts, Path(place) / "parts", group, Path(place) / "out")
            lines = [json.loads(line) for line in (Path(place) / "out").read_text().splitlines()]
        told = {"graph": args.graph, "parts": parts, "method": args.method, **common}
        with open(RESULTS / f"boundary-{args.what}.jsonl", "a") as file:
            for line in lines:
                file.write(json.dumps(told | line) + "\n")
        report(told, lines)


def start_ranks(num_ranks: int, folder: Path, jobs: list[dict[str, Any]], out: Path) -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(num_ranks)}
    common |= {
        "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)]),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    line = [sys.executable, str(HERE / "boundary_rank.py"), str(folder), json.dumps(jobs), str(out)]
    started = [
        subprocess.Popen(line, env={**common, "RANK": str(rank), "SHOAL_TIMEOUT": "900"})
        for rank in range(num_ranks)
    ]
    try:
        codes = [process.wait(LIMIT) for process in started]
    finally:
        for process in started:
            process.kill()
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")


def report(told: dict[str, Any], lines: list[dict[str, Any]]) -> None:
    """One row for each rate and way: mean and deviation of the test score, traffic, seconds and memory."""
    print(f"{told['graph']}, {told['parts']} {told['method']} parts")
    whole = statistics.mean([line["test"] for line in lines if line["rate"] == 1.0] or [float("nan")])
    for rate, way in dict.fromkeys((line["rate"], line["way"]) for line in lines):
        chosen = [line for line in lines if (line["rate"], line["way"]) == (rate, way)]
        scores = [line["test"] for line in chosen]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        middle = {
            name: statistics.median(line[name] for line in chosen)
            for name in ("bytes", "seconds", "sampling")
        }
        memory = ""
        if "ranks" in chosen[0]:
            growth, model = (
                [rank[name] / 1e6 for rank in chosen[0]["ranks"]] for name in ("growth", "model")
            )
            memory = f"; memory {min(growth):.0f} to {max(growth):.0f} MB a rank, the model's {min(model):.0f} to {max(model):.0f}"
        print(
            f"  p = {rate:<4} {way:8} test {100 * statistics.mean(scores):6.2f} ± {100 * spread:.2f} ({100 * (statistics.mean(scores) - whole):+.2f}), "
            f"{middle['bytes'] / 1e6:8.3f} MB and {middle['seconds']:.3f} s an epoch, {100 * middle['sampling'] / middle['seconds']:.1f} % sampling{memory}",
            flush=True,
        )


def run_hosts(args: argparse.Namespace) -> None:
    """Epoch time and where it goes, across hosts joined by slow links."""
    if (missing := why_not()) is not None:
        raise SystemExit(missing)
    graph = make_graph(args.graph, args.features)
    with tempfile.TemporaryDirectory() as place:
        assignment = shoal.partition_graph(graph, 4, args.method, seed=0).assignment
        store(split_graph(graph, assignment, 4), Path(place) / "parts")
        print(f"{graph}, GCN {args.layers} × {args.hidden}, 4 ranks, {args.method} parts")
        for speed in args.speeds:
            with network_hosts(4, speed) as hosts:
                whole = None
                for rate in (1.0, 0.1, 0.01):
                    job = {"parts": "parts", "exchange": "p2p", "hidden": args.hidden, "layers": args.layers}
                    job |= {"epochs": args.epochs, "threads": 1, "boundary_rate": rate, "rounds": 1}
                    result = run_job(Path(place), job, 4, hosts)
                    whole = whole or result["epoch"]
                    line = {"graph": args.graph, "method": args.method, "speed": speed, "rate": rate}
                    line |= {name: result[name] for name in ("epoch", "bytes", "messages", "slowest", "mean")}
                    with open(RESULTS / "boundary-hosts.jsonl", "a") as file:
                        file.write(json.dumps(line) + "\n")
                    report_host(line, whole)


def report_host(line: dict[str, Any], whole: float) -> None:
    epoch, spent = line["epoch"], line["mean"]
    shares = ", ".join(f"{name} {100 * seconds / epoch:.0f} %" for name, seconds in spent.items())
    print(
        f"{line['speed']:8} p = {line['rate']:<4} epoch {epoch * 1e3:8.1f} ms ({whole / epoch:.2f} ×), "
        f"{line['bytes'] / 1e6:.3f} MB; {shares}",
        flush=True,
    )


def show_tables() -> None:
    for what in ("scores", "edges", "memory"):
        path = RESULTS / f"boundary-{what}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for line in lines:
            settings = {name: value for name, value in line.items() if name in _SETTINGS}
            groups.setdefault(tuple(settings.values()), []).append(line)
        for group in groups.values():
            report(group[0], group)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("scores", "edges", "memory", "hosts", "table"))
    parser.add_argument("--graph", default="grid:20000")
    parser.add_argument("--options", default="{}", help="The importer's, as JSON.")
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--method", default="metis")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--eval-every", type=int, default=3)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--speeds", nargs="+", default=("100mbit", "1gbit"))
    args = parser.parse_args()
    if args.what == "table":
        show_tables()
    else:
        (run_hosts if args.what == "hosts" else run_scores)(args)


if __name__ == "__main__":
    main()
