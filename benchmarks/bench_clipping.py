"""python benchmarks/bench_clipping.py [--data amazon-computers ppi] [--rounds 15]

JPDC'21 §6.2: CPU time of a training step on subgraphs whose number of nodes is a multiple of a cache line's values (16) beside the same ones as
drawn, interleaved, one thread. Rows are stored one after the other here, padded to nothing: where they begin depends on the width of
a layer, not on how many there are.
"""

import argparse
import statistics
import time

import shoal
from shoal.sampling.clipped import ClippedSampler

from timing import print_environment, save, use_threads  # isort: skip

MULTIPLE = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", nargs="+", default=["amazon-computers", "ppi"])
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    use_threads(1)
    results = []
    for name in options.data:
        graph = shoal.load(name)
        graph = graph if graph.has_split else graph.with_split(seed=0)
        source = shoal.RandomWalkSampler(graph, roots=700, depth=2)
        model = shoal.GNN("sage", graph.num_features, 128, graph.num_classes)
        trainer = shoal.Trainer(model, graph, source)
        ways = {"as drawn": source, "clipped": ClippedSampler(source, MULTIPLE)}
        seconds = {way: [] for way in ways}
        for k in range(options.rounds + 2):
            for way in sorted(ways, reverse=k % 2 == 1):
                batch = ways[way].sample(k)
                _ = batch.x, batch.y, batch.train_mask
                started = time.process_time()
                trainer.train_step(batch)
                if k >= 2:  # the first ones compile and try variants
                    seconds[way].append((time.process_time() - started) / batch.num_nodes)
        pairs = [a / b for a, b in zip(seconds["clipped"], seconds["as drawn"])]
        low, middle, high = statistics.quantiles(pairs, n=4)
        results.append(
            {
                "data": name,
                "multiple": MULTIPLE,
                "rounds": options.rounds,
                "nodes": batch.num_nodes,
                "clipped_over_drawn": middle,
                "quartiles": [low, high],
                "microseconds_a_node": {
                    way: 1e6 * statistics.median(times) for way, times in seconds.items()
                },
            }
        )
        print(results[-1], flush=True)
    save("clipping", results)
    print_environment()


if __name__ == "__main__":
    main()
