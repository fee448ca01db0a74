"""Efforts of the method `hypergraph` beside what each of its starts gives alone: METIS, and Mt-KaHyPar from nothing.

    nice python benchmarks/bench_effort.py --graphs cora pubmed --parts 16 64 512
    python benchmarks/bench_effort.py --show

Rows sent, the largest send and CPU seconds of every case, and what an effort said it would take; cases that the results
hold already are not run again. Mt-KaHyPar's preset DEFAULT differs from run to run and is no start of any effort; it
is here to compare with. Cases that would take longer than `--limit` CPU seconds, as estimated, are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time

import numpy as np

import shoal
import timing
from shoal.partitioning import costs
from shoal.partitioning.cycle import MtKaHyPar
from shoal.partitioning.methods import hypergraph
from shoal.partitioning.methods.metis import run_metis
from shoal.partitioning.methods.random import partition_at_random
from shoal.partitioning.nets import make_nets
from shoal.partitioning.quality import measure_quality
from shoal.partitioning.work import EFFORTS, Work, weigh_nodes

NAME = "partition-effort"
METIS = ("metis", "metis-volume")
PRESETS = ("DEFAULT", "DETERMINISTIC", "DETERMINISTIC_QUALITY")
KINDS = (*METIS, *PRESETS, *EFFORTS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="*", default=["cora"], help="names in $SHOAL_DATA")
    parser.add_argument("--parts", type=int, nargs="*", default=[16, 64, 512])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS))
    parser.add_argument("--limit", type=float, default=120, help="CPU seconds for a case, as estimated")
    parser.add_argument("--show", action="store_true", help="only print what the results hold")
    args = parser.parse_args()
    path = timing.RESULTS / f"{NAME}.json"
    results: list[dict] = json.loads(path.read_text())["results"] if path.exists() else []
    if args.show:
        for case in results:
            show(case)
        return
    warm_up()
    for graph in args.graphs:
        for parts in args.parts:
            measure(graph, parts, args, results)
    timing.print_environment()


def warm_up() -> None:
    """Compile the kernels, so that compiling is not measured."""
    digits = shoal.load("digits")
    for graph in (digits, shoal.Graph(digits.indptr, digits.indices, directed=True)):
        shoal.partition_graph(graph, 4, "hypergraph")


def measure(name: str, parts: int, args: argparse.Namespace, results: list[dict]) -> None:
    graph = shoal.load(name)
    known = [one for one in results if (one["graph"], one["parts"]) == (name, parts)]
    if not known:
        chance = measure_quality(graph, partition_at_random(graph.num_nodes, parts, 0), parts)
        random = {"rows": chance.total_volume, "send": chance.max_send_volume}
        known = [{"graph": name, "parts": parts, "random": random, "found": {}}]
        results.extend(known)
    case, nets = known[0], make_nets(graph)
    work = Work(graph, parts, weigh_nodes(graph, "edges"), threads=1, refine=True)
    for kind in args.kinds:
        if kind in case["found"] or estimate(work, nets, kind) > args.limit:
            continue
        case["found"][kind] = run(work, nets, kind)
        timing.save(NAME, results)
    show(case)


def estimate(work: Work, nets, kind: str) -> float:
    pins, parts, directed = len(nets.nets), work.num_parts, work.graph.directed
    if kind in EFFORTS:
        return hypergraph.estimate_seconds(work, nets, hypergraph.EFFORTS_MADE[kind], True)
    if kind in PRESETS:
        return costs.estimate_anew(pins, parts, kind if kind in costs.ANEW else "DETERMINISTIC")
    if kind == "metis":
        return costs.estimate_cut(nets, parts, directed=directed)
    return costs.estimate_volume(nets, parts, directed=directed)


def run(work: Work, nets, kind: str) -> dict:
    said: list[str] = []
    began, cpu = time.perf_counter(), time.process_time()
    if kind in EFFORTS:
        found = shoal.partition_graph(
            work.graph, work.num_parts, "hypergraph", effort=kind, threads=1, progress=said.append
        )
        assignment, more = found.assignment, {"steps": found.seconds, "notices": found.notices}
    elif kind in PRESETS:
        assignment, more = MtKaHyPar(work, nets).partition(kind), {}
    else:
        assignment, more = run_metis(work, volume=kind == "metis-volume"), {}
    took = {"cpu_seconds": time.process_time() - cpu, "seconds": time.perf_counter() - began}
    told = re.search(r"about ([\d,]+) CPU", said[0]) if said else None
    quality = measure_quality(work.graph, np.asarray(assignment), work.num_parts)
    figures = {
        "rows": quality.total_volume,
        "send": quality.max_send_volume,
        "receive": quality.max_receive_volume,
        "weight_balance": quality.weight_balance,
    }
    told_seconds = int(told[1].replace(",", "")) if told else round(estimate(work, nets, kind), 1)
    return figures | took | more | {"estimated": told_seconds, "load": round(os.getloadavg()[0], 1)}


def show(case: dict) -> None:
    print(f"\n{case['graph']}, {case['parts']} parts; random sends {case['random']['rows']:,}")
    alone = [case["found"][kind]["rows"] for kind in (*METIS, *PRESETS) if kind in case["found"]]
    for kind, one in case["found"].items():
        line = f"  {kind:<22}{one['rows']:>10,} rows {one['rows'] / min(alone or [1]):6.3f}  send {one['send']:>7,}"
        line += f"  {one['send'] / case['random']['send']:5.2f} of random's"
        line += f"  balance {one['weight_balance']:.3f}  {one['cpu_seconds']:7.1f} s  said {one['estimated']}"
        print(line)
    for effort, most in (("default", 1.03), ("best", 1.0)):
        if alone and effort in case["found"] and case["found"][effort]["rows"] > most * min(alone):
            print(f"  LOST: {effort} sends more than {most:g} times the least of the others")
    for effort in EFFORTS:
        if effort in case["found"] and case["found"][effort]["send"] > case["random"]["send"]:
            print(f"  LOST: {effort} has a larger send than random's busiest part")


if __name__ == "__main__":
    main()
