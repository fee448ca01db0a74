"""python benchmarks/bench_reshuffle.py [--data amazon-computers wordnet30] [--ranks 2 4] [--clusters 16] [--epochs 20] [--seeds 3]

JPDC'21 §8: test score where every rank samples its own part only, dealt anew after 1 or 5 epochs or never, beside ranks that sample the whole
graph; the bytes of features that move at a deal, and its seconds. Real ranks of one thread (`reshuffle_rank.py`), gloo on one machine. A deal is
timed on the slowest rank: extracting the part's graph, sending rows, waiting for others. Epochs are medians without deals, seconds of the wall.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np

import shoal
from bench_boundary import start_ranks
from shoal.partitioning.partition import partition_graph

from timing import print_environment, save  # isort: skip

DEALT = {"whole graph": None, "every epoch": 1, "every 5": 5, "never": 1 << 30}


def measure(name, num_ranks, options):
    """One record for each way of dealing, over all seeds."""
    graph = shoal.load(name)
    clusters = partition_graph(graph, options.clusters, "metis", balance="nodes").assignment
    common = {"data": name, "epochs": options.epochs, "roots": graph.num_nodes // 40}
    jobs = [
        common | {"dealt": dealt, "every": every, "seed": seed}
        for seed in range(options.seeds)
        for dealt, every in DEALT.items()
    ]
    with tempfile.TemporaryDirectory() as place:
        np.save(Path(place) / "clusters.npy", clusters)
        out = Path(place) / "out"
        start_ranks(num_ranks, Path(place), jobs, out, "reshuffle_rank.py")
        lines = [json.loads(line) for line in out.read_text().splitlines()]
    for dealt in DEALT:
        found = [line for line in lines if line["dealt"] == dealt]
        scores = [line["test"] for line in found]
        record = {"data": name, "ranks": num_ranks, "dealt": dealt, "test": statistics.mean(scores)}
        record |= {"scores": scores, "epoch": statistics.median(line["epoch"] for line in found)}
        if found[0]["deals"]:
            deals = [deal for line in found for deal in line["deals"]]
            bytes_moved = statistics.mean(line["bytes"] for line in found)
            rows = bytes_moved / (4 * graph.num_features * len(found[0]["deals"]))
            record |= {"deals": len(found[0]["deals"]), "bytes_moved": bytes_moved}
            record |= {"share_of_rows": rows / graph.num_nodes, "deal": statistics.median(deals)}
            record |= {"deals_seconds": deals}
        yield record


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["amazon-computers", "wordnet30"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--clusters", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    results = []
    for name in options.data:
        for num_ranks in options.ranks:
            for record in measure(name, num_ranks, options):
                results.append(record)
                print({key: value for key, value in record.items() if key != "deals_seconds"}, flush=True)
            save("reshuffle", results)
    print_environment()


if __name__ == "__main__":
    main()
