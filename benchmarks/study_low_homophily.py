"""Low homophily and few neighbours: depth and feature dropout with many labels, by validation scores.

    python benchmarks/study_low_homophily.py [--graphs minesweeper …] [--ways …] [--files words.npz …] [--seeds 3]
    python benchmarks/study_low_homophily.py --show

`minesweeper` is drawn as its authors describe it: a grid of 100 × 100 with eight neighbours, 20 % mines, the number of mines
around a node as its features, hidden for half of the nodes, a split of 50/25/25. `code` are names of Python's standard
library, whose classes are what they do there (code_graph.py). `blocks N S` is a block model of five classes
with N nodes of degree 8, S of the edges inside a class (0.2: edges say nothing). Splits without named shares are 60/20/20. A made graph, its split and the training follow the seed.
--files adds graphs as .npz, whose split is drawn with seed 0 if they have none.

Every way changes some of the model's settings and leaves the rest to the defaults of `shoal train` (full batch, one thread).
Rows are added to benchmarks/results/low-homophily.jsonl; those that it has are left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import shoal
from code_graph import build_code_graph
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from shoal.runs.defaults import follow_graph
from shoal.runs.facts import measure_facts
from timing import use_threads

RESULTS = Path(__file__).parent / "results" / "low-homophily.jsonl"
MADE = ("minesweeper", "code", "blocks 3000 0.05", "blocks 3000 0.2", "blocks 12000 0.05", "blocks 12000 0.2")
_FOUR = {"num_layers": 4, "hidden": 128, "dropout": 0.5}
_EIGHT = {"num_layers": 8, "hidden": 64, "dropout": 0.2}
_WIDE = {"num_layers": 8, "hidden": 128, "dropout": 0.5, "input_dropout": 0.2}
WAYS: dict[str, dict[str, Any]] = {
    "4 x 128": _FOUR,
    "4 x 128, features": _FOUR | {"input_dropout": 0.2},
    "4 x 128, features, dropout 0.2, batch norm": _FOUR
    | {"input_dropout": 0.2, "dropout": 0.2, "norm": "batch"},
    "8 x 64": _EIGHT,
    "8 x 64, features": _EIGHT | {"input_dropout": 0.2},
    "8 x 64, concatenated": _EIGHT | {"jumping": "concat"},
    "8 x 64, features, concatenated": _EIGHT | {"input_dropout": 0.2, "jumping": "concat"},
    "8 x 128, features": _WIDE | {"dropout": 0.2},
    "8 x 128, features, dropout 0.5": _WIDE,
    "8 x 128, features, concatenated": _WIDE | {"dropout": 0.2, "jumping": "concat"},
    "8 x 128, features, concatenated, dropout 0.5": _WIDE | {"jumping": "concat"},
    "SAGE, 8 x 64, features": _EIGHT | {"input_dropout": 0.2, "name": "sage"},
    "12 x 64, features": _EIGHT | {"input_dropout": 0.2, "num_layers": 12},
    "MLP": {"name": "mlp"},
}
Row = dict[str, Any]


def draw_minesweeper(seed: int, side: int = 100) -> shoal.Graph:
    """Mines on a grid; features are the one-hot number of mines around a node (5: five or more), or that it is hidden."""
    rng, n = np.random.default_rng(seed), side * side
    line = sp.diags_array([np.ones(side - 1), np.ones(side), np.ones(side - 1)], offsets=[-1, 0, 1])
    grid = sp.csr_array(sp.kron(line, line) - sp.eye_array(n))
    grid.eliminate_zeros()
    mines = np.zeros(n, np.bool_)
    mines[rng.choice(n, n // 5, replace=False)] = True
    x = np.eye(7, dtype=np.float32)[np.minimum((grid @ mines).astype(np.int64), 5)]
    x[rng.random(n) < 0.5] = np.eye(7, dtype=np.float32)[6]
    graph = shoal.Graph.from_scipy(grid, x=x, y=mines.astype(np.int64), directed=False)
    return graph.with_split(0.5, 0.25, seed)


def load(name: str, seed: int) -> shoal.Graph:
    """A graph with its split, drawn by the seed if it is made."""
    if name == "minesweeper":
        return draw_minesweeper(seed)
    if name == "code":
        return build_code_graph(seed=seed)
    if name not in MADE:
        graph = shoal.load(name)
        return graph if graph.has_split else graph.with_split(seed=0)
    _, nodes, share = name.split()
    shape = {"num_classes": 5, "degree": 8, "num_features": 32, "signal": 1.5}
    graph = shoal.load("blocks", num_nodes=int(nodes), homophily=float(share), seed=seed, **shape)
    return graph if graph.has_split else graph.with_split(seed=seed)


def measure(name: str, way: str, seed: int) -> Row:
    """The scores of one run."""
    graph = load(name, seed)
    about = {"python": platform.python_version()} if name == "code" else {}
    config = make_config({"data": "digits", "method": "full", "model": WAYS[way]})
    config.defaults, config.training.seed = "graph", seed
    if name == "minesweeper":
        config.training.metric = "roc_auc"
        config.training.given["metric"] = "roc_auc"
    follow_graph(config, graph)
    trainer = make_trainer(config, graph)
    started = time.process_time()
    trainer.fit(config.training.epochs)
    return about | {
        "homophily": round(measure_facts(graph).homophily, 3),
        "metric": trainer.metric,
        "epochs": trainer.epoch,
        "val": round(trainer.best_score, 4),
        "test": round(trainer.evaluate("test")[trainer.metric], 4),
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def read_rows() -> list[Row]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def show(rows: list[Row]) -> None:
    """Two tables: seed 0, and means over the seeds where several were run."""
    print("Seed 0:\n")
    tabulate([row for row in rows if row["seed"] == 0])
    counts = Counter((row["graph"], row["way"]) for row in rows)
    most = {graph: max(counts[key] for key in counts if key[0] == graph) for graph, _ in counts}
    several = {(graph, way) for (graph, way), count in counts.items() if count == most[graph] > 1}
    print("\nMeans over seeds:\n")
    tabulate([row for row in rows if (row["graph"], row["way"]) in several])


def tabulate(rows: list[Row]) -> None:
    """A line for each way: mean validation and test score of each graph; the best validation score in bold."""
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    found: dict[tuple[str, str], list[list[float]]] = {}
    for row in rows:
        found.setdefault((row["graph"], row["way"]), []).append([row["val"], row["test"]])
    mean = {key: np.mean(scores, 0) for key, scores in found.items()}
    best = {graph: max(mean[key][0] for key in mean if key[0] == graph) for graph in graphs}
    print("| | " + " | ".join(graphs) + " |\n" + "|---" * (len(graphs) + 1) + "|")
    for way in WAYS:
        cells = []
        for graph in graphs:
            scores = mean.get((graph, way))
            text = "" if scores is None else f"{scores[0]:.4f}, {scores[1]:.4f}"
            cells.append(f"**{text}**" if scores is not None and scores[0] == best[graph] else text)
        if any(cells):
            print(f"| {way} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="*", default=list(MADE), choices=MADE)
    parser.add_argument("--files", nargs="*", default=[], help="more graphs, as .npz")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="print what was measured")
    args = parser.parse_args()
    if not args.show:
        use_threads(1)
        for seed in range(args.seeds):
            for name in args.graphs + args.files:
                for way in args.ways:
                    key = {"graph": Path(name).stem if name in args.files else name, "way": way, "seed": seed}
                    if any(key.items() <= row.items() for row in read_rows()):
                        continue
                    row = key | measure(name, way, seed)
                    with RESULTS.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                    print(row, flush=True)
    show(read_rows())


if __name__ == "__main__":
    main()
