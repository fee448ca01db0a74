"""Layer norm against batch norm with the defaults that follow the graph, by validation scores.

    python benchmarks/study_norms.py [--tasks skewed-20k] [--norms batch layer] [--data DIR] [--epochs 100]
    python benchmarks/study_norms.py --show

Tasks are synthetic tables of customers and payments, with skewed amounts and rare classes, and with `--data` the graphs of
that folder. Rows are added to benchmarks/results/norms.jsonl. Test scores are written down beside, and decide nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import shoal

RESULTS = Path(__file__).parent / "results" / "norms.jsonl"
SHARES = (0.88, 0.10, 0.02)  # of the classes
TABLES: dict[str, tuple[int, dict[str, Any]]] = {
    "table-8k": (8_000, {"training__metric": "accuracy"}),
    "skewed-8k": (8_000, {"training__metric": "f1_macro", "training__class_weights": "balanced"}),
    "skewed-20k": (20_000, {"training__metric": "f1_macro", "training__class_weights": "balanced"}),
    "regression-8k": (8_000, {"training__metric": "r2"}),
}
GRAPHS: dict[str, dict[str, Any]] = {
    "hetero-tolokers": {"training__metric": "roc_auc"},
    "wordnet30": {},
    "amazon-computers": {},
    "acl-anthology": {},
    "coauthor-physics": {},
}


def make_table(num_nodes: int, *, regression: bool = False, seed: int = 0) -> shoal.Graph:
    """Customers with a hidden risk, payments between them, and a label that depends on a customer and its neighbours."""
    rng = np.random.default_rng(seed)
    risk = rng.normal(size=num_nodes)
    activity = rng.pareto(1.5, num_nodes) + 0.2
    payer = rng.choice(num_nodes, 4 * num_nodes, p=activity / activity.sum())
    near = np.argsort(risk)[
        (np.argsort(np.argsort(risk))[payer] + rng.geometric(0.002, len(payer))) % num_nodes
    ]
    far = rng.choice(num_nodes, len(payer), p=activity / activity.sum())
    payee = np.where(rng.random(len(payer)) < 0.4, near, far)
    edges = np.stack([np.concatenate([payer, payee]), np.concatenate([payee, payer])])
    degree = np.bincount(edges[0], minlength=num_nodes)
    around = np.bincount(edges[0], risk[edges[1]], num_nodes) / np.maximum(degree, 1)
    amounts = np.exp(1.5 * rng.normal(size=(num_nodes, 6)) + 0.3 * risk[:, None])
    numbers = 0.4 * risk[:, None] * (np.arange(8) < 2) + rng.normal(size=(num_nodes, 8))
    region = np.eye(12)[np.minimum(rng.geometric(0.3, num_nodes) - 1, 11)]
    x = np.concatenate([amounts, np.log1p(degree)[:, None], numbers, region], axis=1)
    x = ((x - x.mean(0)) / np.maximum(x.std(0), 1e-6)).astype(np.float32)
    score = risk + around + 0.7 * rng.normal(size=num_nodes)
    y = np.digitize(score, np.quantile(score, np.cumsum(SHARES[:-1])))
    task = {"y": score.astype(np.float32), "task": "regression"} if regression else {"y": y}
    return shoal.Graph.from_edge_index(edges, x=x, num_nodes=num_nodes, **task).with_split(seed=seed)


def measure(name: str, norm: str, data: Path | None, epochs: int | None) -> dict[str, object]:
    """Train on one task; returns its row."""
    if name in TABLES:
        size, settings = TABLES[name]
        graph = make_table(size, regression=name.startswith("regression"))
    else:
        assert data is not None
        graph, settings = shoal.load(data / f"{name}.npz"), GRAPHS[name]
    kind = shoal.NodeRegressor if name.startswith("regression") else shoal.NodeClassifier
    started = time.process_time()
    fitted = kind(epochs=epochs, model__norm=norm, **settings).fit(graph, progress=False)
    seconds, trainer = time.process_time() - started, fitted.trainer_
    return {
        "task": name,
        "norm": norm,
        "method": fitted.config_.method,
        "epochs": trainer.epoch,
        "best_epoch": trainer.best_epoch,
        "metric": trainer.metric,
        "val": round(trainer.best_score, 5),
        "last_val": round(trainer.history[-1][f"val_{trainer.metric}"], 5),
        "test": round(trainer.evaluate("test")[trainer.metric], 5),
        "cpu_seconds": round(seconds, 1),
    }


def show() -> None:
    """Print what was measured."""
    for line in RESULTS.read_text().splitlines() if RESULTS.exists() else []:
        print(*json.loads(line).values(), sep="\t")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the graphs as .npz")
    parser.add_argument("--tasks", nargs="+", default=list(TABLES), choices=[*TABLES, *GRAPHS])
    parser.add_argument("--norms", nargs="+", default=["batch", "layer"], choices=["batch", "layer", "none"])
    parser.add_argument("--epochs", type=int, help="in place of those that follow the graph")
    parser.add_argument("--show", action="store_true", help="print what was measured")
    args = parser.parse_args()
    for name in [] if args.show else args.tasks:
        for norm in args.norms:
            row = measure(name, norm, args.data, args.epochs)
            print(row, flush=True)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
    show()


if __name__ == "__main__":
    main()
