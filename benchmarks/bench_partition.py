"""Partitioning, measured: volume, messages, time and peak memory of every method, relative to random.

    python benchmarks/bench_partition.py volumes --parts 16 64 512      # every graph in $SHOAL_DATA
    python benchmarks/bench_partition.py batches --graphs soc-Slashdot0902 wordnet30 --parts 16 64

`volumes` is the table of VLDB'22 (its table 2): the mean of five random partitions is 1. Every case runs in a process of
its own, so that its peak memory is its own, and is given up after `--limit` seconds, which is then what is reported.
`epochs` sets partitioning time beside that of a training epoch. `batches` sets the stochastic method beside the hypergraph method on 1,000 mini-batches that neither has seen.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import shoal
import timing
from shoal.partitioning.batch_nets import mean_batch_volume
from shoal.partitioning.methods.random import partition_at_random
from shoal.partitioning.quality import measure_quality

METHODS = ("block", "streaming", "metis", "metis-volume", "hypergraph")
FIGURES = (
    *("total_volume", "max_send_volume", "max_receive_volume"),
    *("messages", "max_messages_sent", "weight_balance"),
)
SEEDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("section", choices=("volumes", "batches", "epochs", "case"))
    parser.add_argument("--graphs", nargs="*", help="names in $SHOAL_DATA; all of them by default")
    parser.add_argument("--parts", type=int, nargs="*", default=[16, 64, 512])
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--limit", type=float, default=300, help="seconds for a case")
    parser.add_argument("--share", type=float, default=0.06, help="share of the nodes in a mini-batch")
    parser.add_argument("--sampler", choices=("node", "random-walk"), default="node")
    parser.add_argument("--name", help="name of the results")
    parser.add_argument("--add", action="store_true", help="keep what the results hold of other cases")
    args = parser.parse_args()
    if args.section == "case":
        print(json.dumps(run_case(args.graphs[0], args.parts[0], args.methods[0])))
        return
    graphs = args.graphs or sorted(path.stem for path in Path(os.environ["SHOAL_DATA"]).glob("*.npz"))
    name = args.name or f"partition-{args.section}"
    results: list[dict] = read_results(name) if args.add else []
    for graph in graphs:
        for parts in args.parts:
            if args.section == "volumes":
                measure_case(graph, parts, args, results)
            else:
                compare = compare_on_batches if args.section == "batches" else compare_with_epoch
                results.append(compare(graph, parts, args))
            timing.save(name, results)
    timing.print_environment()


def read_results(name: str) -> list[dict]:
    path = timing.RESULTS / f"{name}.json"
    results: list[dict] = json.loads(path.read_text())["results"] if path.exists() else []
    return results


def measure_case(graph: str, parts: int, args: argparse.Namespace, results: list[dict]) -> None:
    """Run the methods on one graph; what `results` holds of others for it stays."""
    known = [one for one in results if (one["graph"], one["parts"]) == (graph, parts)]
    if not known:
        known = [
            {
                "graph": graph,
                "parts": parts,
                "random": measure_random(shoal.load(graph), parts),
                "methods": {},
            }
        ]
        results.extend(known)
    case = known[0]
    for method in args.methods:
        case["methods"][method] = run_apart(graph, parts, method, args.limit)
    show(case)


def measure_random(graph: shoal.Graph, parts: int) -> dict:
    """Mean of five random partitions with equally many nodes each."""
    found = [
        measure_quality(graph, partition_at_random(graph.num_nodes, parts, seed), parts)
        for seed in range(SEEDS)
    ]
    return {figure: float(np.mean([getattr(one, figure) for one in found])) for figure in FIGURES}


def run_apart(name: str, parts: int, method: str, limit: float) -> dict:
    command = [sys.executable, __file__, "case", "--graphs", name, "--parts", str(parts), "--methods", method]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"not done in {limit:g} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    found: dict = json.loads(done.stdout.splitlines()[-1])
    return found


def run_case(name: str, parts: int, method: str) -> dict:
    graph = shoal.load(name)
    compile_kernels(method)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    cpu = time.process_time()
    partition = shoal.partition_graph(graph, parts, method)
    found: dict = {
        "load": round(os.getloadavg()[0], 1),
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "steps": partition.seconds,
        "more_memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
        "notices": partition.notices,
    }
    began = time.perf_counter()
    quality = partition.quality(relative=False)
    found["quality_seconds"] = time.perf_counter() - began
    return found | {figure: getattr(quality, figure) for figure in FIGURES}


def compile_kernels(method: str) -> None:
    """Run the method once on a small graph of each kind, so that compiling is not measured."""
    digits = shoal.load("digits")
    directed = shoal.Graph(digits.indptr, digits.indices, directed=True)
    for graph in (digits, directed):
        shoal.partition_graph(graph, 4, method)


def show(result: dict) -> None:
    print(f"\n{result['graph']}, {result['parts']} parts (relative to random)")
    heads = ("total", "send max", "recv max", "messages", "msg max", "balance")
    print(f"  {'':<14}" + "".join(f"{head:>10}" for head in heads) + f"{'seconds':>10}{'+MB':>8}")
    for method, found in result["methods"].items():
        if "failed" in found:
            print(f"  {method:<14} {found['failed']}")
            continue
        ratios = [found[figure] / max(result["random"][figure], 1e-9) for figure in FIGURES[:-1]]
        line = (
            "".join(f"{ratio:10.3f}" for ratio in ratios)
            + f"{found.get('weight_balance', float('nan')):10.3f}"
        )
        print(f"  {method:<14}{line}{found['seconds']:10.1f}{found['more_memory_mb']:8.0f}", flush=True)
    ours = result["methods"].get("hypergraph", {})
    for name in ("metis", "metis-volume"):
        other = result["methods"].get(name, {})
        if "total_volume" in other and "total_volume" in ours:
            pairs = [f"{figure} {ours[figure] / max(other[figure], 1e-9):.3f}" for figure in FIGURES[:4]]
            print(f"  hypergraph / {name}: {', '.join(pairs)}", flush=True)


def compare_with_epoch(name: str, parts: int, args: argparse.Namespace) -> dict:
    """Partitioning time over that of a full-batch epoch: two SAGE layers of 128, one process, the median of five."""
    graph = shoal.load(name)
    graph = graph if graph.has_split else graph.with_split(seed=0)
    model = shoal.GNN("sage", graph.num_features, 128, graph.num_classes, num_layers=2, seed=0)
    trainer = shoal.Trainer(model, graph, shoal.FullSampler(graph), lr=0.01)
    times = []
    trainer.fit(epochs=1)
    for epoch in range(2, 7):
        began = time.perf_counter()
        trainer.fit(epochs=epoch)
        times.append(time.perf_counter() - began)
    result: dict = {"graph": name, "parts": parts, "epoch_seconds": float(np.median(times))}
    for method in ("streaming", "metis", "hypergraph"):
        found = run_apart(name, parts, method, args.limit)
        result[method] = found.get("seconds", float("nan")) / result["epoch_seconds"]
    print(
        f"{name}, {parts} parts: an epoch {result['epoch_seconds'] * 1e3:.0f} ms; partitioning in epochs:",
        end=" ",
    )
    print(
        ", ".join(f"{method} {result[method]:.1f}" for method in ("streaming", "metis", "hypergraph")),
        flush=True,
    )
    return result


def make_batches(graph: shoal.Graph, args: argparse.Namespace, seed: int) -> shoal.Sampler:
    nodes = max(3, int(args.share * graph.num_nodes))
    if args.sampler == "node":
        return shoal.NodeSampler(graph, budget=nodes, seed=seed)
    return shoal.RandomWalkSampler(graph, roots=nodes // 3, depth=2, seed=seed)


def compare_on_batches(
    name: str, parts: int, args: argparse.Namespace, made: dict[str, shoal.Partition] | None = None
) -> dict:
    """Mean rows sent in 1,000 batches of a sampler whose seed no method has seen; `made` receives the partitions."""
    graph = shoal.load(name)
    unseen = make_batches(graph, args, seed=1)
    nodes = float(np.mean([len(unseen.draw_nodes(k)) for k in range(20)]))
    result: dict = {"graph": graph.name, "parts": parts, "sampler": args.sampler, "batch_nodes": nodes}
    for method in ("random", "metis", "hypergraph", "stochastic"):
        options = {"sampler": make_batches(graph, args, seed=0)} if method == "stochastic" else {}
        began = time.perf_counter()
        partition = shoal.partition_graph(graph, parts, method, **options)
        result[f"{method}_seconds"] = time.perf_counter() - began
        result[method] = mean_batch_volume(unseen, partition.assignment, 0, 1000)
        if made is not None:
            made[method] = partition
    result["stochastic_over_hypergraph"] = result["stochastic"] / max(result["hypergraph"], 1e-9)
    print(
        f"{graph.name}, {parts} parts, {args.sampler} batches of {nodes:,.0f}: stochastic / hypergraph {result['stochastic_over_hypergraph']:.3f}  "
        + "  ".join(f"{m} {result[m]:,.0f}" for m in ("random", "metis", "hypergraph", "stochastic")),
        flush=True,
    )
    return result


if __name__ == "__main__":
    main()
