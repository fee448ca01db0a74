"""python benchmarks/bench_versions.py --before OTHER/src [--rounds 8] [--threads 1 2]

This checkout beside another one of the same package, in turn, each in a process of its own: a training step (2-layer
SAGE, hidden 512, 500 inputs, dropout 0.1, layer norm, a subgraph of 8,000 nodes and mean degree 15), an epoch of
training with random walks (blocks, 10,000 nodes), and drawing batches (random walk and frontier, Kronecker graph of
2^17 nodes). Figures are CPU milliseconds of the process, medians over the rounds; the ratio is other / this one: above 1
is faster here.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

WORKER = """
import json, sys, time
import shoal, torch, numpy as np
threads = int(sys.argv[1])
from shoal.threads import set_threads
set_threads(threads)
torch.manual_seed(0)

def best(work, rounds, inner=1):
    work()
    found = []
    for _ in range(rounds):
        started = time.process_time()
        for _ in range(inner):
            work()
        found.append((time.process_time() - started) / inner * 1e3)
    return min(found)

rng = np.random.default_rng(0)
n = 8000
ends = rng.integers(0, n, (2, n * 15 // 2))
graph = shoal.Graph.from_edge_index(ends, n, directed=False, x=rng.standard_normal((n, 500), np.float32),
    y=rng.integers(0, 50, n), train_mask=np.ones(n, bool))
sampler = shoal.NodeSampler(graph, budget=10**6)
trainer = shoal.Trainer(shoal.GNN("sage", 500, 512, 50, seed=0), graph, sampler)
train = getattr(trainer, "train_epoch", None) or trainer._train_epoch
result = {"step": best(train, 6)}
blocks = shoal.load("blocks")
walks = shoal.RandomWalkSampler(blocks, roots=1000, depth=2)
epochs = shoal.Trainer(shoal.GNN("sage", blocks.num_features, 128, blocks.num_classes, seed=0), blocks, walks)
train = getattr(epochs, "train_epoch", None) or epochs._train_epoch
result["epoch"] = best(train, 6)
big = shoal.load("kronecker", scale=17, degree=16, seed=1)
for name, sampler in (("random walk", shoal.RandomWalkSampler(big)), ("frontier", shoal.FrontierSampler(big))):
    numbers = iter(range(10**9))
    result[name] = best(lambda: sampler.sample(next(numbers)), 6, 20)
print(json.dumps(result))
"""


def measure(source: Path, threads: int) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(source.resolve())}
    line = [sys.executable, "-c", WORKER, str(threads)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="src folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    args = parser.parse_args()
    sources = {"before": args.before, "now": Path(__file__).resolve().parents[1] / "src"}
    rows = []
    for threads in args.threads:
        found: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
        for source in sources.values():
            measure(source, threads)  # compiles
        for number in range(args.rounds):
            for name in list(sources)[:: 1 if number % 2 else -1]:
                found[name].append(measure(sources[name], threads))
        for what in found["now"][0]:
            before, now = (statistics.median(one[what] for one in found[name]) for name in sources)
            ratios = sorted(a[what] / b[what] for a, b in zip(found["before"], found["now"]))
            rows.append({"threads": threads, "what": what, "ratio": before / now, "before_ms": before, "now_ms": now,
                         "ratios": [round(ratio, 3) for ratio in ratios]})  # fmt: skip
            print(f"{before / now:5.2f}  {what}, {threads} threads: before {before:.2f} ms, now {now:.2f} ms")
    path = Path(__file__).parent / "results/versions.json"
    path.write_text(
        json.dumps({"rounds": args.rounds, "load": os.getloadavg(), "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
