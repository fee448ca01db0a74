"""python benchmarks/bench_time_to_score.py [--data NAME …] [--layers 2 4] [--hidden 128] [--limit 120] [--full-limit 300] [--clock wall|cpu] [--threads 2]

IPDPS'19 figure 2: seconds of training until the test score is the full batch's less 0.0025, for subgraphs (random walks),
full batch, GraphSAGE's neighbour sampling with the same kernels, and PyG's full batch with the same model. Without --data, the
graphs of more than 50,000 nodes with features and labels, as far as they are in $SHOAL_DATA; any other may be named.

Every contender is tried with each of its settings below, as many for subgraphs as for neighbours; PyG with the setting that was
chosen for full batch. All choices are made by validation scores: the goal is full batch's best score, and everyone's
setting the one that comes within 0.0025 of it first, so a try that has not come there in the time of an earlier one is ended.
A contender's test score is that of its best validation so far: what it would answer if it were stopped. Evaluation and
compilation are not timed. The multiply-adds of a forward pass for each training node in a batch are counted beside, the cost of a
node's gradient apart from how much it teaches. --clock cpu counts CPU seconds instead of wall time: with --threads 1 for
machines that do other work.
"""

import argparse
import time
import warnings
from itertools import count, islice

import torch

import shoal
from shoal.datasets.places import find_graph
from shoal.training.inference import classify_nodes
from shoal.training.metrics import score_predictions

from pyg_model import PygStepper  # isort: skip
from timing import print_environment, save, use_threads  # isort: skip

warnings.filterwarnings("ignore")
MARGIN = 0.0025
RATE = 0.2
DATA = {"acl-anthology": {"standardize": True}, "wordnet30": {}, "ppi-large": {"standardize": True}}
WAYS = {
    "subgraphs": [
        {"roots": roots, "depth": 2, "lr": lr}
        for roots, lr in ((500, 0.01), (500, 0.003), (1500, 0.01), (1500, 0.003), (6000, 0.01), (6000, 0.03))
    ],
    "neighbours": [
        {"fanout": fanout, "batch_size": size, "lr": lr}
        for fanout, size, lr in (
            (10, 512, 0.01),
            (10, 512, 0.003),
            (10, 1024, 0.01),
            (10, 1024, 0.003),
            (5, 512, 0.01),
            (5, 1024, 0.01),
        )
    ],
    "full batch": [{"lr": 0.01}, {"lr": 0.003}],
    "PyG full batch": [],  # the one of full batch: the same model
}


class Stepper:
    """Training some batches at a time, and the scores between."""

    def __init__(self, graph, way, layers, hidden, lr, **options):
        model = shoal.GNN(
            "sage", graph.num_features, hidden, graph.num_classes, num_layers=layers, dropout=RATE
        )
        self.trainer = shoal.Trainer(model, graph, make_sampler(graph, way, layers, options), lr=lr)
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
        return self.trainer.model.num_macs(batch) / int(batch.train_mask.sum())

    def score(self):
        """[validation, test] from one pass over the graph."""
        trainer, graph = self.trainer, self.trainer.graph
        logits = classify_nodes(trainer.model, trainer.embed())
        masks = (torch.from_numpy(mask) for mask in (graph.val_mask, graph.test_mask))
        y = torch.from_numpy(graph.y)
        return [score_predictions(logits[mask], y[mask])[trainer.metric] for mask in masks]


def make_sampler(graph, way, layers, options):
    if way == "full batch":
        return None
    if way == "neighbours":
        return shoal.NeighborSampler(
            graph, fanouts=[options["fanout"]] * layers, batch_size=options["batch_size"]
        )
    return shoal.RandomWalkSampler(graph, **options)


def follow(make, clock, limit, is_over):
    """[(seconds, steps, validation, test)] of a new stepper until `is_over(trace)` or the limit, and its work for a node.

    Scores are taken every quarter of a second at first and then whenever the time has grown by a twentieth.
    """
    make().train(1)  # compiles, and lets the scheduler try its variants
    stepper = make()
    seconds, steps, due, trace = 0.0, 0, 0.25, []
    while seconds < limit and not (trace and is_over(trace)):
        at_once = max(1, int(steps / seconds * (due - seconds))) if steps else 1
        before = clock()
        stepper.train(at_once)
        seconds += clock() - before
        steps += at_once
        if seconds >= min(0.9 * due, limit):
            trace.append((seconds, steps, *stepper.score()))
            due = seconds + max(0.25, seconds / 20)
    return trace, stepper.count_work()


def has_settled(trace):
    """Whether the last two fifths of the time brought no better validation score."""
    best = max(trace, key=lambda point: point[2])
    return best[0] < 0.6 * trace[-1][0] and len(trace) > 20


def keep_best(trace):
    """(seconds, best validation so far, its test score) after every evaluation."""
    best = (float("-inf"), 0.0)
    for seconds, _, val, test in trace:
        best = max(best, (val, test), key=lambda pair: pair[0])
        yield seconds, *best


def summarize(trace, work, settings, goal_val, goal_test):
    kept = list(keep_best(trace))
    return {
        "settings": settings,
        "seconds_to_val": next((s for s, val, _ in kept if val >= goal_val), None),
        "seconds_to_test": next((s for s, val, test in kept if test >= goal_test), None),
        "seconds": trace[-1][0],
        "steps": trace[-1][1],
        "macs_per_node": work,
        "best_val": kept[-1][1],  # when it came there, was ended or ran out of time
        "test": kept[-1][2],
    }


def compare(name, layers, hidden, clock, limit, full_limit):
    graph = shoal.load(name, **DATA.get(name, {}))
    graph = graph if graph.has_split else graph.with_split(seed=0)

    def try_all(way, is_over, goal=float("inf"), ways=None, limit=limit):
        soonest = float("inf")
        for settings in ways or WAYS[way]:
            if way == "PyG full batch":
                make = lambda s=settings: PygStepper(graph, hidden, layers, RATE, **s)  # noqa: E731
            else:
                make = lambda s=settings: Stepper(graph, way, layers, hidden, **s)  # noqa: E731

            def is_beaten(trace, soonest=soonest):
                return trace[-1][0] > soonest and max(point[2] for point in trace) < goal

            trace, work = follow(make, clock, limit, lambda t, beaten=is_beaten: is_over(t) or beaten(t))
            soonest = min([soonest, *(seconds for seconds, _, val, _ in trace if val >= goal)])
            yield trace, work, settings

    full = list(try_all("full batch", has_settled, limit=full_limit))
    best = max((trace for trace, *_ in full), key=lambda trace: max(point[2] for point in trace))
    _, val, test = list(keep_best(best))[-1]
    goals = (val - MARGIN, test - MARGIN)
    result = {
        "data": name,
        "layers": layers,
        "hidden": hidden,
        "full_val": val,
        "full_test": test,
        "limit": limit,
    }
    result["full_settled"] = has_settled(best)
    result["full batch"] = [summarize(trace, *tried, *goals) for trace, *tried in full]

    def is_there(trace):
        _, kept_val, kept_test = list(keep_best(trace))[-1]
        return kept_val >= goals[0] and kept_test >= goals[1]

    for way in ("subgraphs", "neighbours"):
        result[way] = [summarize(trace, *tried, *goals) for trace, *tried in try_all(way, is_there, goals[0])]
    try:
        peers = list(
            try_all("PyG full batch", is_there, goals[0], [choose(result["full batch"])["settings"]])
        )
        result["PyG full batch"] = [summarize(trace, *tried, *goals) for trace, *tried in peers]
    except RuntimeError as error:  # its messages may not fit the memory
        result |= {"PyG full batch": [], "PyG full batch failed": str(error)[:200]}
    return result


def choose(tries):
    """The try that reached the validation goal first; where none did, the one with the best validation score."""
    return min(tries, key=lambda one: (one["seconds_to_val"] or float("inf"), -one["best_val"]), default=None)


def show(result):
    settled = "" if result["full_settled"] else ", still rising at the limit"
    print(
        f"{result['data']}, {result['layers']} layers: full batch validation {result['full_val']:.4f}, test {result['full_test']:.4f}{settled}"
    )
    ours = choose(result["subgraphs"])
    for way in WAYS:
        one = choose(result[way])
        if one is None:
            print(f"  {way:<16} {result.get(f'{way} failed')}")
            continue
        took = one["seconds_to_test"]
        said = f"{took:.2f} s" if took else f"not in {one['seconds']:.0f} s"
        ratio = f"{took / ours['seconds_to_test']:6.2f}x" if took and ours["seconds_to_test"] else ""
        print(
            f"  {way:<16} {said:>14} {ratio:>8}  {one['steps']} steps, {(one['macs_per_node'] or 0) / 1e3:.0f}k a node, test {one['test']:.4f}, {one['settings']} of {len(result[way])}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of training of each try")
    parser.add_argument(
        "--full-limit", type=float, default=300.0, help="the same of full batch, which sets the goal"
    )
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default="time-to-score", help="name of the file in benchmarks/results")
    options = parser.parse_args()
    use_threads(options.threads)
    clock = {"wall": time.perf_counter, "cpu": time.process_time}[options.clock]
    results = []
    for name in options.data:
        if find_graph(name) is None:
            print(f"{name}: not on this machine, skipped")
            continue
        for layers in options.layers:
            results.append(compare(name, layers, options.hidden, clock, options.limit, options.full_limit))
            show(results[-1])
            save(options.name, results)
    print_environment()


if __name__ == "__main__":
    main()
