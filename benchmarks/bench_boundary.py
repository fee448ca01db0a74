"""Boundary sampling: scores, traffic and time at boundary rates from 1 to 0 (BNS-GCN's tables 4, 7 and 9, figures 4, 5 and 8).

    python benchmarks/bench_boundary.py scores --graph pubmed --parts 2 4 8        METIS parts, five seeds
    python benchmarks/bench_boundary.py scores --graph pubmed --parts 4 --method random
    python benchmarks/bench_boundary.py edges --graph pubmed --parts 4             DropEdge and boundary edges beside nodes
    python benchmarks/bench_boundary.py memory --graph pubmed --parts 8 --seeds 1   a process for every rate
    python benchmarks/bench_boundary.py batches --graph pubmed --parts 4           traffic of shared mini-batches, four partitions
    python benchmarks/bench_boundary.py hosts                                      4 namespaces at 100 Mbit/s and 1 Gbit/s
    python benchmarks/bench_boundary.py table                                      what was measured, as a table

Real ranks of one thread each. The settings of a graph are those of SETTINGS, at which training on one machine has settled; the
epoch with the best validation score is the one tested. Results are added to benchmarks/results/boundary-*.jsonl.
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

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
RATES = (1.0, 0.1, 0.01, 0.0)
LIMIT = 3 * 3600
_SAGE = {"model": "sage", "hidden": 64, "num_layers": 3, "dropout": 0.3}
_GCN = {"model": "gcn", "hidden": 64, "num_layers": 2, "norm": "none", "dropout": 0.8, "input_dropout": 0.8}
_SHORT = {"model": "sage", "hidden": 64, "num_layers": 2, "dropout": 0.1}
_SCALED = {"standardize": True}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {  # importer, model, training
    "amazon-computers": ({}, _SAGE, {}),
    "coauthor-physics": ({}, _SHORT | {"dropout": 0.5}, {"lr": 0.01, "epochs": 30}),
    "hetero-tolokers": (
        {},
        _SAGE | {"residual": True, "dropout": 0.2},
        {"lr": 0.01, "schedule": "cosine", "epochs": 300, "eval_every": 15},
    ),
    "pubmed": ({}, _GCN, {"lr": 0.01, "weight_decay": 0.0005, "epochs": 200}),
    "ppi": (_SCALED, _SHORT | {"hidden": 128}, {"lr": 0.01, "epochs": 60}),
    "ppi-large": (_SCALED, _SHORT, {"lr": 0.01, "epochs": 40}),
    "wordnet30": ({}, _SHORT, {"lr": 0.02, "epochs": 40}),
    "acl-anthology": (_SCALED, _SHORT, {"lr": 0.01, "epochs": 25}),
}
HOSTS = {"hidden": 64, "layers": 3, "epochs": 60, "features": 64}
_VARIES = {"rate", "way", "seed", "val", "test", "bytes", "seconds", "sampling", "ranks"}
_TRAINING = {"lr": 0.003, "epochs": 150, "eval_every": 5}


def run_scores(args: argparse.Namespace) -> None:
    importer, model, training = SETTINGS.get(args.graph, ({}, _SAGE, {}))
    graph = shoal.load(args.graph, **importer)
    graph = graph if graph.has_split else graph.with_split(seed=0)
    training = _TRAINING | training | ({"metric": "roc_auc"} if graph.num_classes == 2 else {})
    model = model | json.loads(args.model)
    training |= json.loads(args.training)
    ways = [(rate, "nodes") for rate in args.rates]
    if args.what == "edges":
        ways = [(1.0, "nodes"), (0.1, "nodes"), (0.1, "edges"), (0.1, "dropedge")]
    common = {"model": model, "training": training, "is_alone": args.what == "memory"}
    jobs = [common | make_job(p, way, seed) for seed in range(args.seeds) for p, way in ways]
    for parts in args.parts:
        with tempfile.TemporaryDirectory() as place:
            store_parts(
                graph, shoal.partition_graph(graph, parts, args.method, seed=0), Path(place) / "parts"
            )
            for group in [[job] for job in jobs] if args.what == "memory" else [jobs]:
                start_ranks(parts, Path(place) / "parts", group, Path(place) / "out")
            lines = [json.loads(line) for line in (Path(place) / "out").read_text().splitlines()]
        told = {"graph": args.graph, "parts": parts, "method": args.method}
        told |= {"model": model, "training": training}
        with open(RESULTS / f"boundary-{args.what}.jsonl", "a") as file:
            for line in lines:
                file.write(json.dumps(told | line) + "\n")
        report(told, lines)


def make_job(rate: float, way: str, seed: int) -> dict[str, Any]:
    """What boundary_rank.py trains with and tells of it."""
    exchange = {"boundary_rate": rate, "boundary_sampling": way}
    return {"told": {"rate": rate, "way": way}, "exchange": exchange, "seed": seed}


def start_ranks(
    num_ranks: int, folder: Path, jobs: list[dict[str, Any]], out: Path, script: str = "boundary_rank.py"
) -> None:
    """Run a rank's `script` with `folder`, `jobs` and `out` in so many processes."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    common = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(num_ranks)}
    common |= {
        "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(HERE)]),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    line = [sys.executable, str(HERE / script), str(folder), json.dumps(jobs), str(out)]
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
    """One row for each rate and way: test score, how far it is from the whole boundary's with the same seed, traffic, seconds, memory."""
    print(f"{told['graph']}, {told['parts']} {told['method']} parts")
    whole = {line["seed"]: line["test"] for line in lines if line["rate"] == 1.0}
    for rate, way in dict.fromkeys((line["rate"], line["way"]) for line in lines):
        chosen = [line for line in lines if (line["rate"], line["way"]) == (rate, way)]
        scores = [100 * line["test"] for line in chosen]
        apart = [100 * (line["test"] - whole[line["seed"]]) for line in chosen if line["seed"] in whole]
        beside = ""
        if rate < 1 and len(apart) > 1:
            error = statistics.stdev(apart) / len(apart) ** 0.5
            beside = f" ({statistics.mean(apart):+.2f}, standard error {error:.2f})"
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
            f"  p = {rate:<4} {way:8} test {statistics.mean(scores):6.2f} ± {spread:.2f}{beside}, "
            f"{middle['bytes'] / 1e6:8.3f} MB and {middle['seconds']:.3f} s an epoch, {100 * middle['sampling'] / middle['seconds']:.1f} % sampling{memory}",
            flush=True,
        )


def run_batches(args: argparse.Namespace) -> None:
    """Bytes an epoch of mini-batches that all ranks share sends with parts made for the graph and for its batches."""
    importer, model, training = SETTINGS.get(args.graph, ({}, _SAGE, {}))
    graph = shoal.load(args.graph, **importer)
    graph = graph if graph.has_split else graph.with_split(seed=0)
    training = _TRAINING | training | {"epochs": 4, "eval_every": 10}
    sampler = {"name": "node", "options": {"budget": int(args.share * graph.num_nodes)}}
    for parts in args.parts:
        for method in ("random", "metis", "hypergraph", "stochastic"):
            seen = {"sampler": shoal.NodeSampler(graph, seed=1, **sampler["options"])}
            options = seen if method == "stochastic" else {}
            partition = shoal.partition_graph(graph, parts, method, seed=0, **options)
            job = {"model": model, "training": training} | make_job(1.0, "nodes", 0)
            job |= {"is_alone": False, "source": {"graph": args.graph, "importer": importer}}
            job["source"] |= {"sampler": sampler}
            with tempfile.TemporaryDirectory() as place:
                store_parts(graph, partition, Path(place) / "parts")
                start_ranks(parts, Path(place) / "parts", [job], Path(place) / "out")
                line = json.loads((Path(place) / "out").read_text())
            told = {"graph": args.graph, "parts": parts, "method": method, "sampler": sampler}
            told |= {name: line[name] for name in ("bytes", "seconds")}
            with open(RESULTS / "boundary-batches.jsonl", "a") as file:
                file.write(json.dumps(told) + "\n")
            print(f"{args.graph}, {parts} {method} parts: {line['bytes'] / 1e6:.3f} MB an epoch", flush=True)


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
        groups: dict[str, list[dict[str, Any]]] = {}
        for line in lines:
            settings = {name: value for name, value in line.items() if name not in _VARIES}
            groups.setdefault(json.dumps(settings), []).append(line)
        for group in groups.values():
            report(group[0], group)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("scores", "edges", "memory", "batches", "hosts", "table"))
    parser.add_argument("--graph", default="grid:20000")
    parser.add_argument("--parts", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--method", default="metis")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--model", default="{}", help="settings instead of the graph's own, as JSON")
    parser.add_argument("--training", default="{}", help="the same of the trainer")
    parser.add_argument("--share", type=float, default=0.06, help="of the nodes, in a mini-batch")
    for name, default in HOSTS.items():
        parser.add_argument(f"--{name}", type=int, help=f"for hosts only, {default} by default")
    parser.add_argument("--speeds", nargs="+", default=("100mbit", "1gbit"))
    args = parser.parse_args()
    for name, default in HOSTS.items():
        if args.what != "hosts" and getattr(args, name) is not None:
            parser.error(
                f"--{name} is for hosts: give --model or --training, such as --model '{{\"hidden\": 256}}'"
            )
        setattr(args, name, getattr(args, name) or default)
    if args.what == "table":
        show_tables()
    else:
        {"hosts": run_hosts, "batches": run_batches}.get(args.what, run_scores)(args)


if __name__ == "__main__":
    main()
