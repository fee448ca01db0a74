"""python benchmarks/bench_time_to_score.py [--data cora …] [--layers 2 4] [--limit 60] [--threads 2]

IPDPS'19 figure 2: seconds of training until the validation score comes within 0.0025 of the best that full-batch training
reached, for subgraph sampling, full batch and GraphSAGE's neighbour sampling with the same kernels, and for PyG's full
batch with the same model. Evaluation is not counted. Needs $SHOAL_DATA. Every contender stops at --limit seconds or when
there; the test score is that of its best validation.
"""

import argparse
import time
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

import shoal
from shoal.datasets.places import find_graph
from shoal.training.metrics import score_predictions

from timing import print_environment, save, use_threads  # isort: skip

warnings.filterwarnings("ignore")
MARGIN = 0.0025
HIDDEN, RATE, LR = 128, 0.2, 0.01
DATA = {  # roots of the random walks, evaluations of the full batch that bring no better score before it ends
    "cora": 300,
    "citeseer": 300,
    "pubmed": 2000,
    "amazon-computers": 2000,
    "hetero-tolokers": 2000,
    "ppi": 3000,
    "coauthor-physics": 3000,
    "ppi-large": 5000,
    "acl-anthology": 4000,
    "wordnet30": 6000,
}
PATIENCE, EVALUATIONS = 20, 2  # evaluations; epochs between them in full-batch training
FANOUT, BATCH = 10, 1024


def make_trainer(graph, sampler, layers):
    model = shoal.GNN("sage", graph.num_features, HIDDEN, graph.num_classes, num_layers=layers, dropout=RATE)
    return shoal.Trainer(model, graph, sampler, lr=LR)


class Watch:
    """Training seconds and scores of one contender until its goal, its limit or its patience is reached."""

    def __init__(self, goal, limit):
        self.goal, self.limit = goal, limit
        self.seconds, self.best, self.test, self.reached, self.waited, self.epochs = 0.0, 0.0, 0.0, None, 0, 0
        self.started = time.perf_counter()

    def add(self, seconds, epochs=1):
        self.seconds += seconds
        self.epochs += epochs

    def score(self, val, test):
        self.waited += 1
        if val > self.best:
            self.best, self.test, self.waited = val, test, 0
        if self.goal is not None and self.reached is None and val >= self.goal:
            self.reached = self.seconds

    @property
    def is_over(self):
        late = self.seconds > self.limit or time.perf_counter() - self.started > 4 * self.limit
        return late or (self.reached is not None if self.goal is not None else self.waited >= PATIENCE)

    def record(self):
        return {
            "seconds_to_goal": self.reached,
            "seconds": self.seconds,
            "epochs": self.epochs,
            "best_val": self.best,
            "test": self.test,
        }


def run_shoal(graph, sampler, layers, watch, eval_every):
    trainer = make_trainer(graph, sampler, layers)
    while not watch.is_over:
        for _ in range(eval_every):
            watch.add(trainer._train_epoch()["seconds"])
        watch.score(trainer.evaluate("val")[trainer.metric], trainer.evaluate("test")[trainer.metric])
    return watch


class PygModel(nn.Module):
    """The same stack over PyG's message passing."""

    def __init__(self, graph, layers):
        from torch_geometric.nn import SimpleConv

        super().__init__()
        widths = [graph.num_features] + [HIDDEN] * layers
        pairs = list(zip(widths, widths[1:]))  # noqa: RUF007
        self.neighbours = nn.ModuleList(nn.Linear(a, b // 2, bias=False) for a, b in pairs)
        self.own = nn.ModuleList(nn.Linear(a, b // 2) for a, b in pairs)
        self.norms = nn.ModuleList(nn.LayerNorm(b) for _, b in pairs)
        self.classifier = nn.Linear(HIDDEN, graph.num_classes)
        self.conv = SimpleConv(aggr="mean")

    def forward(self, h, edge_index):
        for neighbours, own, norm in zip(self.neighbours, self.own, self.norms):
            z = torch.cat([self.conv(neighbours(h), edge_index), own(h)], 1)
            h = functional.dropout(norm(torch.relu(z)), RATE, self.training)
        return self.classifier(h)


def run_pyg(graph, layers, watch, eval_every):
    torch.manual_seed(0)
    model = PygModel(graph, layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=LR)
    batch = shoal.FullSampler(graph).sample(0)
    x = batch.x if isinstance(batch.x, torch.Tensor) else batch.x.to_torch().to_dense()
    y, train = batch.y, batch.train_mask
    multi = y.dim() == 2
    metric = "f1_micro" if multi else "accuracy"
    while not watch.is_over:
        model.train()
        for _ in range(eval_every):
            before = time.perf_counter()
            logits = model(x, batch.edge_index)[train]
            if multi:
                loss = functional.binary_cross_entropy_with_logits(logits, y[train].float())
            else:
                loss = functional.cross_entropy(logits, y[train])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            watch.add(time.perf_counter() - before)
        model.eval()
        with torch.no_grad():
            logits = model(x, batch.edge_index)
        masks = (torch.from_numpy(graph.val_mask), torch.from_numpy(graph.test_mask))
        watch.score(*(score_predictions(logits[mask], y[mask])[metric] for mask in masks))
    return watch


def compare(name, layers, limit):
    graph = shoal.load(name, **({"standardize": True} if name.startswith("ppi") else {}))
    graph = graph if graph.has_split else graph.with_split(seed=0)
    full = run_shoal(graph, None, layers, Watch(None, limit), EVALUATIONS)
    goal = full.best - MARGIN
    contenders = {
        "full batch": lambda: run_shoal(graph, None, layers, Watch(goal, limit), EVALUATIONS),
        "random walk": lambda: run_shoal(
            graph, shoal.RandomWalkSampler(graph, roots=DATA[name], depth=2), layers, Watch(goal, limit), 1
        ),
        "neighbour": lambda: run_shoal(
            graph,
            shoal.NeighborSampler(graph, fanouts=[FANOUT] * layers, batch_size=BATCH),
            layers,
            Watch(goal, limit),
            1,
        ),
        "PyG full batch": lambda: run_pyg(graph, layers, Watch(goal, limit), EVALUATIONS),
    }
    result = {
        "data": name,
        "layers": layers,
        "full_best_val": full.best,
        "full_test": full.test,
        "goal": goal,
    }
    for label, run in contenders.items():
        try:
            result[label] = run().record()
        except RuntimeError as error:  # PyG's messages may not fit the memory
            result[label] = {"error": str(error)[:200], "seconds_to_goal": None}
    return result


def show(result):
    print(
        f"{result['data']}, {result['layers']} layers: full batch best validation {result['full_best_val']:.4f}, goal {result['goal']:.4f}"
    )
    ours = result["random walk"]["seconds_to_goal"]
    for label in ("random walk", "full batch", "neighbour", "PyG full batch"):
        record = result[label]
        if "error" in record:
            print(f"  {label:<16} {record['error']}")
            continue
        took = record["seconds_to_goal"]
        said = (
            f"{took:8.2f} s"
            if took is not None
            else f"not in {record['seconds']:.0f} s (best {record['best_val']:.4f})"
        )
        ratio = f"{took / ours:6.2f}x" if took is not None and ours else ""
        print(f"  {label:<16} {said:>28} {ratio:>8}  {record['epochs']} epochs, test {record['test']:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=list(DATA))
    parser.add_argument("--layers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--name", default="time-to-score", help="name of the file in benchmarks/results")
    options = parser.parse_args()
    use_threads(options.threads)
    results = []
    for name in options.data:
        if find_graph(name) is None and not Path(name).exists():
            print(f"{name}: not on this machine, skipped")
            continue
        for layers in options.layers:
            results.append(compare(name, layers, options.limit))
            show(results[-1])
            save(options.name, results)
    print_environment()


if __name__ == "__main__":
    main()
