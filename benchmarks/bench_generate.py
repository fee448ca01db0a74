"""Seconds to make graphs of ten million edges: `python benchmarks/bench_generate.py [--edges N] [--repeat R]`.

Prints, for each generator, the median and the spread of the whole call (edges, features, CSR, validation),
then the peak memory of the process and the environment. The first call compiles and is not counted.
"""

import argparse
import os
import platform
import resource
import statistics
import time

import numba
import numpy as np

from shoal.datasets.generators import GENERATORS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--edges", type=int, default=10_000_000, help="edges drawn before merging")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    scale = 20
    cases = {
        "blocks": {"num_nodes": max(options.edges // 10, 10), "degree": 20},
        "kronecker": {"scale": scale, "degree": 2 * options.edges / 2**scale},
    }
    for name, settings in cases.items():
        make = GENERATORS[name]
        make(**{**settings, "degree": 1})
        seconds = []
        for seed in range(options.repeat):
            start = time.perf_counter()
            graph = make(**settings, seed=seed)
            seconds.append(time.perf_counter() - start)
        print(
            f"{name}: {statistics.median(seconds):.2f} s (from {min(seconds):.2f} to {max(seconds):.2f}), "
            f"{options.edges:,} edges drawn, {graph.num_edges:,} kept, {graph.num_nodes:,} nodes, "
            f"{graph.num_features} features"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GB; {numba.get_num_threads()} threads of {os.cpu_count()} cores")
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}")


if __name__ == "__main__":
    main()
