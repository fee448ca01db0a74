"""python benchmarks/bench_reshuffle.py [--data amazon-computers] [--ranks 4] [--clusters 16] [--epochs 20] [--seeds 2]

JPDC'21 §8: test score where every rank samples its own part only, dealt anew after 1 or 5 epochs or never, beside ranks that sample the whole
graph; and the bytes of features that move at each deal. The steps of the ranks are taken one after the other in one process, with
the mean of their gradients, as tests/distributed/test_gradients.py holds real ranks to; bytes are those that real ranks send
(`DealtSampler.count_moved`).
"""

import argparse
import statistics

import numpy as np
import torch

import shoal
from shoal.partitioning.partition import partition_graph
from shoal.training.loss import compute_loss

from timing import print_environment, save, use_threads  # isort: skip

OPTIONS = {"depth": 2}
NEVER = 1 << 30


def list_samplers(graph, clusters, num_ranks, every, seed):
    roots = {"roots": graph.num_nodes // 40}
    if every is None:
        whole = shoal.RandomWalkSampler(graph, **OPTIONS, **roots, seed=seed)
        return [shoal.ShardedSampler(whole, rank, num_ranks) for rank in range(num_ranks)]
    given = {"assignment": clusters, "num_ranks": num_ranks, "reshuffle_every": every, "seed": seed}
    return [
        shoal.DealtSampler(graph, "random-walk", rank=rank, **given, **OPTIONS, **roots)
        for rank in range(num_ranks)
    ]


def train(graph, samplers, epochs, seed):
    """Test score at the best validation score, evaluated every second epoch."""
    model = shoal.GNN("sage", graph.num_features, 64, graph.num_classes, seed=seed)
    trainer = shoal.Trainer(model, graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    best = (0.0, 0.0)
    for epoch in range(epochs):
        model.train()
        for step in range(epoch * samplers[0].num_batches, (epoch + 1) * samplers[0].num_batches):
            optimizer.zero_grad()
            for sampler in samplers:
                batch = sampler.sample(step)
                (compute_loss(model(batch, step=batch.index), batch) / len(samplers)).backward()
            optimizer.step()
        if epoch % 2:
            best = max(best, tuple(trainer.evaluate(split)[trainer.metric] for split in ("val", "test")))
    return best[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["amazon-computers"])
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--clusters", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    use_threads(1)
    results = []
    for name in options.data:
        graph = shoal.load(name)
        graph = graph if graph.has_split else graph.with_split(seed=0)
        clusters = partition_graph(graph, options.clusters, "metis", balance="nodes").assignment
        for label, every in (("whole graph", None), ("every epoch", 1), ("every 5", 5), ("never", NEVER)):
            scores = [
                train(graph, list_samplers(graph, clusters, options.ranks, every, seed), options.epochs, seed)
                for seed in range(options.seeds)
            ]
            record = {"data": name, "dealt": label, "test": statistics.mean(scores), "scores": scores}
            if every not in (None, NEVER):
                deals = range(1, -(-options.epochs // every))
                one = list_samplers(graph, clusters, options.ranks, every, 0)[0]
                rows = [int(one.count_moved(deal).sum()) for deal in deals]
                record |= {
                    "deals": len(rows),
                    "rows_moved": sum(rows),
                    "bytes_moved": sum(rows) * graph.num_features * 4,
                }
                record["share_of_rows"] = float(np.mean(rows)) / graph.num_nodes
            results.append(record)
            print(record, flush=True)
            save("reshuffle", results)
    print_environment()


if __name__ == "__main__":
    main()
