"""Few labels: GCN, SAGE and an MLP with the default settings for few labels, by how often edges join equal classes.

    SHOAL_DATA=DIR python benchmarks/study_few_labels.py [--seeds 2]
    python benchmarks/study_few_labels.py --show

20 training nodes a class are drawn (Planetoid's graphs keep their public split), 500 validation and 1,000 test nodes. `bound` is the fact that
decides between GCN and SAGE (`shoal.runs.homophily`), `flagged` how often 100 other draws of training nodes have it below 0.3.
Full batch, one thread; the test score is that of the best validation score. Rows are added to benchmarks/results/few-labels.jsonl; those that
it has are left out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.datasets.describe import measure_homophily
from shoal.runs.build import make_trainer
from shoal.runs.config import make_config
from shoal.runs.defaults import follow_graph
from shoal.runs.facts import measure_facts
from timing import use_threads

RESULTS = Path(__file__).parent / "results" / "few-labels.jsonl"
PUBLIC = ("cora", "citeseer", "pubmed")
DRAWN = ("amazon-computers",)
MADE = {
    f"blocks {classes} {features} {share}": {
        "num_classes": classes,
        "degree": degree,
        "num_features": features,
        "signal": signal,
        "homophily": share,
    }
    for classes, degree in ((5, 8), (3, 20))
    for features, signal in ((32, 1.5), (200, 2.0))
    for share in (0.05, 0.2, 0.35, 0.5, 0.8)
}
WAYS = ("gcn", "sage", "mlp")
LABELS, VALIDATION, TEST, DRAWS, MIXED = 20, 500, 1000, 100, 0.3
Row = dict[str, Any]


def draw_labels(graph: shoal.Graph, seed: int) -> np.ndarray:
    """A mask of LABELS training nodes of each class, or half of a class that is smaller than twice that."""
    rng, mask = np.random.default_rng(seed), np.zeros(graph.num_nodes, np.bool_)
    for one in range(graph.num_classes):
        members = np.flatnonzero(graph.y == one)
        mask[rng.choice(members, min(LABELS, len(members) // 2), replace=False)] = True
    return mask


def load(name: str, seed: int) -> shoal.Graph:
    """A graph with few training nodes."""
    graph = (
        shoal.load("blocks", num_nodes=3000, seed=seed, **MADE[name]) if name in MADE else shoal.load(name)
    )
    if name in PUBLIC:
        return graph
    train = draw_labels(graph, seed)
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(~train & (graph.y >= 0)))
    val, test = np.zeros_like(train), np.zeros_like(train)
    val[rest[:VALIDATION]] = test[rest[VALIDATION : VALIDATION + TEST]] = True
    return graph._copy(train_mask=train, val_mask=val, test_mask=test)


def measure(name: str, seed: int) -> Row:
    """The fact and the scores of all ways."""
    graph = load(name, seed)
    draws = [
        measure_facts(graph._copy(train_mask=draw_labels(graph, 1000 + one))).homophily
        for one in range(DRAWS)
    ]
    homophily = measure_homophily(graph)
    row: Row = {
        "homophily": None if homophily is None else round(homophily.adjusted, 4),
        "bound": round(measure_facts(graph).homophily, 4),
        "flagged": float(np.mean(np.array(draws) < MIXED)),
    }
    for way in WAYS:
        config = make_config({"data": "digits", "method": "full", "model": {"name": way}})
        config.defaults, config.training.seed = "graph", seed
        follow_graph(config, graph)
        trainer = make_trainer(config, graph)
        started = time.process_time()
        trainer.fit(config.training.epochs)
        row[way] = {
            "val": round(trainer.best_score, 4),
            "test": round(trainer.evaluate("test")[trainer.metric], 4),
            "cpu_seconds": round(time.process_time() - started, 1),
        }
    return row


def read_rows() -> list[Row]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def show(rows: list[Row]) -> None:
    """A line for each graph, means over the seeds: validation and test of each way, the higher validation in bold."""
    print(
        "| graph | adjusted homophily | bound below 0.3 in other draws | " + " | ".join(WAYS) + " | taken |"
    )
    print("|---|---|---|" + "---|" * len(WAYS) + "---|")
    for name in dict.fromkeys(row["graph"] for row in rows):
        own = [row for row in rows if row["graph"] == name]
        val, test = (
            {way: np.mean([row[way][key] for row in own]) for way in WAYS} for key in ("val", "test")
        )
        best = max(WAYS[:2], key=lambda way: val[way])
        cells = [
            f"**{val[way]:.3f}**, {test[way]:.3f}" if way == best else f"{val[way]:.3f}, {test[way]:.3f}"
            for way in WAYS
        ]
        taken = ", ".join("sage" if row["bound"] < MIXED else "gcn" for row in own)
        about = [name, f"{np.mean([row['homophily'] for row in own]):.2f}"]
        about += [f"{np.mean([row['flagged'] for row in own]):.0%}"]
        print("| " + " | ".join([*about, *cells, taken]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--graphs", nargs="+", default=[*PUBLIC, *DRAWN, *MADE])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="print what was measured")
    args = parser.parse_args()
    if not args.show:
        use_threads(1)
        for seed in range(args.seeds):
            for name in args.graphs:
                if any((row["graph"], row["seed"]) == (name, seed) for row in read_rows()):
                    continue
                row = {"graph": name, "seed": seed} | measure(name, seed)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
    show(read_rows())


if __name__ == "__main__":
    main()
