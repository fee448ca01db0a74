"""python benchmarks/bench_bandwidth.py [--seconds 8] [--threads 1 2]

Bytes per second that a sparse product far larger than the cache gathers (n = 1M, degree 16, f = 64), beside the DRAM
bandwidth at which torch sums 512 MiB in the same run: how close the product comes to what the memory can do.
"""

import argparse

import torch

from bench_spmm import random_adjacency
from shoal.kernels.spmm import multiply
from timing import describe, interleave, print_environment, save, use_threads

N, DEGREE, F = 1_000_000, 16, 64
OURS = "gather in the product"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    adj, h, out = random_adjacency(N, DEGREE), torch.randn(N, F), torch.empty(N, F)
    memory = torch.ones(512 << 18)
    results = []
    for threads in options.threads:
        use_threads(threads)
        times = interleave(
            {OURS: lambda: multiply(adj, h, out), "sum 512 MiB": memory.sum}, options.seconds, least=8
        )
        gathered = adj.num_entries * F * 4 / times[OURS]["min"] / 1e6
        read = memory.numel() * 4 / times["sum 512 MiB"]["min"] / 1e6
        print(
            f"{gathered / read:.2f}x of the read bandwidth: {gathered:.1f} of {read:.1f} GB/s, threads={threads}"
        )
        print(describe(times, OURS))
        results.append({"threads": threads, "gathered_GBps": gathered, "read_GBps": read, "ms": times})
        save("bandwidth", results)
    print_environment()


if __name__ == "__main__":
    main()
