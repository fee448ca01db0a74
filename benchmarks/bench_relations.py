"""Published relations between baselines, on several graphs: LABOR and neighbours, AS-GCN and FastGCN.

    SHOAL_DATA=../shared/data python benchmarks/bench_relations.py benchmarks/results/relations.jsonl [--seeds 3]

`labor`: nodes that a batch of 1,000 training nodes reads with fan-out 10 in two layers, by LABOR and by independent neighbours (Balın and Çatalyürek 2023: fewer
nodes at the same variance). `asgcn`: test accuracy of a GCN with two layers of 64 that is trained with 128 nodes a layer, FastGCN's and AS-GCN's, on the split of both papers: all nodes
that are neither validation nor test nodes are trained on (Huang et al. 2018: above FastGCN on Cora, Citeseer and Pubmed). That of VR-GCN and the full batch at two neighbours is in bench_histories.py.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import shoal
from shoal.threads import set_threads

READ = ("ppi", "hetero-tolokers", "acl-anthology", "wordnet30")
TRAINED = ("cora", "citeseer", "pubmed")
EPOCHS = {"cora": 30, "citeseer": 30, "pubmed": 10}


def count_nodes(name: str, seed: int) -> dict[str, Any]:
    """Mean nodes of a batch's first layer over ten batches, by both samplers."""
    graph = shoal.load(name)
    graph = graph if graph.has_split else graph.with_split(seed=0)
    found = {}
    for way, kind in (("neighbours", shoal.NeighborSampler), ("labor", shoal.LaborSampler)):
        sampler = kind(graph, fanouts=(10, 10), batch_size=1000, seed=seed)
        found[way] = float(np.mean([sampler.sample(k).num_nodes for k in range(10)]))
    return found


def train_ways(name: str, seed: int) -> dict[str, Any]:
    """Test accuracy at the best validation score, by both layer-wise samplers and by the full batch."""
    graph = shoal.load(name)
    graph = shoal.Graph(
        graph.indptr,
        graph.indices,
        x=graph.x,
        y=graph.y,
        train_mask=~(graph.val_mask | graph.test_mask),
        val_mask=graph.val_mask,
        test_mask=graph.test_mask,
    )
    drawn = {"batch_size": 256, "layer_size": 128, "num_layers": 2, "seed": seed}
    found = {}
    for way, sampler in (
        ("fastgcn", shoal.FastGCNSampler(graph, **drawn)),
        ("asgcn", shoal.AdaptiveSampler(graph, **drawn)),
        ("full batch", None),
    ):
        model = shoal.GNN(
            "gcn", graph.num_features, 64, graph.num_classes, num_layers=2, dropout=0.1, seed=seed
        )
        trainer = shoal.Trainer(model, graph, sampler, lr=0.01)
        trainer.fit(EPOCHS[name] if sampler else 100)
        found[way] = trainer.evaluate("test")[trainer.metric]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    set_threads(1)
    for seed in range(args.seeds):
        jobs = [("labor", name, count_nodes) for name in READ] + [
            ("asgcn", name, train_ways) for name in TRAINED
        ]
        for relation, name, measure in jobs:
            row = {"relation": relation, "graph": name, "seed": seed, **measure(name, seed)}
            print(row, flush=True)
            with args.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
