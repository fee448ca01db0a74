"""python benchmarks/bench_sparse_weight.py [--seconds 2]

What a multiply-add takes in a sparse product over one in a dense product: `SPARSE_WEIGHT` of the scheduler (`shoal.kernels.plan`). The
adjacency of a random graph times H (n × f), and H times a weight (f × f), in turn by one thread. Times are of the processor, so that other
work on the machine counts only by the caches it takes; ratios are made from the fastest. Below the cases stand their geometric mean and range. The scheduler uses one number for all of them.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import shoal
from shoal.kernels.spmm import spmm

from timing import Elapsed, interleave, print_environment, save, use_threads  # isort: skip

NODES = (2_000, 20_000)
DEGREES = (5, 20, 80)
WIDTHS = (64, 256, 512)


def measure(job: Callable[[], object]) -> Callable[[], Elapsed]:
    """A contender that reports the processor's milliseconds."""

    def run() -> Elapsed:
        before = time.process_time()
        job()
        return Elapsed((time.process_time() - before) * 1e3)

    return run


def compare(n: int, degree: int, f: int, seconds: float) -> dict:
    generator = np.random.default_rng(0)
    graph = shoal.Graph.from_edge_index(generator.integers(0, n, (2, n * degree // 2)), n, directed=False)
    adj = shoal.FullSampler(graph).sample(0).block(0).adjacency("sum")
    h, weight = torch.randn(n, f), torch.randn(f, f)
    out = torch.empty(n, f)
    with torch.no_grad():
        jobs = {"sparse": lambda: spmm(adj, h), "dense": lambda: torch.mm(h, weight, out=out)}
        times = interleave({name: measure(job) for name, job in jobs.items()}, seconds)
    each = {"sparse": adj.num_entries * f, "dense": n * f * f}
    picoseconds = {name: times[name]["min"] * 1e9 / each[name] for name in each}
    ratio = picoseconds["sparse"] / picoseconds["dense"]
    print(f"n {n:,}, degree {degree}, f {f}: {ratio:.1f}  (ps: {picoseconds})", flush=True)
    return {"nodes": n, "degree": degree, "width": f, "ratio": ratio, "ps": picoseconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    args = parser.parse_args()
    use_threads(1)
    results = [compare(n, degree, f, args.seconds) for n in NODES for degree in DEGREES for f in WIDTHS]
    ratios = [one["ratio"] for one in results]
    print(
        f"geometric mean {statistics.geometric_mean(ratios):.1f}, {min(ratios):.1f} to {max(ratios):.1f}, median {statistics.median(ratios):.1f}"
    )
    save("sparse-weight", results)
    print_environment()


if __name__ == "__main__":
    main()
