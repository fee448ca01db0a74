"""Bias of counted normalisation, (C_v + 1) / (C_uv + 1) beside the plain ratio C_v / C_uv, and what it does to scores.

    python benchmarks/bench_normalisation.py bias                slopes on two graphs, six samplers, coverage 20, 50 and 200
    python benchmarks/bench_normalisation.py scores              recipes trained with both, the same seeds
    python benchmarks/bench_normalisation.py scores --recipes coauthor-physics --seeds 3 --epochs 20

`bias` averages the normalised mean aggregation of every node over fresh batches and fits it against the exact one, through the
origin: slope 1 is unbiased. The loss is that of a fixed loss a node, over its exact mean. A normalisation is counted
several times with different seeds; medians and the largest deviation from the median are over these. The exact probabilities of
`edge` and `node` stand beside their counted ones. `scores` trains recipes, shortened, and reports test scores at the best
validation score. Results: benchmarks/results/normalisation-bias.json and normalisation-scores.json.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

import shoal
from shoal.runs.build import make_trainer
from shoal.runs.config import read_config
from shoal.runs.data import load_graph
from shoal.runs.recipes import find_recipe
from shoal.sampling import normalize
from shoal.sampling.base import make_sampler
from shoal.sampling.normalize import count_batches, norms_from_counts, norms_from_probabilities

from timing import print_environment, save  # isort: skip

GRAPHS = {
    "blocks": {"num_nodes": 2000, "seed": 1},
    "kronecker": {"scale": 11, "seed": 1},
}
SAMPLERS = {
    "frontier": lambda n: {"budget": n // 8, "frontier": n // 40},
    "random-walk": lambda n: {"roots": n // 24, "depth": 2},
    "multi-random-walk": lambda n: {"budget": n // 8, "walkers": n // 40},
    "forest-fire": lambda n: {"budget": n // 8},
    "edge": lambda n: {"num_edges": n // 16},
    "node": lambda n: {"budget": n // 8},
}
PLUS_ONE, RATIO, EXACT = "plus one", "ratio", "exact"
FRESH = 1 << 47  # numbers of fresh batches, which no count reaches


def plain_ratio(sampler, node_counts, entry_counts, num_batches):
    """Norms with p_v = C_v / N and p_uv = C_uv / N; what was never drawn counts as drawn once."""
    norms = norms_from_counts(sampler, node_counts, entry_counts, num_batches)
    nodes = np.maximum(node_counts, 1)
    scale = (node_counts + 1) / (num_batches + 1) * num_batches / nodes
    edge_norm = np.repeat(nodes, sampler.graph.degree) / np.maximum(entry_counts, 1)
    return replace(
        norms,
        node_norm=(norms.node_norm * scale).astype(np.float32),
        edge_norm=edge_norm.astype(np.float32),
    )


def measure(sampler, norms, fresh, num_fresh):
    """(slope of aggregation, factor of the loss): the means over the fresh batches follow from their counts."""
    graph = sampler.graph
    generator = np.random.default_rng(0)
    h, losses = generator.random(graph.num_nodes), generator.random(graph.num_nodes)
    train = slice(None) if graph.train_mask is None else graph.train_mask
    drawn = fresh[0] > 0
    rows = np.repeat(np.arange(graph.num_nodes), graph.degree)
    share = fresh[1] / np.maximum(fresh[0], 1)[rows]
    values = h[graph.indices] / graph.degree[rows]
    exact = np.bincount(rows, values, graph.num_nodes)[drawn]
    ours = np.bincount(rows, values * share * norms.edge_norm, graph.num_nodes)[drawn]
    loss = (fresh[0] / num_fresh * norms.node_norm * losses)[train].sum() / losses[train].mean()
    return float(ours @ exact / (exact @ exact)), float(loss)


def run_bias(args):
    results = []
    for name in args.graphs:
        graph = shoal.load(name, **GRAPHS[name])
        for sampler_name, options in SAMPLERS.items():
            make = lambda seed: make_sampler(sampler_name, graph, seed=seed, **options(graph.num_nodes))  # noqa: E731, B023
            fresh = count_batches(make(99), args.batches)
            results += measure_sampler(name, make, fresh, args)
            save("normalisation-bias", results)
    print_environment()


def measure_sampler(graph, make, fresh, args):
    results = []
    sampler = make(0)
    exact = sampler.inclusion_probabilities()
    if exact is not None:
        found = {EXACT: [measure(sampler, norms_from_probabilities(sampler, *exact), fresh, args.batches)]}
        results.append(tell(graph, sampler.name, None, found))
    for coverage in args.coverage:
        found = {RATIO: [], PLUS_ONE: []}
        for seed in range(args.repeats):
            sampler = make(seed)
            num_batches = int(np.ceil(coverage * sampler.graph.num_nodes / sampler.batch_size))
            counts = count_batches(sampler, num_batches)
            for way, norms in ((RATIO, plain_ratio), (PLUS_ONE, norms_from_counts)):
                found[way].append(measure(sampler, norms(sampler, *counts, num_batches), fresh, args.batches))
        results.append(tell(graph, sampler.name, coverage, found))
    return results


def tell(graph, sampler, coverage, found):
    line = {"graph": graph, "sampler": sampler, "coverage": coverage}
    for way, pairs in found.items():
        for what, values in zip(("slope", "loss"), zip(*pairs)):
            middle = statistics.median(values)
            line[f"{way}: {what}"] = round(middle, 4)
            line[f"{way}: {what} deviation"] = round(max(abs(one - middle) for one in values), 4)
    print("  ".join(f"{key} {value}" for key, value in line.items() if "deviation" not in key), flush=True)
    return line


def run_scores(args):
    results = []
    ours = normalize.norms_from_counts
    for name in args.recipes:
        for seed in range(args.seeds):
            for way, norms in ((RATIO, plain_ratio), (PLUS_ONE, ours)):
                normalize.norms_from_counts = norms
                results.append({"recipe": name, "way": way, "seed": seed, **train(name, seed, args.epochs)})
                print(results[-1], flush=True)
                normalize.norms_from_counts = ours
        save("normalisation-scores", results)
    print_environment()


def train(recipe, seed, epochs):
    config = read_config(find_recipe(recipe))
    config.training.seed, config.training.epochs = seed, epochs
    graph, _ = load_graph(config)
    with tempfile.TemporaryDirectory() as folder:
        trainer = make_trainer(config, graph, Path(folder))
        history = trainer.fit(epochs)
        scores = trainer.evaluate("test")
    return {"epochs": len(history), **{key: round(value, 5) for key, value in scores.items()}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("bias", "scores"))
    parser.add_argument("--graphs", nargs="+", default=list(GRAPHS), choices=list(GRAPHS))
    parser.add_argument("--coverage", nargs="+", type=int, default=[20, 50, 200])
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--recipes", nargs="+", default=["amazon-computers", "coauthor-physics"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=30)
    args = parser.parse_args()
    {"bias": run_bias, "scores": run_scores}[args.what](args)


if __name__ == "__main__":
    main()
