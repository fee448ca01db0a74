"""python benchmarks/bench_time_to_score.py [--data NAME …] [--layers 2 4] [--hidden 128] [--seeds 3] [--limit 60] [--full-limit 150] [--clock wall|cpu] [--threads 2]

IPDPS'19 figure 2: seconds of training until the test score is the full batch's less 0.0025, for subgraphs (random walks),
full batch, GraphSAGE's neighbour sampling with the same kernels, and PyG's full batch with the same model. Without --data, all
graphs with features and labels, as far as they are in $SHOAL_DATA.

First everyone's setting is chosen, with seed 0 and by validation scores: of three for full batch, and of four for
subgraphs and four for neighbours, the one that comes first within 0.0025 of the best that full batch ends with (a try that
has not in the time of an earlier one is ended). PyG has full batch's. Then all are trained in turn with their setting and other
seeds, each until the last two fifths of its time brought nothing or its time is over; PyG has as long as full batch.

What is told is of the mean over these seeds, counting for each the test score at its best validation score so far: what it would
answer if it were stopped. The goal is full batch's at its end, less 0.0025, and the time of a contender the one from which its mean
stays there. Beside it, the times of subgraphs and of each other way to the validation score at which the worse of the two
ended, less 0.0025.

Counting for GraphSAINT's normalisation is timed, as is the product A X that a full batch keeps; evaluation and compilation are
not. The multiply-adds of a forward pass for each training node in a batch are counted beside (`macs_per_node`), the cost of a node's
gradient apart from how much it teaches. --clock cpu counts CPU seconds instead of wall time: with --threads 1 for machines that
do other work. Every step is saved when it is done, with all scores taken; --show prints them again.
"""

import argparse
import importlib
import json
import os
import time
import warnings
from contextlib import contextmanager
from itertools import count, islice
from tempfile import TemporaryDirectory

import torch

import shoal
from shoal.datasets.places import find_graph
from shoal.training.inference import classify_nodes
from shoal.training.metrics import score_predictions

from pyg_model import PygStepper  # isort: skip
from timing import RESULTS, print_environment, save, use_threads  # isort: skip
from traces import MARGIN, find_time, has_settled, keep_best, set_against  # isort: skip

warnings.filterwarnings("ignore")
FEW_LABELS = {"dropout": 0.5}
DATA = {  # with options of the importer; "dropout" and "metric" where they are not the common ones
    "acl-anthology": {"standardize": True},
    "wordnet30": {},
    "ppi-large": {"standardize": True},
    "ppi": {"standardize": True},
    "coauthor-physics": {},
    "amazon-computers": {},
    "hetero-tolokers": {"metric": "roc_auc"},
    "pubmed": FEW_LABELS,
    "cora": FEW_LABELS,
    "citeseer": FEW_LABELS,
}
SUBGRAPHS = ((1 / 100, None), (1 / 20, None), (1 / 20, 50), (1 / 6, None))  # roots / nodes, coverage
NEIGHBOURS = (  # fan-out, nodes in a batch / training nodes, the least of them, learning rate
    (5, 1 / 100, 32, 0.01),
    (10, 1 / 100, 32, 0.01),
    (10, 1 / 100, 32, 0.003),
    (5, 1 / 30, 96, 0.01),
)
LEAST_ROOTS = 100
WAYS = ("full batch", "subgraphs", "neighbours", "PyG full batch")


def list_settings(graph, way):
    num_train = int(graph.train_mask.sum())
    if way == "full batch":
        return [{"lr": 0.01}, {"lr": 0.003}, {"lr": 0.03}]
    if way == "subgraphs":
        return [
            {
                "roots": max(LEAST_ROOTS, round(graph.num_nodes * share)),
                "depth": 2,
                "coverage": coverage,
                "lr": 0.01,
            }
            for share, coverage in SUBGRAPHS
        ]
    return [
        {"fanout": fanout, "batch_size": min(num_train, max(least, round(num_train * share))), "lr": lr}
        for fanout, share, least, lr in NEIGHBOURS
    ]


class Stepper:
    """Training some batches at a time, and the scores between."""

    def __init__(self, graph, way, shape, metric, seed, lr, **options):
        model = shoal.GNN("sage", graph.num_features, num_classes=graph.num_classes, seed=seed, **shape)
        sampler = make_sampler(graph, way, shape["num_layers"], seed, options)
        self.trainer = shoal.Trainer(model, graph, sampler, lr=lr, metric=metric)
        self.start()

    def start(self):
        self._numbers, self._done = count(), 0

    def train(self, steps, scale=1.0):
        self.trainer.epoch, done = self._done, self._done + steps  # a full batch's dropout follows the epoch
        batches = map(self.trainer.sampler.sample, islice(self._numbers, steps))
        self.trainer.train_epoch(scale, batches)
        self._done = done

    def prepare(self):
        """Count for the normalisation, where there is one."""
        return self.trainer.sampler.norms

    def count_work(self):
        """Multiply-adds of a forward pass for each training node of a batch."""
        batch = self.trainer.sampler.sample(0)
        return self.trainer.model.num_macs(batch) / max(1, int(batch.train_mask.sum()))

    def score(self):
        """[validation, test] from one pass over the graph."""
        trainer, graph = self.trainer, self.trainer.graph
        logits = classify_nodes(trainer.model, trainer.embed())
        masks = (torch.from_numpy(mask) for mask in (graph.val_mask, graph.test_mask))
        y = torch.from_numpy(graph.y)
        return [score_predictions(logits[mask], y[mask])[trainer.metric] for mask in masks]


def make_sampler(graph, way, layers, seed, options):
    if way == "full batch":
        return None
    if way == "neighbours":
        fanouts = [options["fanout"]] * layers
        return shoal.NeighborSampler(graph, fanouts=fanouts, batch_size=options["batch_size"], seed=seed)
    return shoal.RandomWalkSampler(graph, **options, seed=seed)


def follow(make, clock, limit, is_over=None):
    """[[seconds, steps, validation, test]] of a new stepper until it has settled, `is_over(trace)` or the limit; and its work.

    The time begins with counting for the normalisation. Scores are taken every twentieth of a second at first and then whenever
    the time has grown by an eighth.
    """
    make().train(1)  # compiles, and lets the scheduler try its variants
    stepper = make()
    seconds = prepare(stepper, clock)
    steps, due, trace = 0, seconds + 0.05, []
    rate = 0.0
    while seconds < limit and not (trace and (has_settled(trace) or (is_over and is_over(trace)))):
        at_once = max(1, int(rate * (due - seconds)))
        before = clock()
        stepper.train(at_once)
        took = clock() - before
        seconds += took
        steps += at_once
        rate = at_once / max(took, 1e-9)
        if seconds >= min(0.9 * due, limit):
            trace.append([round(seconds, 3), steps, *(round(score, 5) for score in stepper.score())])
            due = seconds + max(0.05, seconds / 8)
    return trace, stepper.count_work()


def prepare(stepper, clock):
    """Seconds that counting takes where norms are wanted and none are kept from an earlier run."""
    with TemporaryDirectory() as folder, environment_with("SHOAL_HOME", folder):
        before = clock()
        stepper.prepare()
        return clock() - before


@contextmanager
def environment_with(key, value):
    kept = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        os.environ.pop(key)
        if kept is not None:
            os.environ[key] = kept


def choose(tries, goal):
    """The try that has the goal of validation first; where none has it, the one that ends best."""

    def rank(one):
        curve = keep_best([one["trace"]])
        return find_time(curve, 1, goal) or float("inf"), -curve[-1][1]

    return min(tries, key=rank)


class Case:
    """One graph and depth: all contenders, and what is found about them."""

    def __init__(self, name, layers, options):
        found = dict(DATA.get(name, {}))
        rate, self.metric = found.pop("dropout", 0.2), found.pop("metric", None)
        graph = shoal.load(name, **found)
        self.graph = graph if graph.has_split else graph.with_split(seed=0)
        self.shape = {"hidden": options.hidden, "num_layers": layers, "dropout": rate}
        self.seeds = options.seeds
        self.limits = {way: options.full_limit if "full batch" in way else options.limit for way in WAYS}
        self.clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
        self.result = {"data": name, "nodes": graph.num_nodes, "layers": layers, "hidden": options.hidden}

    def follow(self, way, settings, seed, is_over=None):
        if way == "PyG full batch":
            make = lambda: PygStepper(self.graph, self.shape, self.metric, seed, **settings)  # noqa: E731
        else:
            make = lambda: Stepper(self.graph, way, self.shape, self.metric, seed, **settings)  # noqa: E731
        return follow(make, self.clock, self.limits[way], is_over)

    def try_all(self, way, goal):
        """Every setting with seed 0, ended where it has the goal of validation or another had it sooner."""
        tries, soonest = [], float("inf")
        for settings in list_settings(self.graph, way):
            is_over = lambda trace: trace[-1][0] > soonest or trace[-1][2] >= goal  # noqa: B023, E731
            trace, work = self.follow(way, settings, 0, is_over)
            soonest = min(soonest, find_time(keep_best([trace]), 1, goal) or float("inf"))
            tries.append({"settings": settings, "macs_per_node": work, "trace": trace})
        return tries

    def measure(self, keep):
        """Everything, calling `keep` after each step."""
        ways = self.result["ways"] = {}
        goal = float("inf")
        for way in WAYS[:3]:
            tries = self.try_all(way, goal)
            if way == "full batch":
                goal = max(keep_best([one["trace"]])[-1][1] for one in tries) - MARGIN
            ways[way] = {"settings": choose(tries, goal)["settings"], "tries": tries, "traces": []}
            keep()
        ways["PyG full batch"] = {"settings": ways["full batch"]["settings"], "traces": []}
        for seed in range(1, self.seeds + 1):
            for name, way in ways.items():
                try:
                    if "failed" not in way:
                        way["traces"].append(self.follow(name, way["settings"], seed)[0])
                except RuntimeError as error:  # PyG's messages may not fit the memory
                    way["failed"] = str(error)[:200]
                keep()
        return self.result


def show(result):
    ways = {name: way for name, way in result["ways"].items() if way["traces"]}
    if "subgraphs" not in ways:
        print(f"{result['data']}, {result['layers']} layers: not measured to the end")
        return
    curves = {name: keep_best(way["traces"]) for name, way in ways.items()}
    _, val, test = curves["full batch"][-1]
    settled = sum(map(has_settled, ways["full batch"]["traces"]))
    print(
        f"{result['data']}, {result['layers']} layers, {len(ways['full batch']['traces'])} seeds: full batch validation {val:.4f}, test {test:.4f} ({settled} settled)"
    )
    ours = find_time(curves["subgraphs"], 2, test - MARGIN)
    for name, way in ways.items():
        took = find_time(curves[name], 2, test - MARGIN)
        ratio = f"{took / ours:.2f}x" if took and ours else ""
        said = f"{took:.2f} s" if took else f"not in {curves[name][-1][0]:.0f} s"
        tests = ", ".join(f"{keep_best([trace])[-1][2]:.4f}" for trace in way["traces"])
        settings = {key: value for key, value in way["settings"].items() if value is not None}
        print(
            f"  {name:<16} {ratio:>8} {said:>14}  {way['traces'][0][-1][1]} steps, test {curves[name][-1][2]:.4f} ({tests}), {settings}"
        )
        if name != "subgraphs":
            goal, ours_took, took = set_against(ways["subgraphs"]["traces"], way["traces"])
            print(
                f"  {'':<16} {took / ours_took:7.2f}x to validation {goal:.4f}, .0025 below where the worse of both ended: {took:.2f} s, subgraphs {ours_took:.2f} s",
                flush=True,
            )
    for name, way in result["ways"].items():
        if "failed" in way:
            print(f"  {name:<16} failed: {way['failed']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument(
        "--seeds", type=int, default=3, help="seeds to measure with, besides that of the choice"
    )
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of training of each run")
    parser.add_argument(
        "--full-limit", type=float, default=150.0, help="the same of full batch, which sets the goal"
    )
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default="time-to-score", help="name of the file in benchmarks/results")
    parser.add_argument("--show", action="store_true", help="print what that file holds, and run nothing")
    options = parser.parse_args()
    if options.show:
        for result in json.loads((RESULTS / f"{options.name}.json").read_text())["results"]:
            show(result)
        return
    use_threads(options.threads)
    importlib.import_module("torch_geometric")  # else it would be missed after hours only
    results = []
    for name in options.data:
        if find_graph(name) is None:
            print(f"{name}: not on this machine, skipped")
            continue
        for layers in options.layers:
            case = Case(name, layers, options)
            results.append(case.result)
            show(case.measure(lambda: save(options.name, results)))
    print_environment()


if __name__ == "__main__":
    main()
