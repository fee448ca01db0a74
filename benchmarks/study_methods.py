"""Score against CPU seconds of one thread: full batch, subgraphs, histories, neighbours, LABOR, clusters, SIGN, and PyG's NeighborLoader.

    SHOAL_DATA=DIR python benchmarks/study_methods.py [--cases acl-anthology:2 wordnet30:8] [--seeds 3] [--minutes 60] [--ways …] [--pyg LIBRARY] [--clock 0]
    python benchmarks/study_methods.py --show

A case is a graph and a number of layers; acl-anthology and ppi-large have standardised features. All ways train the same SAGE (layer norm before the activation, linear residuals,
width 64) with learning rate 0.01. SIGN has as many hops as the others have layers, two layers and no residuals. No setting is searched: walks of depth 2 from a twentieth of the nodes, 50
of 1,000 clusters, or a hundredth of the training nodes, 512 at least (neighbours, LABOR, SIGN, PyG). With eight layers the learning rate rises over the first 50 steps and the norm is batch
norm (not PyG's and SIGN's): with layer norm most ways hardly learn (rows without `norm`; without `rise` none does reliably).

Time begins with what is prepared (METIS, hops, with compilation where no kernel is cached); making samplers and trainers, evaluation and the compilation of a step are not counted. A run ends when it has settled
(the last two fifths of its time brought no better validation score) or at its limit, which is longer for full batch: a goal that is not reached may be reached later. Runs are added to
benchmarks/results/methods.jsonl with all scores taken; those that have settled or had as much time are left out, longer runs replace shorter ones.

Machines differ: with `--clock SEED` preparing and a step take the seconds that they took that seed on its machine, so that seeds of one case have the same time scale. Such rows name the seed (`clock`)
and have the CPU seconds of their own machine (`own_seconds`).

`PyG neighbours` is PyG's NeighborLoader over torch-sparse's neighbor_sample, whose shared library `--pyg` names (pyg-lib has no package in the registry). Its model has no residuals and the norm after the
activation (pyg_model.py); all layers compute all nodes of a batch, since only pyg-lib tells their hops; Adam is not fused.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from fcntl import LOCK_EX, flock
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import shoal
from bench_time_to_score import Stepper
from pyg_neighbours import PygNeighbours
from shoal.files import replace_file
from shoal.memory import keep_freed_memory
from shoal.training.schedule import scale_learning_rate
from timing import use_threads
from traces import MARGIN, Trace, find_time, has_settled, keep_best

RESULTS = Path(__file__).parent / "results" / "methods.jsonl"
HIDDEN, PARTS = 64, 1000
MADE = {  # graphs that are drawn: Flickr's sizes, degree, features and homophily; an easier block model
    "flickr-like": {
        "num_nodes": 89_250,
        "num_classes": 7,
        "degree": 10.1,
        "num_features": 500,
        "homophily": 0.32,
        "signal": 1.0,
        "skew": 0.5,
    },
    "block-model": {
        "num_nodes": 131_072,
        "num_classes": 16,
        "degree": 32,
        "num_features": 64,
        "homophily": 0.3,
        "signal": 1.0,
        "skew": 0.5,
    },
}
STANDARDIZED = {"acl-anthology", "ppi-large"}
GRAPHS = ("acl-anthology", "wordnet30", "ppi-large", "flickr-like", "block-model")
CASES = tuple((name, layers) for name in GRAPHS for layers in (2, 4, 8))
FANOUTS = {2: 10, 4: 5, 8: 2}
RISES = {8: 50}  # steps in which the learning rate rises
NORMS = {8: "batch"}
WAYS = (
    *("full batch", "subgraphs", "subgraphs, history", "neighbours", "LABOR"),
    *("clusters", "SIGN", "PyG neighbours"),
)
Row = dict[str, Any]


@lru_cache(maxsize=1)
def load(name: str) -> shoal.Graph:
    if name in MADE:
        return shoal.load("blocks", **MADE[name], seed=0)
    graph = shoal.load(name, **({"standardize": True} if name in STANDARDIZED else {}))
    return graph if graph.has_split else graph.with_split(seed=0)


@lru_cache(maxsize=1)
def prepare(name: str, layers: int, way: str) -> tuple[Any, float]:
    """What is made once before training: parts, or hops; and its CPU seconds."""
    graph, began = load(name), time.process_time()
    found: Any = None
    if way == "clusters":
        found = shoal.partition_graph(graph, PARTS, "metis", balance="nodes").assignment
    elif way == "SIGN":
        found = shoal.stack_hops(graph, hops=layers)
    return found, time.process_time() - began


class MethodStepper(Stepper):
    """One way of training a case, some batches at a time."""

    def __init__(self, name: str, layers: int, way: str, seed: int) -> None:
        graph, (prepared, _) = load(name), prepare(name, layers, way)
        shape: dict[str, Any] = {"hidden": HIDDEN, "num_layers": layers, "dropout": 0.2}
        shape |= {"norm": NORMS.get(layers, "layer"), "norm_place": "conv", "residual": "linear"}
        conv, sampler = "sage", None
        outputs = {"batch_size": max(512, int(graph.train_mask.sum()) // 100), "seed": seed}
        if way.startswith("subgraphs"):
            sampler = shoal.RandomWalkSampler(graph, roots=graph.num_nodes // 20, depth=2, seed=seed)
        elif way in ("neighbours", "LABOR"):
            kind = shoal.NeighborSampler if way == "neighbours" else shoal.LaborSampler
            sampler = kind(graph, fanouts=(FANOUTS[layers],) * layers, **outputs)
        elif way == "clusters":
            clusters = {"assignment": prepared, "clusters_per_batch": PARTS // 20}
            sampler = shoal.ClusterSampler(graph, **clusters, seed=seed)
        elif way == "SIGN":
            conv, graph = "sign", prepared
            shape |= {"num_layers": 2, "hops": layers, "residual": "none", "norm": "layer"}
            sampler = shoal.RowSampler(graph, **outputs)
        model = shoal.GNN(conv, graph.num_features, num_classes=graph.num_classes, seed=seed, **shape)
        history = way.endswith("history")
        self.trainer = shoal.Trainer(model, graph, sampler, lr=0.01, history=history)
        self.rise = RISES.get(layers, 0)
        self.start()

    def train(self, steps: int) -> None:
        while steps and self._done < self.rise:
            super().train(1, scale_learning_rate("constant", self._done, 0, self.rise))
            steps -= 1
        if steps:
            super().train(steps)


def follow(
    stepper: Any, seconds: float, limit: float, ends: float, a_step: float | None = None
) -> tuple[Trace, float]:
    """[seconds, steps, validation, test] whenever the time has grown by a quarter, until it has settled, the limit or the end of all measuring; and the CPU seconds of all steps.

    `a_step` is what a step takes on another machine; without it seconds are this machine's.
    """
    trace: Trace = []
    used = 0.0
    steps, rate, due = 0, 0.0, seconds + 0.5
    while not trace or (seconds < limit and not has_settled(trace) and time.monotonic() < ends):
        at_once = max(1, int(rate * (due - seconds)))
        began = time.process_time()
        stepper.train(at_once)
        own = time.process_time() - began
        used += own
        took = own if a_step is None else at_once * a_step
        seconds, steps, rate = seconds + took, steps + at_once, at_once / max(took, 1e-9)
        if seconds >= min(0.9 * due, limit):
            trace.append([round(seconds, 2), steps, *(round(score, 5) for score in stepper.score())])
            due = 1.25 * seconds
            print(trace[-1], flush=True)
    return trace, used


def run_case(key: Row, limit: float, ends: float, known: Row | None = None) -> Row:
    """One run, by the time scale of a known one if that is given."""
    name, layers, way, seed = (key[field] for field in ("graph", "layers", "way", "seed"))

    def make() -> Any:
        if way == "PyG neighbours":
            return PygNeighbours(load(name), HIDDEN, [FANOUTS[layers]] * layers, seed)
        return MethodStepper(name, layers, way, seed)

    make().train(1)  # compiles, and lets the scheduler try its variants
    prepared = prepare(name, layers, way)[1]
    if known is None:
        return {"prepared": round(prepared, 2), "trace": follow(make(), prepared, limit, ends)[0]}
    seconds, steps = known["trace"][-1][:2]
    a_step = (seconds - known["prepared"]) / steps
    trace, used = follow(make(), known["prepared"], limit, ends, a_step)
    about = {"clock": known["seed"], "own_seconds": round(prepared + used, 2)}
    return about | {"prepared": known["prepared"], "trace": trace}


def read_rows() -> list[Row]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def write_row(row: Row, key: Row) -> None:
    """Add a row, in the place of a shorter run that had not settled; other processes may write too."""
    with RESULTS.with_suffix(".lock").open("w") as lock:
        flock(lock, LOCK_EX)
        rows = read_rows()
        known = find_row(rows, key)
        if (
            known is not None
            and not has_settled(row["trace"])
            and row["trace"][-1][0] < known["trace"][-1][0]
        ):
            return
        rows = [other for other in rows if other is not known] + [row]
        with replace_file(RESULTS) as path:
            path.write_text("".join(json.dumps(one) + "\n" for one in rows))


def find_row(rows: list[Row], key: Row) -> Row | None:
    """The row of a case, way and seed; None if it was not measured."""
    return next((row for row in rows if key.items() <= row.items()), None)


def find_limit(way: str, full: float = 200, other: float = 40) -> float:
    """CPU seconds of a run by default, which rows without a limit had."""
    return full if way == "full batch" else other


def is_measured(row: Row | None, limit: float) -> bool:
    """Whether a run would bring nothing new: it has settled, or had as much time."""
    return row is not None and (
        has_settled(row["trace"]) or row.get("limit", find_limit(row["way"])) >= limit
    )


def read_case(row: Row) -> tuple[str, int, int, str]:
    """(graph, layers, steps in which the rate rises, norm)."""
    return row["graph"], row["layers"], row.get("rise", 0), row.get("norm", "layer")


def judge(rows: list[Row]) -> Iterator[Row]:
    """For each way of each case: its scores and whether and when it comes to full batch's validation score less the margin."""
    for case in dict.fromkeys(map(read_case, rows)):
        own = [row for row in rows if read_case(row) == case]
        traces = {way: [row["trace"] for row in own if row["way"] == way] for way in WAYS}
        if not traces["full batch"]:
            continue
        goal = keep_best(traces["full batch"])[-1][1] - MARGIN
        for way, found in traces.items():
            if found:
                yield {
                    "graph": case[0],
                    "layers": case[1],
                    "rise": case[2],
                    "norm": case[3],
                    "way": way,
                    "seeds": len(found),
                    "test": keep_best(found)[-1][2],
                    "seconds": sum(trace[-1][0] for trace in found) / len(found),
                    "settled": sum(map(has_settled, found)),
                    "reached": find_time(keep_best(found), 1, goal),
                }


def show(rows: list[Row]) -> None:
    """A line for each case: test score at the best validation score, CPU seconds of a run (means over the seeds).

    A star: a run had not settled. Behind the semicolon: when full batch's validation score less the margin was
    reached. In brackets: seeds.
    """
    print("| case | " + " | ".join(WAYS) + " |")
    print("|---" * (len(WAYS) + 1) + "|")
    found = list(judge(rows))
    for case in dict.fromkeys((one["graph"], one["layers"], one["rise"], one["norm"]) for one in found):
        own = {
            one["way"]: one
            for one in found
            if (one["graph"], one["layers"], one["rise"], one["norm"]) == case
        }
        name = f"{case[0]}, {case[1]} layers" + (", rise" if case[2] else "")
        cells = [name + (", batch norm" if case[3] == "batch" else "")]
        cells += ["" if one is None else _write_cell(one) for one in map(own.get, WAYS)]
        print("| " + " | ".join(cells) + " |")


def _write_cell(one: Row) -> str:
    said = (
        f"{one['test']:.4f}".lstrip("0")
        + f" in {one['seconds']:.0f} s"
        + ("" if one["settled"] == one["seeds"] else "*")
    )
    if one["way"] != "full batch" and one["reached"] is not None:
        said += f"; {one['reached']:.1f} s"
    return said + f" ({one['seeds']})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", default=[f"{name}:{layers}" for name, layers in CASES])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--full-limit", type=float, default=find_limit("full batch"), help="CPU seconds of full batch"
    )
    parser.add_argument(
        "--limit", type=float, default=find_limit("others"), help="CPU seconds of every other way"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=1e6,
        help="begin no run after so many; those that are running end with their next score",
    )
    parser.add_argument("--clock", type=int, help="the seed whose seconds a step takes")
    parser.add_argument("--pyg", help="shared library of torch-sparse's neighbor_sample")
    parser.add_argument("--show", action="store_true", help="print what was measured")
    args = parser.parse_args()
    if not args.show:
        use_threads(1)
        keep_freed_memory()  # as `Trainer.fit` does
        if "PyG neighbours" in args.ways:
            if args.pyg is None:
                parser.error("PyG neighbours needs --pyg; --ways chooses others")
            torch.ops.load_library(args.pyg)
        ends = time.monotonic() + 60 * args.minutes
        for seed in range(args.seeds):
            for name, layers in (case.split(":") for case in args.cases):
                for way in args.ways:
                    key = {"graph": name, "layers": int(layers), "way": way, "seed": seed}
                    if int(layers) in RISES:
                        key |= {"rise": RISES[int(layers)], "norm": NORMS[int(layers)]}
                    limit = find_limit(way, args.full_limit, args.limit)
                    rows = read_rows()
                    if time.monotonic() > ends or is_measured(find_row(rows, key), limit):
                        continue
                    known = None if args.clock is None else find_row(rows, key | {"seed": args.clock})
                    if known is None and args.clock not in (None, seed):
                        print(f"{name} {layers} {way}: seed {args.clock} was not measured, left out")
                        continue
                    print(name, layers, way, seed, flush=True)
                    row = key | run_case(key, limit, ends, known)
                    write_row(row | {"limit": min(limit, row["trace"][-1][0])}, key)
    show(read_rows())


if __name__ == "__main__":
    main()
