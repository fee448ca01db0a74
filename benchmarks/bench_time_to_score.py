"""python benchmarks/bench_time_to_score.py [--data NAME …] [--layers 2 4] [--hidden 128] [--seeds 3] [--limit 60] [--full-limit 150] [--clock wall|cpu] [--threads 2]

IPDPS'19 figure 2: seconds of training until the test score is the full batch's less 0.0025, for subgraphs (random walks),
full batch, GraphSAGE's neighbour sampling with the same kernels, and PyG's full batch with the same model. Without --data, all
graphs with features and labels, as far as they are in $SHOAL_DATA; with --large, those of more than 50,000 nodes.

First everyone's setting is chosen, with seed 0 and by validation scores: full batch's is the one that ends best, and a
contender's, of as many for subgraphs as for neighbours, the one that comes within 0.0025 of that first (a try that has not in
the time of an earlier one is ended). PyG has full batch's. Then everyone is trained with its setting and other seeds, until the
last two fifths of the time brought nothing or the time is over. What is told is of the mean over these seeds: the goal is
full batch's test score at its best validation score, less 0.0025, and the time of a contender the first at which its mean is
there, counting for each seed the test score at its best validation score so far: what it would answer if it were stopped.
Beside it, the times of subgraphs and of each other way to the validation score at which the worse of the two ended.

Evaluation and compilation are not timed. The multiply-adds of a forward pass for each training node in a batch are counted
beside, the cost of a node's gradient apart from how much it teaches. --clock cpu counts CPU seconds instead of wall time: with
--threads 1 for machines that do other work. Every way is saved when it is done, with all scores taken.
"""

import argparse
import json
import time
import warnings
from itertools import count, islice

import torch

import shoal
from shoal.datasets.places import find_graph
from shoal.training.inference import classify_nodes
from shoal.training.metrics import score_predictions

from pyg_model import PygStepper  # isort: skip
from timing import RESULTS, print_environment, save, use_threads  # isort: skip

warnings.filterwarnings("ignore")
MARGIN = 0.0025
FEW_LABELS = {"dropout": 0.5}
LARGE = {"acl-anthology": {"standardize": True}, "wordnet30": {}, "ppi-large": {"standardize": True}}
DATA = {  # with options of the importer; "dropout" and "metric" where they are not the common ones
    **LARGE,
    "ppi": {"standardize": True},
    "coauthor-physics": {},
    "amazon-computers": {},
    "hetero-tolokers": {"metric": "roc_auc"},
    "pubmed": FEW_LABELS,
    "cora": FEW_LABELS,
    "citeseer": FEW_LABELS,
}
SUBGRAPHS = ((1 / 100, None), (1 / 20, None), (1 / 20, 50), (1 / 6, None))  # roots / nodes, coverage
NEIGHBOURS = ((5, 1 / 100, 0.01), (10, 1 / 100, 0.01), (10, 1 / 100, 0.003), (10, 1 / 30, 0.01))
LEAST_ROOTS, LEAST_NODES = 100, 32


def list_settings(graph, way):
    num_train = int(graph.train_mask.sum())
    if way == "full batch":
        return [{"lr": 0.01}, {"lr": 0.003}]
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
        {"fanout": fanout, "batch_size": min(num_train, max(LEAST_NODES, round(num_train * share))), "lr": lr}
        for fanout, share, lr in NEIGHBOURS
    ]


class Stepper:
    """Training some batches at a time, and the scores between."""

    def __init__(self, graph, way, shape, metric, seed, lr, **options):
        model = shoal.GNN("sage", graph.num_features, num_classes=graph.num_classes, seed=seed, **shape)
        sampler = make_sampler(graph, way, shape["num_layers"], seed, options)
        self.trainer = shoal.Trainer(model, graph, sampler, lr=lr, metric=metric)
        sampler = self.trainer.sampler
        numbers = count()
        self._steps = self._done = 0
        self.trainer._batches = lambda: (sampler.sample(k) for k in islice(numbers, self._steps))

    def train(self, steps):
        self._steps = steps
        self.trainer.epoch, done = self._done, self._done + steps  # a full batch's dropout follows the epoch
        self.trainer._train_epoch()
        self._done = done

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


def follow(make, clock, limit, is_over=lambda trace: False):
    """[[seconds, steps, validation, test]] of a new stepper until it has settled, `is_over(trace)` or the limit; its work;
    and the seconds that it took to make it: counting for the normalisation, A X of a full batch, which are not in the others.

    Scores are taken every twentieth of a second at first and then whenever the time has grown by an eighth.
    """
    make().train(1)  # compiles, and lets the scheduler try its variants
    before = clock()
    stepper = make()
    made = clock() - before
    seconds, steps, due, trace = 0.0, 0, 0.05, []
    while seconds < limit and not (trace and (has_settled(trace) or is_over(trace))):
        at_once = max(1, int(steps / seconds * (due - seconds))) if steps else 1
        before = clock()
        stepper.train(at_once)
        seconds += clock() - before
        steps += at_once
        if seconds >= min(0.9 * due, limit):
            trace.append([round(seconds, 3), steps, *(round(score, 5) for score in stepper.score())])
            due = seconds + max(0.05, seconds / 8)
    return trace, stepper.count_work(), round(made, 3)


def has_settled(trace):
    """Whether the last two fifths of the time brought no better validation score."""
    return len(trace) > 20 and max(trace, key=lambda point: point[2])[0] < 0.6 * trace[-1][0]


def keep_best(traces):
    """[(seconds, validation, test)]: means over the traces, each with its best validation so far and the test score there."""
    events = sorted((point[0], k, point[2:]) for k, trace in enumerate(traces) for point in trace)
    best, curve = {}, []
    for seconds, k, scores in events:
        best[k] = max(best.get(k, scores), scores, key=lambda pair: pair[0])
        if len(best) == len(traces):
            val, test = (sum(column) / len(traces) for column in zip(*best.values()))
            curve.append((seconds, val, test))
    return curve


def find_time(curve, column, goal):
    return next((point[0] for point in curve if point[column] >= goal), None)


def set_against(ours, theirs):
    """(validation score, our seconds to it, their seconds to it), the score being the lower one of where both ended."""
    curves = keep_best(ours), keep_best(theirs)
    goal = min(curve[-1][1] for curve in curves)
    return goal, *(find_time(curve, 1, goal) for curve in curves)


class Case:
    """One graph and depth: all contenders, and what is found about them."""

    def __init__(self, name, layers, options):
        found = dict(DATA.get(name, {}))
        rate, self.metric = found.pop("dropout", 0.2), found.pop("metric", None)
        graph = shoal.load(name, **found)
        self.graph = graph if graph.has_split else graph.with_split(seed=0)
        self.shape = {"hidden": options.hidden, "num_layers": layers, "dropout": rate}
        self.options = options
        self.clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
        self.result = {"data": name, "nodes": graph.num_nodes, "layers": layers, "hidden": options.hidden}

    def follow(self, way, settings, seed, limit, is_over=lambda trace: False):
        if way == "PyG full batch":
            make = lambda: PygStepper(self.graph, self.shape, self.metric, seed, **settings)  # noqa: E731
        else:
            make = lambda: Stepper(self.graph, way, self.shape, self.metric, seed, **settings)  # noqa: E731
        return follow(make, self.clock, limit, is_over)

    def choose(self, way, goal):
        """The setting that has the goal of validation first; where none has it, the one that ends best."""
        tries, soonest = [], float("inf")
        limit = self.options.full_limit if way == "full batch" else self.options.limit
        for settings in list_settings(self.graph, way):
            is_over = lambda trace: trace[-1][0] > soonest or trace[-1][2] >= goal  # noqa: B023, E731
            trace, work, made = self.follow(way, settings, 0, limit, is_over)
            curve = keep_best([trace])
            took = find_time(curve, 1, goal)
            soonest = min(soonest, took or float("inf"))
            tries.append(
                {
                    "settings": settings,
                    "seconds_to_val": took,
                    "best_val": curve[-1][1],
                    "macs_per_node": work,
                    "seconds_to_make": made,
                    "trace": trace,
                }
            )
        return tries, min(tries, key=lambda one: (one["seconds_to_val"] or float("inf"), -one["best_val"]))

    def run(self, way, settings):
        """The curves of all seeds, full batch's with its own limit."""
        limit = self.options.full_limit if way == "full batch" else self.options.limit
        return [self.follow(way, settings, 1 + k, limit)[0] for k in range(self.options.seeds)]

    def measure(self, keep):
        """Everything, calling `keep` after each way."""
        ways = self.result["ways"] = {}
        for way in ("full batch", "subgraphs", "neighbours", "PyG full batch"):
            if way == "PyG full batch":
                tries, settings = [], ways["full batch"]["settings"]
            else:
                goal = ways["full batch"]["chosen_val"] - MARGIN if ways else float("inf")
                tries, chosen = self.choose(way, goal)
                settings = chosen["settings"]
            try:
                traces = self.run(way, settings)
            except RuntimeError as error:  # PyG's messages may not fit the memory
                ways[way] = {"settings": settings, "failed": str(error)[:200]}
                keep()
                continue
            curve = keep_best(traces)
            ways[way] = {
                "settings": settings,
                "seconds": max(trace[-1][0] for trace in traces),
                "steps": max(trace[-1][1] for trace in traces),
                "settled": sum(map(has_settled, traces)),
                "val": curve[-1][1],
                "test": curve[-1][2],
                "tests": [keep_best([trace])[-1][2] for trace in traces],
                "tries": tries,
                "traces": traces,
            }
            if way == "full batch":
                ways[way]["chosen_val"] = chosen["best_val"]
            ways[way]["seconds_to_val"] = find_time(curve, 1, ways["full batch"]["val"] - MARGIN)
            ways[way]["seconds_to_test"] = find_time(curve, 2, ways["full batch"]["test"] - MARGIN)
            keep()
        return self.result


def show(result):
    ways, full = result["ways"], result["ways"]["full batch"]
    settled = f"{full['settled']} of {len(full['traces'])} runs settled"
    print(
        f"{result['data']}, {result['layers']} layers: full batch validation {full['val']:.4f}, test {full['test']:.4f} ({settled})"
    )
    ours = ways["subgraphs"]
    for name, way in ways.items():
        if "failed" in way:
            print(f"  {name:<16} {way['failed']}")
            continue
        took = way["seconds_to_test"]
        said = f"{took:.2f} s" if took else f"not in {way['seconds']:.0f} s"
        ratio = f"{took / ours['seconds_to_test']:6.2f}x" if took and ours["seconds_to_test"] else ""
        print(
            f"  {name:<16} {said:>14} {ratio:>8}  {way['steps']} steps, test {way['test']:.4f}, {way['settings']}"
        )
        if way is not ours:
            goal, ours_took, took = set_against(ours["traces"], way["traces"])
            print(
                f"  {'':<16} to validation {goal:.4f}, where the worse of both ends: {took:.2f} s, subgraphs {ours_took:.2f} s, {took / ours_took:.2f}x",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--large", action="store_true", help="only the graphs of more than 50,000 nodes")
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
    results = []
    for name in LARGE if options.large else options.data:
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
