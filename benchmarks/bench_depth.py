"""python benchmarks/bench_depth.py [--data NAME …] [--layers 1 … 8] [--limit 40] [--threads 2]

JPDC'21 figures 7 and 8: time of an epoch as the model gets deeper, for subgraphs (random walks) and for GraphSAGE's
neighbour sampling with the same kernels, and the nodes whose features a batch reads. An epoch of either sees every
training node about once. Time per layer is the growth over one layer; the fit is the largest deviation from the
straight line through 1 and 8 layers. A depth is left out when the one before took longer than --limit seconds.
"""

import argparse
import statistics
from itertools import islice

import shoal

from timing import print_environment, save, use_threads  # isort: skip

HIDDEN, FANOUT, BATCH, MAX_BATCHES = 128, 10, 1024, 6


def time_epoch(graph, sampler, layers):
    """Seconds of an epoch: of MAX_BATCHES of its batches at most, scaled up; and the nodes and entries of a batch."""
    model = shoal.GNN("sage", graph.num_features, HIDDEN, graph.num_classes, num_layers=layers)
    trainer = shoal.Trainer(model, graph, sampler)
    whole, part = sampler.num_batches, min(sampler.num_batches, MAX_BATCHES)

    def train():
        return trainer.train_epoch(batches=islice(sampler.epoch(trainer.epoch), part))["seconds"]

    train()  # compiles, and lets the scheduler try its variants
    seconds = min(train() for _ in range(3)) * whole / part
    batches = [sampler.sample(k) for k in range(3)]
    nodes = statistics.mean(batch.num_nodes for batch in batches)
    entries = statistics.mean(sum(batch.edges_per_layer) for batch in batches)
    return {"layers": layers, "seconds": seconds, "batches": whole, "nodes": nodes, "entries": entries}


def deviation_from_line(records):
    """Largest relative deviation of the times from the straight line through the shallowest and the deepest."""
    first, last = records[0], records[-1]
    slope = (last["seconds"] - first["seconds"]) / max(last["layers"] - first["layers"], 1)
    line = [first["seconds"] + slope * (record["layers"] - first["layers"]) for record in records]
    return max(abs(record["seconds"] / on_line - 1) for record, on_line in zip(records, line))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["blocks"])
    parser.add_argument("--layers", type=int, nargs="+", default=list(range(1, 9)))
    parser.add_argument("--limit", type=float, default=40.0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    use_threads(options.threads)
    results = []
    for name in options.data:
        graph = shoal.load(name)
        graph = graph if graph.has_split else graph.with_split(seed=0)
        for label in ("random walk", "neighbour"):
            records = []
            for layers in options.layers:
                if records and records[-1]["seconds"] > options.limit:
                    print(f"{name}, {label}: {layers} layers and more left out")
                    break
                sampler = (
                    shoal.RandomWalkSampler(graph, roots=3000, depth=2)
                    if label == "random walk"
                    else shoal.NeighborSampler(graph, fanouts=[FANOUT] * layers, batch_size=BATCH)
                )
                records.append(time_epoch(graph, sampler, layers))
                r = records[-1]
                print(
                    f"{name}, {label}, {layers} layers: {r['seconds']:8.3f} s an epoch ({r['seconds'] / records[0]['seconds']:.2f}x one layer), {r['nodes']:,.0f} nodes a batch",
                    flush=True,
                )
            result = {"data": name, "sampler": label, "depths": records}
            if len(records) > 2:
                result["deviation_from_line"] = deviation_from_line(records)
                print(f"  within {result['deviation_from_line']:.0%} of a straight line")
            results.append(result)
            save("depth", results)
    print_environment()


if __name__ == "__main__":
    main()
