"""Which settings the recipes of labelled graphs have, by validation scores, and what the chosen ones score.

    python benchmarks/study_recipes.py --data DIR [--graphs cora tolokers] [--minutes 60] [--seeds 10] [--tries 2]
    python benchmarks/study_recipes.py --show

Every candidate of a graph is trained with `--tries` seeds, the three with the highest mean validation score with five, and
the best of these with all `--seeds`. A graph with published folds takes fold k in place of seed k's split. Rows are added to
benchmarks/results/recipes.jsonl as they are measured, so that a study is continued by starting it again. Test scores
are written down beside and decide nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from shoal.runs.build import make_trainer
from shoal.runs.config import RunConfig, update_config
from shoal.runs.data import load_graph

RESULTS = Path(__file__).parent / "results" / "recipes.jsonl"
FOLDS = {"hetero-tolokers"}
FINALISTS, FINAL_SEEDS = 3, 5
Settings = dict[str, dict[str, Any]]
Rows = list[dict[str, Any]]


def _few(
    name: str,
    hidden: int,
    dropout: float,
    input_dropout: float,
    lr: float,
    decay: float,
    *,
    rows: bool = True,
    **more: Any,
) -> Settings:
    """Few labels: two layers without a norm; rows of features are divided by their sums."""
    training = {"epochs": 400, "lr": lr, "weight_decay": decay, "patience": 100}
    training |= {key: more.pop(key) for key in ("loss", "ema", "label_reuse") if key in more}
    model = {"name": name, "hidden": hidden, "norm": "none", "dropout": dropout, "head_layers": 0}
    model |= {"input_dropout": input_dropout, "input_norm": "rows" if rows else "none"}
    return {"model": model | more, "training": training}


def _deep(
    name: str, hidden: int, layers: int, dropout: float, lr: float, epochs: int, **more: Any
) -> Settings:
    """Many labels: linear residuals, the norm before the activation."""
    training = {"epochs": epochs, "lr": lr, "patience": more.pop("patience", 200)}
    training |= {key: more.pop(key) for key in ("metric", "warmup") if key in more}
    model = {"name": name, "hidden": hidden, "num_layers": layers, "dropout": dropout}
    model |= {"norm": "layer", "norm_place": "conv", "residual": "linear"}
    return {"model": model | more, "training": training}


_LOG = {"loss": "log_epsilon"}
_ATTENTION = {"heads": 8, "output_heads": 1, "attention_dropout": 0.6}
FEW = {
    "gcn 64 .8 .8 decay .005 log_epsilon, raw": _few("gcn", 64, 0.8, 0.8, 0.01, 0.005, rows=False, **_LOG),
    "gcn 256 .7 .5 lr .005 decay .005 log_epsilon, raw": _few(
        "gcn", 256, 0.7, 0.5, 0.005, 0.005, rows=False, **_LOG
    ),
    "gcn 256 .7 .5 lr .01 decay .0005 log_epsilon": _few("gcn", 256, 0.7, 0.5, 0.01, 0.0005, **_LOG),
    "gcn 256 .7 .8 lr .02 decay .001 log_epsilon": _few("gcn", 256, 0.7, 0.8, 0.02, 0.001, **_LOG),
    "gcn 64 .7 .8 lr .02 decay .002": _few("gcn", 64, 0.7, 0.8, 0.02, 0.002),
    "gcn 16 .7 .2 lr .01 decay .002 log_epsilon": _few("gcn", 16, 0.7, 0.2, 0.01, 0.002, **_LOG),
    "gcn 16 .8 .2 lr .01 decay .0005 log_epsilon ema": _few(
        "gcn", 16, 0.8, 0.2, 0.01, 0.0005, ema=0.9, **_LOG
    ),
    "gat 64 .6 .8 edges .6 lr .01 decay .0005": _few(
        "gat", 64, 0.6, 0.8, 0.01, 0.0005, heads=8, edge_dropout=0.6
    ),
    "gat symmetric 64 .6 .8 edges .6 lr .01 decay .0005": _few(
        "gat", 64, 0.6, 0.8, 0.01, 0.0005, heads=8, edge_dropout=0.6, symmetric=True
    ),
    "gat symmetric 128 .5 .6 lr .02 decay .0003 log_epsilon": _few(
        "gat", 128, 0.5, 0.6, 0.02, 0.0003, heads=8, symmetric=True, **_LOG
    ),
    "gat 64 .6 .6 edges .6 lr .005 decay .0005": _few(
        "gat", 64, 0.6, 0.6, 0.005, 0.0005, heads=8, edge_dropout=0.6
    ),
    "gat 64 .6 .8 edges .6 lr .005 decay .001 ema": _few(
        "gat", 64, 0.6, 0.8, 0.005, 0.001, heads=8, edge_dropout=0.6, ema=0.9
    ),
    "gat 64 .6 .6 attention .6 lr .005 decay .0005": _few("gat", 64, 0.6, 0.6, 0.005, 0.0005, **_ATTENTION),
    "gat symmetric 64 .6 .6 attention .6 lr .01 decay .001": _few(
        "gat", 64, 0.6, 0.6, 0.01, 0.001, symmetric=True, **_ATTENTION
    ),
    "gat symmetric 64 .6 .6 attention .6 lr .01 decay .001 log_epsilon": _few(
        "gat", 64, 0.6, 0.6, 0.01, 0.001, symmetric=True, **_ATTENTION, **_LOG
    ),
    "gat symmetric 64 .6 .8 attention .6 lr .01 decay .0005": _few(
        "gat", 64, 0.6, 0.8, 0.01, 0.0005, symmetric=True, **_ATTENTION
    ),
    "gat symmetric 64 .6 .6 attention .6 lr .01 decay .001, raw": _few(
        "gat", 64, 0.6, 0.6, 0.01, 0.001, rows=False, symmetric=True, **_ATTENTION
    ),
    "mixhop 96 .6 .8 lr .01 decay .001": _few("mixhop", 96, 0.6, 0.8, 0.01, 0.001),
    "mixhop 192 .6 .8 lr .01 decay .002 ema": _few("mixhop", 192, 0.6, 0.8, 0.01, 0.002, ema=0.9),
    "mixhop 48 .6 .8 lr .01 decay .002": _few("mixhop", 48, 0.6, 0.8, 0.01, 0.002),
    "mixhop 96 .7 .6 lr .02 decay .002 log_epsilon ema": _few(
        "mixhop", 96, 0.7, 0.6, 0.02, 0.002, ema=0.9, **_LOG
    ),
}
NEAR_PUBMED = {  # around the setting that validation had chosen for PubMed
    "gcn 512 .7 .5 lr .005 decay .005 log_epsilon, raw": _few(
        "gcn", 512, 0.7, 0.5, 0.005, 0.005, rows=False, **_LOG
    ),
    "gcn 256 .8 .6 lr .005 decay .005 log_epsilon, raw": _few(
        "gcn", 256, 0.8, 0.6, 0.005, 0.005, rows=False, **_LOG
    ),
    "gcn 256 .6 .4 lr .005 decay .005 log_epsilon, raw": _few(
        "gcn", 256, 0.6, 0.4, 0.005, 0.005, rows=False, **_LOG
    ),
    "gcn 256 .7 .5 lr .005 decay .01 log_epsilon, raw": _few(
        "gcn", 256, 0.7, 0.5, 0.005, 0.01, rows=False, **_LOG
    ),
    "mixhop 192 .7 .5 lr .005 decay .005 log_epsilon, raw": _few(
        "mixhop", 192, 0.7, 0.5, 0.005, 0.005, rows=False, **_LOG
    ),
}
_AUC, _WARM = {"metric": "roc_auc"}, {"warmup": 20}
CANDIDATES: dict[str, dict[str, Settings]] = {
    "cora": FEW,
    "citeseer": FEW,
    "pubmed": FEW | NEAR_PUBMED,
    "hetero-tolokers": {
        "gcn 4 x 128 layer .5 lr .01 warmup": _deep(
            "gcn", 128, 4, 0.5, 0.01, 500, patience=100, **_WARM, **_AUC
        )
    },
    "amazon-computers": {
        "gcn 3 x 512 layer .5 lr .001": _deep("gcn", 512, 3, 0.5, 0.001, 1000, residual="none"),
        "gcn 4 x 128 layer .5 lr .01 warmup": _deep("gcn", 128, 4, 0.5, 0.01, 500, patience=100, **_WARM),
        "gat 2 x 64 layer .5 lr .001": _deep("gat", 64, 2, 0.5, 0.001, 1000, residual="none", heads=4),
    },
    "coauthor-physics": {
        "gcn 2 x 64 .3 lr .001": _deep("gcn", 64, 2, 0.3, 0.001, 1500, patience=300),
    },
    "wordnet30": {
        "gcn 4 x 64 layer .2 lr .01 warmup": _deep("gcn", 64, 4, 0.2, 0.01, 500, patience=100, **_WARM)
    },
    "acl-anthology": {
        "gcn 4 x 64 layer .2 lr .01 warmup": _deep("gcn", 64, 4, 0.2, 0.01, 500, patience=100, **_WARM)
    },
}


def train_candidate(folder: Path, name: str, settings: Settings, seed: int) -> dict[str, Any]:
    """Train one candidate on one graph, full batch; returns its row."""
    options = {"fold": seed} if name in FOLDS else {}
    config = RunConfig(data=str(folder / f"{name}.npz"), method="full", data_options=options)
    graph, _ = load_graph(config)
    update_config(config, settings, name)
    config.training.seed = seed
    trainer = make_trainer(config, graph)
    started = time.process_time()
    trainer.fit(config.training.epochs)
    found = {"epochs": trainer.epoch, "best_epoch": trainer.best_epoch, "metric": trainer.metric}
    found |= {"val": round(trainer.best_score, 5)}
    found["test"] = round(trainer.evaluate("test")[trainer.metric], 5)
    return found | {"cpu_seconds": round(time.process_time() - started, 1)}


def read_rows(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def rank(rows: Rows, name: str, labels: list[str], seeds: int) -> list[str] | None:
    """Candidates by their mean validation score of the first seeds, the best first; None where a run is missing."""
    means = {}
    for label in labels:
        own = [row for row in rows if (row["graph"], row["candidate"]) == (name, label)]
        found = [row["val"] for row in own if row["seed"] < seeds]
        if len(found) < seeds:
            return None
        means[label] = float(np.mean(found))
    return sorted(means, key=lambda label: -means[label])


def choose(rows: Rows, name: str, tries: int) -> tuple[str | None, list[str], int]:
    """(the chosen candidate, None while it is not known; candidates that are still compared, with how many seeds)."""
    every = list(CANDIDATES[name])
    first = rank(rows, name, every, tries)
    if first is None:
        return None, every, tries
    finalists, seeds = first[:FINALISTS], max(FINAL_SEEDS, tries)
    second = rank(rows, name, finalists, seeds)
    return (None, finalists, seeds) if second is None else (second[0], [second[0]], seeds)


def list_jobs(rows: Rows, graphs: list[str], tries: int, seeds: int) -> list[tuple[str, str, int]]:
    """(graph, candidate, seed) that are still to be trained, as far as is known by now."""
    known = {(row["graph"], row["candidate"], row["seed"]) for row in rows}
    jobs = []
    for name in graphs:
        chosen, labels, count = choose(rows, name, tries)
        count = count if chosen is None else seeds
        jobs += [(name, label, seed) for seed in range(count) for label in labels]
    return [job for job in jobs if job not in known]


def show(rows: Rows, tries: int) -> None:
    """Print every candidate's scores, and the one that validation chooses."""
    for name, candidates in CANDIDATES.items():
        chosen, _, _ = choose(rows, name, tries)
        print(f"\n{name}: validation, test, over how many seeds; chosen: {chosen}")
        for label in candidates:
            own = [row for row in rows if (row["graph"], row["candidate"]) == (name, label)]
            if not own:
                continue
            val, test = ([row[key] for row in own] for key in ("val", "test"))
            spread = np.std(test, ddof=1) if len(test) > 1 else 0.0
            seconds = np.mean([row["cpu_seconds"] for row in own])
            print(
                f"  {label:46s} {np.mean(val):.4f}  {np.mean(test):.4f} ± {spread:.4f}  {len(own):2d}  {seconds:6.1f} s"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the graphs as .npz")
    parser.add_argument("--graphs", nargs="+", default=list(CANDIDATES), choices=list(CANDIDATES))
    parser.add_argument("--minutes", type=float, default=60, help="begin no run after so many")
    parser.add_argument("--tries", type=int, default=2, help="seeds of every candidate")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of the chosen one")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true", help="print what was measured")
    args = parser.parse_args()
    ends = time.monotonic() + 60 * args.minutes
    while not args.show and time.monotonic() < ends:
        if args.data is None:
            parser.error("--data names the folder with the graphs")
        jobs = list_jobs(read_rows(args.results), args.graphs, args.tries, args.seeds)
        if not jobs:
            break
        name, label, seed = jobs[0]
        row = {"graph": name, "candidate": label, "seed": seed}
        row |= train_candidate(args.data, name, CANDIDATES[name][label], seed)
        print(row, flush=True)
        with args.results.open("a") as file:
            file.write(json.dumps(row) + "\n")
    show(read_rows(args.results), args.tries)


if __name__ == "__main__":
    main()
