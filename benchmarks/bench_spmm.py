"""python benchmarks/bench_spmm.py [--seconds 4] [--threads 1 2] [--keep-memory] [--rows-only]

Sparse × dense product beside torch CSR, torch addmm(out=) with int32 indices, MKL and PyG message passing: forward,
forward + backward, the feature-partitioned variant, bfloat16 storage and sparse features. A plain Numba loop of the same
product shows what the row kernel in LLVM (`shoal.kernels.rows`) is for; --rows-only measures just these two.
Ratios are peer / ours: above 1 is faster here.
"""

import argparse
import statistics
import time
import warnings
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from numba import prange

from shoal.kernels.adjacency import Adjacency
from shoal.kernels.jit import new_counter, next_chunk, parallel_kernel
from shoal.kernels.plan import explain_products
from shoal.kernels.spmm import multiply, spmm
from timing import (
    Elapsed,
    add_memory_option,
    describe,
    interleave,
    print_environment,
    save,
    use_memory_option,
    use_threads,
)  # isort: skip  (before torch)

warnings.filterwarnings("ignore")
CASES = [(8_000, 15, 64), (8_000, 15, 128), (8_000, 15, 512), (200_000, 50, 128), (1_000_000, 16, 64)]
OURS, PLAIN = "shoal", "plain Numba loop"
ROWS_A_CHUNK = 64


@parallel_kernel
def multiply_plainly(indptr, indices, h, out, num_threads):
    """`out = A · h` as one writes it in Numba: threads take chunks of rows, the inner loop adds a row of h."""
    n, f = out.shape
    counter = new_counter()
    for _ in prange(num_threads):
        chunk = next_chunk(counter)
        while chunk * ROWS_A_CHUNK < n:
            for r in range(chunk * ROWS_A_CHUNK, min(n, (chunk + 1) * ROWS_A_CHUNK)):
                for j in range(f):
                    out[r, j] = 0
                for k in range(indptr[r], indptr[r + 1]):
                    c = indices[k]
                    for j in range(f):
                        out[r, j] += h[c, j]
            chunk = next_chunk(counter)


def plain_product(adj, h, out, threads):
    arrays = [part.numpy() for part in (adj.indptr, adj.indices, h, out)]
    return lambda: multiply_plainly(*arrays, threads)


def random_adjacency(n, degree):
    """Every row has `degree` columns drawn uniformly: the worst case for caches."""
    columns = np.sort(np.random.default_rng(0).integers(0, n, (n, degree), dtype=np.int32), axis=1)
    indptr = np.arange(0, n * degree + 1, degree, dtype=np.int64)
    return Adjacency(torch.from_numpy(indptr), torch.from_numpy(columns.ravel()), n)


def torch_csr(adj, dtype):
    ones = torch.ones(adj.num_entries)
    return torch.sparse_csr_tensor(adj.indptr.to(dtype), adj.indices.to(dtype), ones, size=adj.shape)


def mkl_product(adj, h, out):
    """sparse_dot_mkl's product, or None with a loud remark when it is not installed."""
    try:
        from sparse_dot_mkl import dot_product_mkl
    except ImportError as error:
        print(f"!! PEER MISSING: sparse_dot_mkl ({error}): pip install sparse_dot_mkl mkl")
        return None
    indptr = adj.indptr.numpy().astype(np.int32)
    matrix = sp.csr_matrix(
        (np.ones(adj.num_entries, np.float32), adj.indices.numpy(), indptr), shape=adj.shape
    )
    return lambda: dot_product_mkl(matrix, h.numpy(), out=out.numpy())


def pyg_product(adj, h):
    """Message passing, or None where its edge × feature messages would not fit or it is not installed."""
    if adj.num_entries * h.shape[1] * 4 > 2 << 30:
        print("   (PyG left out: its messages would take more than 2 GiB)")
        return None
    try:
        from torch_geometric.nn import SimpleConv
    except ImportError as error:
        print(f"!! PEER MISSING: torch_geometric ({error}): pip install torch-geometric")
        return None
    rows = torch.repeat_interleave(torch.arange(adj.num_rows), adj.indptr.diff())
    edge_index = torch.stack([adj.indices.long(), rows])
    propagation = SimpleConv(aggr="sum")
    return lambda x: propagation(x, edge_index)


def forward(n, degree, f, seconds, threads):
    adj, h = random_adjacency(n, degree), torch.randn(n, f)
    long, short = torch_csr(adj, torch.int64), torch_csr(adj, torch.int32)
    ours, theirs, mkl = (torch.empty(n, f) for _ in range(3))
    half = h.bfloat16()
    half_out = torch.empty(n, f)
    contenders = {
        OURS: lambda: multiply(adj, h, ours),
        PLAIN: plain_product(adj, h, mkl, threads),
        "torch A @ h": lambda: long @ h,
        "torch addmm(out=) int32": lambda: torch.addmm(theirs, short, h, beta=0, out=theirs),
        "shoal features": lambda: multiply(adj, h, theirs, variant="features"),
        "shoal bf16 -> f32": lambda: multiply(adj, half, half_out),
    }
    if (peer := mkl_product(adj, h, mkl)) is not None:
        contenders["sparse_dot_mkl"] = peer
    if (message_passing := pyg_product(adj, h)) is not None:
        contenders["PyG message passing"] = lambda: message_passing(h)
    times = interleave(contenders, seconds, least=3)
    assert torch.allclose(ours, long @ h, rtol=1e-4, atol=1e-3)
    print(f"forward n={n:,} degree={degree} f={f} threads={threads}")
    print(describe(times, OURS))
    return {"what": "forward", "n": n, "degree": degree, "f": f, "threads": threads, "ms": times}


def rows_only(n, degree, f, seconds, threads):
    """The row kernel beside the plain loop, in processor time, which a busy machine does not stretch."""
    adj, h = random_adjacency(n, degree), torch.randn(n, f)
    ours, theirs = torch.empty(n, f), torch.empty(n, f)
    contenders = {
        OURS: count_processor_time(lambda: multiply(adj, h, ours, variant="rows")),
        PLAIN: count_processor_time(plain_product(adj, h, theirs, threads)),
    }
    times = interleave(contenders, seconds)
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-3)
    print(f"row kernel n={n:,} degree={degree} f={f} threads={threads}")
    print(describe(times, OURS))
    return {"what": "row kernel", "n": n, "degree": degree, "f": f, "threads": threads, "cpu_ms": times}


def count_processor_time(run):
    """A contender whose time is what all its threads spent on processors."""

    def timed():
        before = time.process_time()
        run()
        return Elapsed((time.process_time() - before) * 1e3)

    return timed


def with_backward(n, degree, f, seconds, threads):
    adj, g = random_adjacency(n, degree), torch.randn(n, f)
    h = torch.randn(n, f, requires_grad=True)
    long = torch_csr(adj, torch.int64)
    contenders = {
        OURS: lambda: torch.autograd.grad(spmm(adj, h), h, g),
        "torch A @ h": lambda: torch.autograd.grad(long @ h, h, g),
    }
    if (message_passing := pyg_product(adj, h)) is not None:
        contenders["PyG message passing"] = lambda: torch.autograd.grad(message_passing(h), h, g)
    times = interleave(contenders, seconds, least=3)
    print(f"forward + backward n={n:,} degree={degree} f={f} threads={threads}")
    print(describe(times, OURS))
    return {
        "what": "forward + backward",
        "n": n,
        "degree": degree,
        "f": f,
        "threads": threads,
        "ms": times,
    }


def sparse_features(seconds, threads):
    """x W and its weight gradient for a bag of words; the transpose is made anew, as for each batch."""
    n, words, f = 8_000, 5_000, 256
    matrix = sp.random_array((n, words), density=0.01, dtype=np.float32, rng=np.random.default_rng(0))
    x = Adjacency.from_scipy(matrix)
    weight, g = torch.randn(words, f, requires_grad=True), torch.randn(n, f)
    long, dense = x.to_torch(), torch.from_numpy(matrix.toarray())

    def fresh():
        batch = Adjacency(x.indptr, x.indices, words, values=x.values)
        return torch.autograd.grad(spmm(batch, weight), weight, g)

    times = interleave(
        {
            OURS: fresh,
            "torch CSR": lambda: torch.autograd.grad(long @ weight, weight, g),
            "torch dense": lambda: torch.autograd.grad(dense @ weight, weight, g),
        },
        seconds,
    )
    print(
        f"sparse features, forward + weight gradient, {n:,} x {words:,}, 50 words a row, f={f}, threads={threads}"
    )
    print(describe(times, OURS))
    return {"what": "sparse features", "n": n, "words": words, "f": f, "threads": threads, "ms": times}


def dense_subgraph(seconds, threads):
    """A sampled subgraph of a power-law graph: few nodes, high degree, where feature parts pay."""
    adj, h = random_adjacency(8_000, 100), torch.randn(8_000, 512)
    out = torch.empty(8_000, 512)
    variants = {
        f"{OURS} {name}": (lambda name=name: multiply(adj, h, out, variant=name))
        for name in ("auto", "rows", "features")
    }
    times = interleave(variants, seconds)
    print(f"variants, n=8,000 degree=100 f=512 threads={threads}")
    print(describe(times, f"{OURS} auto"))
    return {"what": "variants", "n": 8_000, "degree": 100, "f": 512, "threads": threads, "ms": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="for each case")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows-only", action="store_true", help="the row kernel beside the plain loop")
    add_memory_option(parser)
    options = parser.parse_args()
    suffix = use_memory_option(options.keep_memory)
    name = f"spmm-rows{suffix}" if options.rows_only else f"spmm{suffix}"
    results = []
    for threads in options.threads:
        use_threads(threads)
        runs = [partial(forward, *case) for case in CASES] + [
            partial(with_backward, *case) for case in CASES[:4]
        ]
        runs += [sparse_features, dense_subgraph]
        if options.rows_only:
            runs = [partial(rows_only, *case) for case in CASES[:4]]
        for run in runs:
            results.append(run(options.seconds, threads))
            save(name, results)  # what has been measured stays when the rest is interrupted
    if not options.rows_only:
        summarise(results)
    print("\n".join(explain_products()))
    print_environment()


CLAIMS = [
    ("forward", "torch A @ h", 1.6, 2.0),
    ("forward", "torch addmm(out=) int32", 0.95, 1.2),
    ("forward", "sparse_dot_mkl", 0.95, 1.2),
    ("forward", "PyG message passing", 20.0, 20.0),
    ("forward + backward", "torch A @ h", 2.5, 2.5),
]


def summarise(results):
    """Each claim's worst and median ratio, and every case that misses it."""
    print("\nclaims (worst, median over cases and threads; wanted)")
    for what, peer, each, median in CLAIMS:
        ratios = {
            (r["n"], r["degree"], r["f"], r["threads"]): r["ms"][peer]["min"] / r["ms"][OURS]["min"]
            for r in results
            if r["what"] == what and peer in r["ms"]
        }
        if not ratios:
            print(f"  {what} / {peer}: not measured")
            continue
        worst, middle = min(ratios.values()), statistics.median(ratios.values())
        print(f"  {worst:.2f}x, {middle:.2f}x  {what} / {peer} (each {each}, median {median})")
        for case, ratio in ratios.items():
            if ratio < each:
                print(f"    LOST {ratio:.2f}x at n, degree, f, threads = {case}")


if __name__ == "__main__":
    main()
