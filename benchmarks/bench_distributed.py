"""Full-graph training across ranks: on one machine, and across hosts joined by links of a stated rate.

    python benchmarks/bench_distributed.py                 one machine: 2 ranks × 1 thread beside 1 rank × 2 threads
    python benchmarks/bench_distributed.py hosts           4 namespaces at 100 Mbit/s and 1 Gbit/s (root, ip, tc)
    python benchmarks/bench_distributed.py --graph road-world-highways --hidden 64

GCN on a graph with made-up features and labels. Point-to-point exchange with hypergraph parts stands beside the broadcast
of CAGNET's 1D algorithm and beside random parts; communication beside its prediction by the α-β model.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from hosts import network_hosts, run_inside, why_not
from shoal.analysis.simulate import Machine, Prediction, predict_epoch
from shoal.partitioning.part import Part, split_graph

HERE = Path(__file__).resolve().parent
LIMIT = 900
RATES = ("100mbit", "1gbit")


def make_graph(name: str, num_features: int) -> shoal.Graph:
    """`grid:N`, N nodes in a square lattice, or a graph known by name; features and labels are made up."""
    if name.startswith("grid:"):
        side = round(int(name[5:]) ** 0.5)
        nodes = np.arange(side * side).reshape(side, side)
        across, down = (nodes[:, :-1].ravel(), nodes[:, 1:].ravel()), (nodes[:-1].ravel(), nodes[1:].ravel())
        ends = np.concatenate([across, down], axis=1)
        graph = shoal.Graph.from_edge_index(ends, side * side, directed=False, name=name)
    else:
        graph = shoal.load(name)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((graph.num_nodes, num_features), np.float32)
    y = rng.integers(0, 8, graph.num_nodes)
    made = shoal.Graph(graph.indptr, graph.indices, x=x, y=y, directed=graph.directed, name=graph.name)
    return made.with_split(seed=0)


def store(parts: list[Part], folder: Path) -> None:
    """One .npz for each rank, so that a rank's memory holds its part alone."""
    folder.mkdir()
    for part in parts:
        fields = {name: value for name, value in vars(part).items() if value is not None}
        arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
        plain = {name: value for name, value in fields.items() if name not in arrays}
        np.savez(folder / f"part-{part.rank}.npz", plain=np.array(json.dumps(plain)), **arrays)


def run_job(
    folder: Path, job: dict[str, Any], num_ranks: int, hosts: list[str] | None = None
) -> dict[str, Any]:
    """Train on so many ranks, here or each on its host; what rank 0 told."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    here = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
    there = {"MASTER_ADDR": "10.77.0.1", "GLOO_SOCKET_IFNAME": "eth0"}
    path = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
    common = {**os.environ, **(there if hosts else here), "MASTER_PORT": port, "WORLD_SIZE": str(num_ranks)}
    common |= {"PYTHONPATH": path, "SHOAL_TIMEOUT": "300", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    common.pop("SHOAL_THREADS", None)
    line = [sys.executable, str(HERE / "bench_rank.py"), str(folder), json.dumps(job)]
    started = []
    for rank in range(num_ranks):
        command = run_inside(hosts[rank], *line) if hosts else line
        started.append(
            subprocess.Popen(command, env={**common, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        )
    try:
        texts = [process.communicate(timeout=LIMIT)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    if any(process.returncode for process in started):
        raise SystemExit(f"ranks ended with {[process.returncode for process in started]}")
    answer: dict[str, Any] = json.loads(texts[0].splitlines()[-1])
    return answer


def bench_hosts(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """Every way of exchanging at every rate."""
    missing = why_not()
    if missing is not None:
        raise SystemExit(missing)
    graph = make_graph(args.graph, args.features)
    parts = {}
    for method in ("hypergraph", "random"):
        partition = shoal.partition_graph(graph, args.ranks, method, seed=0)
        parts[method] = split_graph(graph, partition.assignment, args.ranks)
        store(parts[method], folder / method)
    results = []
    ways = (("p2p", "hypergraph"), ("p2p", "random"), ("broadcast", "hypergraph"))
    print(f"{graph}, {args.model} {args.layers} × {args.hidden}, {args.ranks} ranks")
    for rate in args.rates:
        with network_hosts(args.ranks, rate) as hosts:
            for exchange, method in ways:
                job = {"parts": method, "exchange": exchange, "hidden": args.hidden, "layers": args.layers}
                job["model"] = args.model
                result = run_job(folder, job | {"epochs": args.epochs, "threads": 1}, args.ranks, hosts)
                result |= {"rate": rate, "exchange": exchange, "parts": method}
                said = predict(parts[method], result, args)
                result |= {"predicted": said.communication, "predicted_epoch": said.epoch}
                results.append(result)
                report_host(result)
        one, _, other = results[-3:]
        print(
            f"{rate}: broadcast takes {other['epoch'] / one['epoch']:.1f} × the epoch of p2p with hypergraph parts"
        )
    return results


def predict(parts: list[Part], result: dict[str, Any], args: argparse.Namespace) -> Prediction:
    """The epoch by the α-β model with what the ranks' probe measured after they had trained."""
    model = shoal.GNN(args.model, args.features, args.hidden, 8, num_layers=args.layers)
    return predict_epoch(parts, model, Machine(**result["machine"]), exchange=result["exchange"])


def report_host(result: dict[str, Any]) -> None:
    said, machine = result["predicted"], result["machine"]
    crowd = machine["crowd"]
    model = f", predicted {said * 1e3:.1f} ms ({said / result['communication']:.2f} ×)"
    print(
        f"{result['rate']:8} {result['exchange']:9} {result['parts']:10} epoch {result['epoch'] * 1e3:8.1f} ms, exposed "
        f"{result['slowest']['exposed'] * 1e3:8.1f} ms, communication alone {result['communication'] * 1e3:8.1f} ms{model}; "
        f"predicted epoch {result['predicted_epoch'] * 1e3:.1f} ms; {result['bytes'] / 1e6:.2f} MB in {result['messages']} messages; "
        f"pair {machine['latency'] * 1e6:.0f} µs, {machine['bandwidth'] / 1e6:.1f} MB/s; "
        f"all at once {crowd[0][1] * 1e6:.0f} µs, {crowd[-1][0] / crowd[-1][1] / 1e6:.1f} MB/s",
        flush=True,
    )


def bench_machine(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """2 ranks × 1 thread beside 1 rank × 2 threads, and what a rank's memory is beside its share."""
    graph = make_graph(args.graph, args.features)
    for count in (1, 2, 4):
        partition = shoal.partition_graph(graph, count, "hypergraph", seed=0)
        store(split_graph(graph, partition.assignment, count), folder / str(count))
    job = {"exchange": "p2p", "hidden": args.hidden, "layers": args.layers, "epochs": args.epochs}
    job["model"] = args.model
    print(f"{graph}, {args.model} {args.layers} × {args.hidden}")
    pairs = [  # interleaved
        [run_job(folder, job | {"parts": str(n), "threads": 2 // n}, n) for n in (1, 2)]
        for _ in range(args.rounds)
    ]
    one, two = (min(pair[i]["best"] for pair in pairs) for i in (0, 1))
    print(
        f"2 ranks × 1 thread over 1 rank × 2 threads: {two / one:.2f} × ({two * 1e3:.1f} and {one * 1e3:.1f} ms, best)"
    )
    for name, result in (("1 × 2", pairs[0][0]), ("2 × 1", pairs[0][1])):
        split = ", ".join(f"{kind} {seconds * 1e3:.1f}" for kind, seconds in result["slowest"].items())
        print(f"  {name}, slowest rank, medians in ms: {split}")
    four = run_job(folder, job | {"parts": "4", "threads": 1}, 4)
    report_memory(args, [pairs[0][0], pairs[0][1], four])
    return [pairs[0][0], pairs[0][1], four]


def report_memory(args: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    """Peak memory less that of a rank with next to nothing, over the share (rows and halo) of what one rank needs for all."""
    with tempfile.TemporaryDirectory() as place:
        tiny = make_graph("grid:400", args.features)
        store(split_graph(tiny, np.zeros(tiny.num_nodes, np.int32), 1), Path(place) / "1")
        job = {"exchange": "p2p", "hidden": args.hidden, "layers": args.layers, "epochs": args.epochs}
        floor = run_job(Path(place), job | {"parts": "1", "threads": 1}, 1)["memory"][0][0]
    alone = results[0]["memory"][0][0] - floor
    for result in results:
        memory = np.array(result["memory"])
        num_local, num_halo = memory[:, 3], memory[:, 2]
        allowed = alone * (num_local + num_halo) / memory[:, 3].sum()
        over = (memory[:, 0] - floor) / allowed
        result["memory_over_share"] = over.tolist()
        print(
            f"{len(memory)} ranks: peak {memory[:, 0].max() / 1e6:.0f} MB, {(memory[:, 0].max() - floor) / 1e6:.0f} MB above an empty rank; "
            f"at most {over.max():.2f} × its share (rows and halo) of what one rank needs for all"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=("machine", "hosts"), default="machine")
    parser.add_argument("--graph", default="grid:90000")
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--json", type=Path, help="File for the results.")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        results = (bench_hosts if args.what == "hosts" else bench_machine)(args, Path(place))
    if args.json is not None:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    print(f"torch {__import__('torch').__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
