"""Epochs of full-graph training on four hosts by every exchange, interleaved in one run (root, ip, tc).

    python benchmarks/bench_exchange.py                      acl-anthology and hetero-tolokers at 100 Mbit/s and 1 Gbit/s
    python benchmarks/bench_exchange.py cora --rates 1gbit   a graph by name or file, one rate
    python benchmarks/bench_exchange.py --here               no hosts: ranks on this machine, where messages are hidden
    python benchmarks/bench_exchange.py metis-mdual --here --ways "rows on cover's parts" covers       a mesh: little is gained
    python benchmarks/bench_exchange.py --ranks 1 2 3 4 6 8 --ways all --json FILE      predicted beside measured epochs, for every way of training
    python benchmarks/bench_exchange.py --here --memory --ranks 2 8 --ways all          predicted beside measured memory of ranks, each way in processes of its own

Rows on the parts of `hypergraph` stand beside covers, integer messages and stale halos on the parts of `cover`, and beside
CAGNET's broadcast. All ways are trained in turn by the same processes, a few epochs at a time; times are medians, CPU seconds those
of all ranks together, which other work on the machine hardly changes. At the end: how many epochs were predicted within 20 %.
`--ways all` adds boundary rates, batch norm, mini-batches that ranks share, and ranks with batches of their own.
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
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from bench_distributed import make_graph
from bench_rank import probe_machine
from hosts import network_hosts, run_inside, why_not
from shoal.analysis.batches import predict_replicas, predict_shared
from shoal.analysis.machine import Machine
from shoal.analysis.prediction import Prediction
from shoal.analysis.simulate import open_parts, predict_epoch
from shoal.distributed.exchange import EXCHANGES, ExchangeMethod
from shoal.distributed.launch import joined_ranks
from shoal.distributed.ledger import KINDS
from shoal.distributed.runtime import share_cores
from shoal.distributed.transport import Transport
from shoal.memory import anonymous_memory, base_memory
from shoal.partitioning.part import Part
from shoal.partitioning.stored import open_part, store_parts

HERE = Path(__file__).resolve().parent
GRAPHS = ("acl-anthology", "hetero-tolokers")
RATES = ("100mbit", "1gbit")
LIMIT = 1800
MADE_UP = 64  # features
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {  # name: (parts, exchange, settings)
    "rows": ("hypergraph", "p2p", {"cover": False}),
    "rows on cover's parts": ("cover", "p2p", {"cover": False}),
    "covers": ("cover", "p2p", {"cover": True}),
    "covers + int8": ("cover", "p2p", {"cover": True, "messages": "int8"}),
    "covers + stale": ("cover", "p2p", {"cover": True, "staleness": 1}),
    "covers + int8 + stale": ("cover", "p2p", {"cover": True, "messages": "int8", "staleness": 1}),
    "broadcast": ("hypergraph", "broadcast", {}),
}

MORE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "rows + int4": ("hypergraph", "p2p", {"cover": False, "messages": "int4"}),
    "rows + bfloat16": ("hypergraph", "p2p", {"cover": False, "messages": "bfloat16"}),
    "rows + batch norm": ("hypergraph", "p2p", {"cover": False}),
    "rate 0.1": ("hypergraph", "p2p", {"boundary_rate": 0.1}),
    "shared batches": ("hypergraph", "p2p", {}),
    "shared batches + int8": ("hypergraph", "p2p", {"messages": "int8"}),
    "own batches": ("hypergraph", "p2p", {}),
}
BATCHES = tuple(name for name in MORE if "batches" in name)
NORMED = ("rows + batch norm",)  # others have layer norm
WITHIN = 0.2  # of a measured epoch, by which one that was predicted may differ

SAID: dict[str, Callable[[Prediction], float]] = {
    "compute": lambda one: one.compute,
    "exposed": lambda one: sum(one.exposed),
    "reduce": lambda one: one.reduce,
    "sampling": lambda one: one.sampling,
    "communication": lambda one: one.communication,
}


def open_graph(name: str, folder: Path) -> shoal.Graph:
    """A graph of the folder or known by name; features and labels are made up where it has none."""
    path = folder / f"{name}.npz"
    source = str(path) if path.is_file() else name
    if name.startswith("grid:") or shoal.load(source).num_classes == 0:
        return make_graph(source, MADE_UP)
    graph = shoal.load(source)
    return graph if graph.has_split else graph.with_split(seed=0)


def make_trainer(transport: Transport, folder: Path, name: str, job: dict[str, Any]) -> shoal.Trainer:
    parts, exchange, settings = (WAYS | MORE)[name]
    part = open_part(folder / parts, transport.rank)
    model = make_model(job, name, part.num_features, part.num_classes)
    method = EXCHANGES[exchange](**settings)
    sampler, held = None, part
    if name in BATCHES:
        graph = open_graph(job["graph"], Path(job["data"]))
        sampler = make_sampler(graph)
        held = graph if name == "own batches" else part
    return shoal.Trainer(model, held, sampler, transport=transport, exchange=method, eval_every=10**6)


def make_sampler(graph: shoal.Graph) -> shoal.Sampler:
    return shoal.RandomWalkSampler(graph, roots=max(graph.num_nodes // 30, 1), depth=2)


def make_model(job: dict[str, Any], way: str, num_features: int, num_classes: int) -> shoal.GNN:
    settings = {"num_layers": job["layers"], "norm": "batch" if way in NORMED else "layer", "dropout": 0.0}
    return shoal.GNN(job["model"], num_features, job["hidden"], num_classes, **settings)


def run_rank(folder: Path, job: dict[str, Any]) -> None:
    """One rank: trains every way in turn; rank 0 prints what was measured."""
    with joined_ranks() as transport:
        share_cores(transport, 1)
        trainers = {name: make_trainer(transport, folder, name, job) for name in job["ways"]}
        records: dict[str, list[dict[str, Any]]] = {name: [] for name in trainers}
        cpu: dict[str, list[float]] = {name: [] for name in trainers}
        machines = []
        for turn in range(job["rounds"]):
            for name, trainer in trainers.items():
                started = time.process_time()
                found = trainer.fit((turn + 1) * job["epochs"])
                spent = (time.process_time() - started) / job["epochs"]
                if turn:  # the first one compiles and settles
                    records[name] += found[1:]
                    cpu[name].append(float(transport.gather(np.array([spent])).sum()))
            machines.append(asdict(probe_machine(transport)))
        if transport.rank == 0:
            print(json.dumps({"records": records, "cpu": cpu, "machines": machines}), flush=True)
        transport.barrier()


def run_memory(folder: Path, job: dict[str, Any]) -> None:
    """One rank that trains one way for two epochs; rank 0 prints every rank's anonymous memory, before data and at its peak."""
    with joined_ranks() as transport:
        share_cores(transport, 1)
        before = base_memory()
        trainer = make_trainer(transport, folder, job["ways"][0], job)
        trainer.fit(2)
        told = trainer.share.describe_ranks()
        peak = told[transport.rank]["peak"] if told else anonymous_memory()
        found = transport.gather(np.array([before, peak]))
        if transport.rank == 0:
            print(json.dumps({"before": found[:, 0].tolist(), "peak": found[:, 1].tolist()}), flush=True)
        transport.barrier()


def compare_memory(folder: Path, graph: shoal.Graph, job: dict[str, Any], name: str) -> dict[str, Any]:
    """Measured and predicted bytes of every rank of a way."""
    answer = run_hosts(folder, job | {"ways": [name]}, None)
    model = make_model(job, name, graph.num_features, graph.num_classes)
    parts, exchange, settings = (WAYS | MORE)[name]
    method, cut = EXCHANGES[exchange](**settings), open_parts(folder / parts)
    process = int(statistics.median(answer["before"]))
    said = predict(name, graph, cut, model, Machine(1, 1), method, process)
    row = {"graph": graph.name, "way": name, "ranks": job["ranks"], "process": process}
    row |= {"peak": answer["peak"], "predicted": said.memory}
    print(
        f"{job['ranks']} ranks, {name:22} largest rank {max(answer['peak']) / 1e6:7.1f} MB, "
        f"predicted {max(said.memory) / max(answer['peak']):.2f} of it",
        flush=True,
    )
    return row


def run_hosts(folder: Path, job: dict[str, Any], hosts: list[str] | None) -> dict[str, Any]:
    """All ranks, each on its host or all here; what rank 0 printed."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = str(door.getsockname()[1])
    where = ("10.77.0.1", "eth0") if hosts else ("127.0.0.1", "lo")
    common = {**os.environ, "MASTER_ADDR": where[0], "GLOO_SOCKET_IFNAME": where[1], "MASTER_PORT": port}
    common |= {"WORLD_SIZE": str(job["ranks"]), "SHOAL_TIMEOUT": "300", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    common["PYTHONPATH"] = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
    common.pop("SHOAL_THREADS", None)
    line = [sys.executable, str(Path(__file__).resolve()), "--rank", str(folder), json.dumps(job)]
    started = []
    for rank in range(job["ranks"]):
        command = run_inside(hosts[rank], *line) if hosts else line
        environment = {**common, "RANK": str(rank)}
        started.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
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


def summarize(
    folder: Path, graph: shoal.Graph, job: dict[str, Any], answer: dict[str, Any]
) -> list[dict[str, Any]]:
    """Medians of every way, and the epoch predicted for each machine that was probed meanwhile."""
    rows, kinds = [], ("compute", *KINDS)
    for name, records in answer["records"].items():
        parts, exchange, settings = (WAYS | MORE)[name]
        method, cut = EXCHANGES[exchange](**settings), open_parts(folder / parts)
        model = make_model(job, name, graph.num_features, graph.num_classes)
        said = [predict(name, graph, cut, model, _read(one), method) for one in answer["machines"]]
        rows.append(
            {
                "graph": graph.name,
                "way": name,
                "epoch": statistics.median(one["seconds"] for one in records),
                "best": min(one["seconds"] for one in records),
                "cpu": statistics.median(answer["cpu"][name]),
                "ranks": job["ranks"],
                "bytes": records[-1].get("bytes", 0),
                "slowest": {
                    kind: statistics.median(one.get("slowest", {}).get(kind, 0.0) for one in records)
                    for kind in kinds
                },
                "predicted": statistics.median(one.epoch for one in said),
                "said": {name: statistics.median(find(one) for one in said) for name, find in SAID.items()},
                "predicted_bytes": said[0].num_bytes,
                "machine": answer["machines"][-1],
            }
        )
    return rows


def predict(
    name: str,
    graph: shoal.Graph,
    parts: list[Part],
    model: shoal.GNN,
    machine: Machine,
    method: ExchangeMethod,
    process: int = 0,
) -> Prediction:
    given: dict[str, Any] = {"sparse_features": not isinstance(parts[0].x, np.ndarray), "process": process}
    if name == "own batches":
        return predict_replicas(make_sampler(graph), model, machine, len(parts), **given)
    if name in BATCHES:
        return predict_shared(parts, make_sampler(graph), model, machine, exchange=method, **given)
    return predict_epoch(parts, model, machine, exchange=method, process=process)


def _read(machine: dict[str, Any]) -> Machine:
    pairs = {name: tuple(map(tuple, machine[name])) for name in ("crowd", "sparse_rates", "sums")}
    return Machine(**machine | pairs)


def report(rate: str, rows: list[dict[str, Any]]) -> None:
    base = rows[0]["epoch"]
    for row in rows:
        print(
            f"{rate:8} {row['ranks']} ranks, {row['way']:22} epoch {row['epoch'] * 1e3:8.1f} ms, {base / row['epoch']:5.2f} × as fast as rows; "
            f"exposed {row['slowest']['exposed'] / row['epoch']:4.0%}; {row['bytes'] / 1e6:8.2f} MB; {row['cpu']:.3f} CPU s; "
            f"predicted {row['predicted'] / row['epoch']:.2f} of it"
            + (
                ""
                if row["bytes"] == row["predicted_bytes"] or row["way"] in MORE
                else f"; PREDICTED {row['predicted_bytes']:,} BYTES"
            ),
            flush=True,
        )


def keep(rows: list[dict[str, Any]], path: Path | None) -> None:
    if path is not None:
        kept = json.loads(path.read_text()) if path.is_file() else []
        path.write_text(json.dumps(kept + rows, indent=1) + "\n")


def main() -> None:
    if sys.argv[1:2] == ["--rank"]:
        job = json.loads(sys.argv[3])
        (run_memory if job["memory"] else run_rank)(Path(sys.argv[2]), job)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=GRAPHS)
    parser.add_argument(
        "--data", type=Path, default=HERE.parent.parent / "shared" / "data", help="Folder of graphs."
    )
    parser.add_argument("--rates", nargs="+", default=RATES)
    parser.add_argument("--here", action="store_true", help="Ranks on this machine, without hosts.")
    parser.add_argument("--memory", action="store_true", help="Compare memory instead of epochs.")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), help="Some of them, or `all`.")
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[4])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3, help="Epochs of a way in a row.")
    parser.add_argument("--parts", type=Path, help="Folder that parts stay in for other runs.")
    parser.add_argument("--json", type=Path, help="File to add the results to.")
    args = parser.parse_args()
    missing = None if args.here else why_not()
    if missing is not None:
        raise SystemExit(missing)
    if args.ways == ["all"]:
        args.ways = [*WAYS, *MORE]
    found: list[dict[str, Any]] = []
    for name, ranks in product(args.graphs, args.ranks):
        graph = open_graph(name, args.data)
        job = {key: getattr(args, key) for key in ("model", "hidden", "layers", "rounds", "epochs", "ways")}
        job |= {"ranks": ranks, "graph": name, "data": str(args.data), "memory": args.memory}
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) if args.parts is None else args.parts / f"{name}-{ranks}"
            for method in {(WAYS | MORE)[way][0] for way in args.ways}:
                if not (folder / method).exists():
                    partition = shoal.partition_graph(graph, ranks, method if ranks > 1 else "random", seed=0)
                    store_parts(graph, partition, folder / method)
            print(f"{graph}, {args.model} {args.layers} × {args.hidden}, {ranks} ranks", flush=True)
            if args.memory:
                keep([compare_memory(folder, graph, job, way) for way in args.ways], args.json)
                continue
            for rate in ["none"] if args.here else args.rates:
                hosts = nullcontext(None) if args.here else network_hosts(ranks, rate)
                with hosts as names:
                    answer = run_hosts(folder, job, names)
                rows = [row | {"rate": rate} for row in summarize(folder, graph, job, answer)]
                report(rate, rows)
                found += rows
                keep(rows, args.json)
    if args.memory:
        return
    off = [abs(row["predicted"] / row["epoch"] - 1) for row in found]
    near = sum(one <= WITHIN for one in off)
    print(f"{near} of {len(off)} epochs predicted within {WITHIN:.0%}; the worst is off by {max(off):.0%}")
    print(f"torch {__import__('torch').__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
