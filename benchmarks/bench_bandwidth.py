"""python benchmarks/bench_bandwidth.py [--seconds 8] [--threads 1 2]

Bytes per second that a sparse product far larger than the cache gathers (n = 1M, degree 16, f = 64), beside the DRAM
bandwidth at which torch sums 512 MiB in the same run, and beside a loop that does nothing but read the same rows of 256
bytes, at the best of several prefetch distances: how close the product comes to what the memory can do.
"""

import argparse

import numpy as np
import torch
from numba import prange

from bench_spmm import random_adjacency
from shoal.kernels.bits import prefetch
from shoal.kernels.jit import parallel_kernel
from shoal.kernels.spmm import multiply
from timing import describe, interleave, print_environment, save, use_threads

N, DEGREE, F = 1_000_000, 16, 64
OURS = "gather in the product"
DISTANCES = (8, 16, 32, 64)
LINE = 16  # values


@parallel_kernel
def read_rows(h, indices, distance, num_threads):
    """Touch every cache line of the rows of h (flat, F columns) that `indices` names."""
    totals = np.zeros(num_threads)
    share = len(indices) // num_threads
    for thread in prange(num_threads):
        total = 0.0
        for k in range(thread * share, (thread + 1) * share):
            coming = np.int64(indices[min(k + distance, len(indices) - 1)]) * F
            row = np.uint64(indices[k]) * np.uint64(F)
            for line in range(0, F, LINE):
                prefetch(h, coming + line)
                total += h[row + np.uint64(line)]
        totals[thread] = total
    return totals.sum()


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
        contenders = {OURS: lambda: multiply(adj, h, out), "sum 512 MiB": memory.sum}
        for distance in DISTANCES:
            arguments = h.view(-1).numpy(), adj.indices.numpy(), distance, threads
            contenders[f"read rows, {distance} ahead"] = lambda arguments=arguments: read_rows(*arguments)
        times = interleave(contenders, options.seconds, least=8)
        gathered = adj.num_entries * F * 4 / times[OURS]["min"] / 1e6
        fastest = min(times[f"read rows, {distance} ahead"]["min"] for distance in DISTANCES)
        at_random = adj.num_entries * F * 4 / fastest / 1e6
        read = memory.numel() * 4 / times["sum 512 MiB"]["min"] / 1e6
        print(
            f"{gathered / read:.2f}x of the read bandwidth: {gathered:.1f} of {read:.1f} GB/s, threads={threads}"
        )
        print(f"{gathered / at_random:.2f}x of reading the same rows only: {at_random:.1f} GB/s")
        print(describe(times, OURS))
        speeds = {"gathered_GBps": gathered, "read_GBps": read, "rows_read_GBps": at_random}
        results.append({"threads": threads, **speeds, "ms": times})
        save("bandwidth", results)
    print_environment()


if __name__ == "__main__":
    main()
