"""What `shoal train GRAPH` scores without options, beside an MLP, PyG's example models and the best published figures.

    python benchmarks/bench_first_run.py --data DIR [--graphs cora pubmed] [--seeds 1] [--ways default full mlp gcn sage gat]
    python benchmarks/bench_first_run.py --show

`default`, `full` (`--method full`) and `mlp` run the command in a process of its own. PyG's models have the settings of PyG's examples (gcn.py, gat.py, reddit.py) and
train full batch for as many CPU seconds as Shoal's default run took, and on to the examples' epochs if these end within twice that time (or two
minutes); the epoch with the best validation score counts in all of them. Every run uses one thread. Seed k of a graph with published folds is fold k. Rows are added to
benchmarks/results/first-run.jsonl; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

import shoal
from shoal.runs.config import RunConfig
from shoal.runs.data import load_graph
from shoal.training.metrics import score_predictions

RESULTS = Path(__file__).parent / "results" / "first-run.jsonl"
FOLDS = {"hetero-tolokers"}
METRICS = {"hetero-tolokers": "roc_auc", "ppi": "f1_micro", "ppi-large": "f1_micro"}
EXAMPLES: dict[str, dict[str, Any]] = {  # PyG's examples
    "gcn": {"hidden": 16, "dropout": 0.5, "lr": 0.01, "decay": 5e-4, "epochs": 200},
    "gat": {"hidden": 8, "dropout": 0.6, "lr": 0.005, "decay": 5e-4, "epochs": 200, "heads": 8},
    "sage": {"hidden": 256, "dropout": 0.5, "lr": 0.01, "decay": 0.0, "epochs": 10},
}
OPTIONS = {"default": (), "full": ("--method", "full"), "mlp": ("--model", "mlp")}
WAYS = (*OPTIONS, *EXAMPLES)
LEAST_SECONDS = 120  # for the examples' epochs, where Shoal's default run took less than half of it
Row = dict[str, Any]
PUBLISHED = {  # test scores; the splits of all but Planetoid's and the tolokers' folds are drawn anew
    "cora": (0.837, "GAT with symmetric normalisation, bag of tricks, public split"),
    "citeseer": (0.725, "GCN with the log-ε loss, bag of tricks, public split"),
    "pubmed": (0.789, "GCN with the log-ε loss, bag of tricks, public split"),
    "amazon-computers": (0.940, "classic GNNs are strong baselines, 60/20/20"),
    "coauthor-physics": (0.975, "classic GNNs are strong baselines, 60/20/20"),
    "hetero-tolokers": (0.836, "GCN, heterophilous graphs, ROC-AUC over ten folds"),
}


class Example(nn.Module):
    """Two layers of a PyG conv, as in PyG's examples."""

    def __init__(self, kind: str, num_features: int, num_classes: int) -> None:
        from torch_geometric import nn as pyg

        super().__init__()
        about = EXAMPLES[kind]
        hidden, self.rate, self.kind = about["hidden"], about["dropout"], kind
        if kind == "gat":
            heads = about["heads"]
            self.first: Any = pyg.GATConv(num_features, hidden, heads, dropout=self.rate)
            self.second: Any = pyg.GATConv(
                hidden * heads, num_classes, heads=1, concat=False, dropout=self.rate
            )
        else:
            conv = {"gcn": pyg.GCNConv, "sage": pyg.SAGEConv}[kind]
            about = {"cached": True} if kind == "gcn" else {}
            self.first, self.second = conv(num_features, hidden, **about), conv(hidden, num_classes, **about)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.kind != "sage":
            x = functional.dropout(x, self.rate, self.training)
        h = self.first(x, edge_index)
        h = functional.elu(h) if self.kind == "gat" else torch.relu(h)
        h = functional.dropout(h, self.rate, self.training)
        answer: Tensor = self.second(h, edge_index)
        return answer


def train_example(graph: shoal.Graph, kind: str, metric: str, seed: int, seconds: float) -> Row:
    """Train an example for its epochs, and on until `seconds` of CPU are used; the best epoch of both lengths."""
    torch.manual_seed(seed)
    about = EXAMPLES[kind]
    batch = shoal.FullSampler(graph).sample(0)
    x, y, edge_index = batch.dense_x, batch.y, batch.edge_index
    if kind != "sage":  # NormalizeFeatures
        x = (x - x.min()) / (x - x.min()).sum(1, keepdim=True).clamp(min=1.0)
    model = Example(kind, graph.num_features, graph.num_classes)
    first = {"params": list(model.first.parameters()), "weight_decay": about["decay"]}
    second = {
        "params": list(model.second.parameters()),
        "weight_decay": about["decay"] if kind == "gat" else 0.0,
    }
    optimizer = torch.optim.Adam([first, second], lr=about["lr"])
    train = batch.train_mask
    masks = [torch.as_tensor(np.asarray(mask)) for mask in (graph.val_mask, graph.test_mask)]
    best, epoch, found = (-1.0, 0.0, 0), 0, Row()
    started = time.process_time()
    longest = max(2 * seconds, LEAST_SECONDS)
    while (took := time.process_time() - started) < seconds or (epoch < about["epochs"] and took < longest):
        model.train()
        optimizer.zero_grad()
        logits = model(x, edge_index)[train]
        loss = (
            functional.binary_cross_entropy_with_logits(logits, y[train].float())
            if graph.multi_label
            else functional.cross_entropy(logits, y[train].long())
        )
        loss.backward()
        optimizer.step()
        epoch += 1
        model.eval()
        with torch.no_grad():
            logits = model(x, edge_index)
        val, test = (score_predictions(logits[mask], y[mask], [metric])[metric] for mask in masks)
        best = max(best, (val, test, epoch), key=lambda one: one[0])
        if epoch == about["epochs"]:
            found |= {"example_val": best[0], "example_test": best[1]}
    return found | {
        "val": best[0],
        "test": best[1],
        "best_epoch": best[2],
        "epochs": epoch,
        "cpu_seconds": took,
    }


def run_command(path: Path, seed: int, metric: str, *options: str, fold: int | None) -> Row:
    """`shoal train` in a process of its own; its scores and CPU seconds."""
    fixed = ["--set", f"training.seed={seed}", *options]
    if metric != "accuracy":
        fixed += ["--set", f"training.metric={metric}"]
    if fold is not None:
        fixed += ["--set", f"data.fold={fold}"]
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "shoal", "train", str(path), *fixed, "--json", "--out", f"{folder}/run"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(line, env=os.environ | {"SHOAL_HOME": folder}, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(done.stderr)
    said = json.loads(done.stdout)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    scores = {"val": said[f"val_{metric}"], "test": said[f"test_{metric}"]}
    return scores | {"best_epoch": said["best_epoch"], "epochs": said["epochs"], "cpu_seconds": spent}


def run_way(folder: Path, name: str, way: str, seed: int, rows: list[Row]) -> Row:
    """One way of one graph and seed."""
    path, fold = folder / f"{name}.npz", seed if name in FOLDS else None
    metric = METRICS.get(name, "accuracy")
    if way in OPTIONS:
        return run_command(path, seed, metric, *OPTIONS[way], fold=fold)
    own = [row for row in rows if (row["graph"], row["way"], row["seed"]) == (name, "default", seed)]
    config = RunConfig(data=str(path), data_options={} if fold is None else {"fold": fold})
    config.training.seed = seed
    graph, _ = load_graph(config)
    return train_example(graph, way, metric, seed, own[0]["cpu_seconds"] if own else 0.0)


def read_rows() -> list[Row]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def show(rows: list[Row]) -> None:
    """A table: test scores, means over the seeds."""
    print("| graph | published | " + " | ".join(WAYS) + " | seeds | CPU s, default |")
    print("|---|---|" + "---|" * len(WAYS) + "---|---|")
    for name in dict.fromkeys(row["graph"] for row in rows):
        cells, seconds, seeds = [], 0.0, 0
        for way in WAYS:
            own = [row for row in rows if (row["graph"], row["way"]) == (name, way)]
            if way == "default" and own:
                seconds, seeds = float(np.mean([row["cpu_seconds"] for row in own])), len(own)
            cells.append(f"{100 * np.mean([row['test'] for row in own]):.1f}" if own else "")
        goal = f"{100 * PUBLISHED[name][0]:.1f}" if name in PUBLISHED else ""
        print(f"| {name} | {goal} | " + " | ".join(cells) + f" | {seeds} | {seconds:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder with the graphs as .npz")
    parser.add_argument("--graphs", nargs="+", default=list(PUBLISHED))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[way for way in WAYS if way != "full"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print what was measured")
    args = parser.parse_args()
    if not args.show:
        if args.data is None:
            parser.error("--data is missing: the folder with the graphs")
        torch.set_num_threads(1)
        os.environ["SHOAL_THREADS"] = "1"
        for seed in range(args.seeds):
            for name in args.graphs:
                for way in args.ways:
                    rows = read_rows()
                    if any((row["graph"], row["way"], row["seed"]) == (name, way, seed) for row in rows):
                        continue
                    row = {"graph": name, "way": way, "seed": seed}
                    row |= run_way(args.data, name, way, seed, rows)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(f"{name} {way} {seed}: {row['test']:.4f}, {row['cpu_seconds']:.0f} s", flush=True)
    show(read_rows())


if __name__ == "__main__":
    main()
