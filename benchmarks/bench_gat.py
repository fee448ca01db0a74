"""python benchmarks/bench_gat.py [--seconds 6] [--threads 1 2] [--keep-memory]

One GAT layer, 8 heads × 64, forward + backward, beside PyG's GATConv with the same weights: time, and how much memory
the layer adds at its peak. Each peak is taken in a fresh process. Ratios are peer / ours: above 1 is better here.
"""

import argparse
import multiprocessing
import warnings
from functools import partial
from pathlib import Path

import torch

from bench_spmm import random_adjacency
from shoal.kernels.attention import gat_attention
from timing import (
    add_memory_option,
    describe,
    interleave,
    print_environment,
    save,
    use_memory_option,
    use_threads,
)  # isort: skip  (before torch)

warnings.filterwarnings("ignore")
HEADS, F, F_IN = 8, 64, 128
CASES = [(8_000, 15)]
OURS = "shoal"


def make_layers(n, degree):
    from torch_geometric.nn import GATConv

    torch.manual_seed(0)
    adj = random_adjacency(n, degree)
    rows = torch.repeat_interleave(torch.arange(n), adj.indptr.diff())
    edge_index = torch.stack([adj.indices.long(), rows])
    conv = GATConv(F_IN, F, heads=HEADS, add_self_loops=False, bias=False)
    x = torch.randn(n, F_IN)

    def ours():
        z = conv.lin(x).view(n, HEADS, F)
        return gat_attention(adj, z, (z * conv.att_dst).sum(-1), (z * conv.att_src).sum(-1)).flatten(1)

    return {OURS: ours, "PyG GATConv": lambda: conv(x, edge_index)}, conv


def step(layer, conv):
    conv.zero_grad()
    layer().square().sum().backward()


def memory_of(field):
    """VmRSS (now) or VmHWM (highest since the last reset) of this process, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def peak_of(name, n, degree, queue):
    """MiB that one forward and backward add to the process at their peak."""
    layers, conv = make_layers(n, degree)
    small, small_conv = make_layers(100, 3)  # compiles and warms up everything
    step(small[name], small_conv)
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
    before = memory_of("VmRSS")
    step(layers[name], conv)
    queue.put(memory_of("VmHWM") - before)


def measure_peak(name, n, degree):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=peak_of, args=(name, n, degree, queue))
    process.start()
    peak = queue.get(timeout=300)
    process.join()
    return peak


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="for each case")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    add_memory_option(parser)
    options = parser.parse_args()
    suffix = use_memory_option(options.keep_memory)
    results = []
    for n, degree in CASES:
        layers, conv = make_layers(n, degree)
        assert torch.allclose(layers[OURS](), layers["PyG GATConv"](), atol=1e-4)
        peaks = {name: measure_peak(name, n, degree) for name in layers}
        for threads in options.threads:
            use_threads(threads)
            contenders = {name: partial(step, layer, conv) for name, layer in layers.items()}
            times = interleave(contenders, options.seconds, least=3)
            print(
                f"GAT layer forward + backward n={n:,} degree={degree} {HEADS} heads x {F} threads={threads}"
            )
            print(describe(times, OURS))
            results.append({"n": n, "degree": degree, "threads": threads, "ms": times, "peak_MiB": peaks})
        ratio = peaks["PyG GATConv"] / peaks[OURS]
        print(f"  {ratio:.1f}x less memory at the peak: {peaks[OURS]:.0f} of {peaks['PyG GATConv']:.0f} MiB")
    save(f"gat{suffix}", results)
    print_environment()


if __name__ == "__main__":
    main()
