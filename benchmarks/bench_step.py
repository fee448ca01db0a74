"""python benchmarks/bench_step.py [--seconds 20] [--threads 1 2] [--keep-memory] [--dgl dgl/bin/python]

A whole training step (forward, loss, backward, Adam) of a 2-layer SAGE, hidden 512, 500 inputs, dropout 0.1, on a
subgraph of 8,000 nodes and mean degree 15, beside PyG, torch CSR and DGL computing the same function
`[mean(H) W_neigh ‖ H W_self]`, and beside the roofline: the step's dense products at the speed of one large product
measured in the same run, plus the bytes its sparse products gather at the read bandwidth measured in the same run.
Mean aggregation beside DGL too. DGL runs in an environment of its own (see dgl_worker.py): --dgl names its Python.
Ratios are peer / ours: above 1 is faster here.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import shoal
from shoal.batch import Batch
from shoal.block import Block
from shoal.kernels.spmm import multiply
from shoal.training.loss import compute_loss
from timing import (
    Worker,
    add_memory_option,
    describe,
    interleave,
    print_environment,
    save,
    use_memory_option,
    use_threads,
)  # isort: skip  (before torch)

warnings.filterwarnings("ignore")
OURS = "shoal"
INPUTS, HIDDEN, CLASSES, RATE = 500, 512, 50, 0.1
WIDTHS = [(INPUTS, HIDDEN), (HIDDEN, HIDDEN)]


def random_graph(n, degree, f, seed=0):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, n, (2, n * degree // 2), dtype=np.int32)
    x = rng.standard_normal((n, f), np.float32)
    mask = np.ones(n, bool)
    return shoal.Graph.from_edge_index(
        ends, n, directed=False, x=x, y=rng.integers(0, CLASSES, n), train_mask=mask
    )


def shoal_step(graph):
    torch.manual_seed(0)
    model = shoal.GNN("sage", INPUTS, HIDDEN, CLASSES, norm="none", dropout=RATE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    nodes = np.arange(graph.num_nodes)
    block = Block(torch.from_numpy(graph.indptr), torch.from_numpy(graph.indices), len(nodes), symmetric=True)
    batch = Batch(graph, nodes, (block,))
    steps = iter(range(1 << 30))

    def step():
        block._adjacencies.clear()  # a sampled batch makes its operator anew
        loss = compute_loss(model(batch, step=next(steps)), batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


class Layer(nn.Module):
    """The same layer in torch, around any mean aggregation."""

    def __init__(self, f_in, f_out, aggregate):
        super().__init__()
        self.neighbours = nn.Linear(f_in, f_out // 2, bias=False)
        self.own = nn.Linear(f_in, f_out // 2, bias=False)
        self.bias = nn.Parameter(torch.zeros(f_out))
        self.aggregate = aggregate

    def forward(self, h):
        z = self.aggregate(self.neighbours(h))
        return functional.dropout(torch.relu(torch.cat([z, self.own(h)], 1) + self.bias), RATE)


def torch_step(graph, layers):
    torch.manual_seed(0)
    model = nn.Sequential(*layers, nn.Linear(HIDDEN, CLASSES))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
    x, y = torch.from_numpy(graph.x), torch.from_numpy(graph.y)

    def step():
        loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def csr_layers(graph):
    block = shoal.FullSampler(graph).sample(0).blocks[0]
    mean = block.adjacency("mean").to_torch()
    return [Layer(a, b, lambda h: mean @ h) for a, b in WIDTHS]


class PygLayer(nn.Module):
    """PyG's SAGEConv as it comes: `mean(H) W_neigh + H W_self`, both full width, so twice the dense work."""

    def __init__(self, f_in, f_out, edge_index):
        from torch_geometric.nn import SAGEConv

        super().__init__()
        self.conv, self.edge_index = SAGEConv(f_in, f_out), edge_index

    def forward(self, h):
        return functional.dropout(torch.relu(self.conv(h, self.edge_index)), RATE)


def pyg_layers(graph):
    from torch_geometric.nn import SimpleConv

    edge_index = shoal.FullSampler(graph).sample(0).edge_index
    conv = SimpleConv(aggr="mean")
    same = [Layer(a, b, lambda h: conv(h, edge_index)) for a, b in WIDTHS]
    return same, [PygLayer(a, b, edge_index) for a, b in WIDTHS]


def time_beside_dgl(dgl, contender, request, graph, seconds, folder):
    """Minimum times in ms of `contender` here and of DGL there, taking turns."""
    path = Path(folder) / f"{graph.num_nodes}.pt"
    torch.save(
        {
            "indptr": torch.from_numpy(graph.indptr),
            "indices": torch.from_numpy(graph.indices).long(),
            "h": torch.from_numpy(graph.x),
            "y": torch.from_numpy(graph.y),
        },
        path,
    )
    dgl.ask({**request, "path": str(path)})
    contender()
    ours, theirs, end = [], [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        contender()
        ours.append((time.perf_counter() - start) * 1e3)
        theirs.append(dgl.ask({}))
    return {OURS: min(ours), "DGL": min(theirs)}


def measure_roofline(graph):
    """Milliseconds the step cannot go below: dense work at the best measured speed + bytes gathered."""
    a, b = torch.randn(4096, 2048), torch.randn(2048, 2048)
    out = torch.empty(4096, 2048)
    gemm = interleave({"gemm": lambda: torch.mm(a, b, out=out)}, 1.5)["gemm"]["min"]
    flops_per_ms = 2 * 4096 * 2048 * 2048 / gemm
    n, entries = graph.num_nodes, graph.num_entries
    forward = sum(a * b for a, b in WIDTHS) + HIDDEN * CLASSES
    flops = 2 * n * (3 * forward - INPUTS * HIDDEN)  # the input needs no gradient
    h = torch.randn(n, HIDDEN // 2)
    read = interleave({"read": lambda: h.sum()}, 0.5)["read"]["min"]
    bytes_per_ms = h.numel() * 4 / read
    gathered = 4 * entries * (HIDDEN // 2) * 4  # two layers, forward and backward, projected first
    return {"gemm_gflops": flops_per_ms / 1e6, "ms": flops / flops_per_ms + gathered / bytes_per_ms}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--dgl", help="Python of an environment that has DGL")
    add_memory_option(parser)
    options = parser.parse_args()
    suffix = use_memory_option(options.keep_memory)
    if not options.dgl:
        print("!! PEER MISSING: DGL. See dgl_worker.py for its environment; name its Python with --dgl")
    graph = random_graph(8_000, 15, INPUTS)
    results = []
    for threads in options.threads:
        use_threads(threads)
        same, as_it_comes = pyg_layers(graph)
        contenders = {
            OURS: shoal_step(graph),
            "torch CSR": torch_step(graph, csr_layers(graph)),
            "PyG, same function": torch_step(graph, same),
            "PyG SAGEConv (twice the dense work)": torch_step(graph, as_it_comes),
        }
        times = interleave(contenders, options.seconds)
        bound = measure_roofline(graph)
        print(
            f"training step, {threads} threads: {bound['ms'] / times[OURS]['min']:.0%} of the roofline ({bound['ms']:.1f} ms)"
        )
        print(describe(times, OURS))
        results.append({"case": "step", "threads": threads, "times_ms": times, "roofline": bound})
        if options.dgl:
            results += compare_dgl(options.dgl, graph, threads, options.seconds / 2)
    results.append(measure_clipping())
    save(f"step{suffix}", results)
    print_environment()


def measure_clipping():
    """Whether dense products like a round number of rows: time a row at such numbers and next to them."""
    weight, grad = torch.randn(HIDDEN, HIDDEN), torch.empty(HIDDEN, HIDDEN)
    runs, rows = {}, (7983, 7984, 7999, 8000)
    for n in rows:
        h, out = torch.randn(n, HIDDEN), torch.empty(n, HIDDEN)
        runs[str(n)] = lambda h=h, out=out: (torch.mm(h, weight, out=out), torch.mm(h.t(), out, out=grad))
    times = interleave(runs, 4)
    per_row = {n: times[str(n)]["min"] / n * 1e3 for n in rows}
    print(
        "rows, multiples of 16 and not: " + ", ".join(f"{n:,} {us:.2f} µs a row" for n, us in per_row.items())
    )
    return {"case": "clipping", "us_per_row": per_row}


def compare_dgl(python, graph, threads, seconds):
    results = []
    dgl = Worker(python, "dgl_worker.py")
    with tempfile.TemporaryDirectory() as folder:
        request = {"case": "step", "threads": threads, "widths": WIDTHS, "rate": RATE, "classes": CLASSES}
        cases = [("step", graph, shoal_step(graph), request)]
        for n, degree, f in ((8_000, 15, 512), (200_000, 50, 128)):
            wide = random_graph(n, degree, f)
            adj = shoal.FullSampler(wide).sample(0).blocks[0].adjacency("mean")
            h = torch.from_numpy(wide.x)
            name = f"mean aggregation n={n} deg={degree} f={f}"
            cases.append(
                (name, wide, lambda adj=adj, h=h: multiply(adj, h), {"case": "mean", "threads": threads})
            )
        for name, each, contender, ask in cases:
            times = time_beside_dgl(dgl, contender, ask, each, seconds, folder)
            print(
                f"{name}, {threads} threads: {times['DGL'] / times[OURS]:.2f}x DGL ({times[OURS]:.2f} against {times['DGL']:.2f} ms)"
            )
            results.append({"case": name, "threads": threads, "times_ms": times})
    dgl.close()
    return results


if __name__ == "__main__":
    main()
