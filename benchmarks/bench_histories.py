"""Histories beside the same batches without them and beside full batch: test score, loss, and how far gradients are off.

    SHOAL_DATA=../shared/data python benchmarks/bench_histories.py benchmarks/results/histories.jsonl [--graphs cora …]

`neighbours`: GCN, fan-out 2, outputs in quarters of the training nodes, at most 512 (VR-GCN with a history). `subgraphs`: SAGE, random walks
from a twentieth of the nodes (GAS with a history). Two layers of 64, dense features, one thread, a fixed number of passes over the training
nodes; the test score is that of the best validation score. `gradient` is the mean over 20 batches of |g - g_full|² / |g_full|² at the
weights of the end, without dropout: bias and variance of a step together. A line is added for every combination of graph, way and
seed; those that the file has are left out.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

import shoal
from shoal.threads import set_threads

EPOCHS = {"cora": 60, "pubmed": 60, "amazon-computers": 24, "ppi": 24}
OPTIONS = {"ppi": {"standardize": True}}
WAYS = ("full, gcn", "neighbours", "neighbours, history", "full, sage", "subgraphs", "subgraphs, history")
COMMON = {"num_layers": 2, "dropout": 0.1}


def load(name: str) -> shoal.Graph:
    """The graph with dense features, so that the first layer starts from `A x`."""
    graph = shoal.load(name, **OPTIONS.get(name, {}))
    graph = graph if graph.has_split else graph.with_split(seed=0)
    x = graph.x if isinstance(graph.x, torch.Tensor) or not hasattr(graph.x, "toarray") else graph.x.toarray()
    return shoal.Graph(
        graph.indptr,
        graph.indices,
        x=x,
        y=graph.y,
        train_mask=graph.train_mask,
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
        num_classes=graph.num_classes,
        name=name,
    )


def make(graph: shoal.Graph, way: str, seed: int) -> shoal.Trainer:
    """A trainer for one way."""
    num_train = int(graph.train_mask.sum())
    layered = way.startswith(("neighbours", "full, gcn"))
    model = shoal.GNN(
        "gcn" if layered else "sage", graph.num_features, 64, graph.num_classes, seed=seed, **COMMON
    )
    sampler: shoal.sampling.base.Sampler | None = None
    if way.startswith("neighbours"):
        size = min(512, -(-num_train // 4))
        sampler = shoal.NeighborSampler(graph, fanouts=(2, 2), batch_size=size, seed=seed)
    elif way.startswith("subgraphs"):
        sampler = shoal.RandomWalkSampler(graph, roots=max(100, graph.num_nodes // 20), depth=2, seed=seed)
    return shoal.Trainer(model, graph, sampler, lr=0.01, eval_every=4, history=way.endswith("history"))


def take_gradient(trainer: shoal.Trainer, batch: shoal.Batch) -> torch.Tensor:
    """What a step on a batch would use, without dropout; histories stay as they are."""
    for layer in trainer.model.layers:
        layer.dropout = 0.0
    trainer.model.train()
    trainer.model.zero_grad()
    share = trainer.share
    logits = share.histories.run(batch) if hasattr(share, "histories") else trainer.model(batch)
    trainer.task.measure(logits, batch).backward()
    return torch.cat([weight.grad.flatten() for weight in trainer.model.parameters()])


def measure(graph: shoal.Graph, way: str, seed: int) -> dict[str, float]:
    trainer = make(graph, way, seed)
    steps = EPOCHS[graph.name]
    if way.startswith("full"):  # as many steps as the batches of the other way take, at most 100
        other = make(graph, "neighbours" if way.endswith("gcn") else "subgraphs", seed)
        steps = min(100, steps * other.sampler.num_batches)
    started = time.process_time()
    records = trainer.fit(steps)
    seconds = time.process_time() - started
    test = trainer.evaluate("test")[trainer.metric]
    trainer.model.load_state_dict(trainer.last_weights)
    whole = shoal.FullSampler(graph).sample(0)
    plain = shoal.Trainer(trainer.model, graph)
    exact = take_gradient(plain, whole)
    with torch.no_grad():
        loss = float(plain.task.measure(trainer.model(whole), whole))
    first = trainer.epoch * trainer.sampler.num_batches
    off = [
        float(
            (take_gradient(trainer, trainer.sampler.sample(k)) - exact).square().sum() / exact.square().sum()
        )
        for k in range(first, first + 20)
    ]
    return {
        "epochs": trainer.epoch,
        "steps": trainer.epoch * trainer.sampler.num_batches,
        "val": trainer.best_score,
        "test": test,
        "loss": loss,
        "last_loss": records[-1]["loss"],
        "gradient": sum(off) / len(off),
        "cpu_seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--graphs", nargs="+", default=list(EPOCHS))
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    set_threads(1)
    known = (
        [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    )
    done = {(one["graph"], one["way"], one["seed"]) for one in known}
    for seed in range(options.seeds):
        for name in options.graphs:
            graph = load(name)
            for way in options.ways:
                if (name, way, seed) not in done:
                    record = {"graph": name, "way": way, "seed": seed} | measure(graph, way, seed)
                    with options.out.open("a") as file:
                        file.write(json.dumps(record) + "\n")
                    print(record, flush=True)


if __name__ == "__main__":
    main()
