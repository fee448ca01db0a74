"""What an order of the nodes is worth: products, extraction, pages of features that batches touch.

    SHOAL_DATA=… python benchmarks/bench_order.py --graphs amazon-computers wordnet30 kronecker acl-anthology

Every graph as it is, numbered at random and in every order of `shoal data order`. The product is A·H with 128 columns,
one thread, CPU time. Batches are drawn once from the graph as it is and renumbered, so that every order has the same ones. Pages are
4 KiB of a feature matrix of 128 float32 columns, eight rows. Ratios are to the graph as it is: below 1 the order wins,
and where it loses a line says so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

import shoal
import timing
from shoal.datasets.orders import ORDERS
from shoal.datasets.reorder import mean_gap, reorder_graph, take_order
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.induce import SubgraphExtractor
from shoal.kernels.spmm import multiply

WIDTH = 128
PAGE = 4096
BATCHES = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = ["amazon-computers", "wordnet30", "kronecker", "acl-anthology"]
    parser.add_argument("--graphs", nargs="*", default=default)
    parser.add_argument("--scale", type=int, default=18, help="of the Kronecker graph")
    parser.add_argument("--seconds", type=float, default=3, help="for each comparison")
    args = parser.parse_args()
    timing.use_threads(1)
    results = []
    for name in args.graphs:
        settings = {"scale": args.scale, "num_features": 0} if name == "kronecker" else {}
        results += compare_orders(name, shoal.load(name, **settings), args.seconds)
        timing.save("order", results)
    lost = [
        (one["graph"], one["order"], what, ratio)
        for one in results
        for what, ratio in one["ratios"].items()
        if ratio > 1 and one["order"] != "random"
    ]
    for graph, order, what, ratio in lost:
        print(f"LOSES: {order} on {graph}, {what}: {ratio:.2f} of the graph as it is")
    timing.print_environment()


def compare_orders(name: str, graph: shoal.Graph, seconds: float) -> list[dict]:
    batches = draw_batches(graph)
    h = torch.randn(graph.num_nodes, WIDTH)
    out = torch.empty_like(h)
    plain = shoal.Graph(graph.indptr, graph.indices, directed=graph.directed, name=name)
    orders: dict[str, tuple[np.ndarray, float]] = {
        "as it is": (np.arange(graph.num_nodes), 0.0),
        "random": (np.random.default_rng(0).permutation(graph.num_nodes), 0.0),
    }
    for by in ORDERS:
        began = time.process_time()
        orders[by] = np.asarray(reorder_graph(plain, by).node_ids), time.process_time() - began
    products, extractions, found = {}, {}, []
    for by, (order, spent) in orders.items():
        ordered = take_order(plain, order)
        number = np.empty(graph.num_nodes, np.int64)
        number[order] = np.arange(graph.num_nodes)
        adj = Adjacency(torch.from_numpy(ordered.indptr), torch.from_numpy(ordered.indices), graph.num_nodes)
        nodes = [np.sort(number[one]) for one in batches["frontier"]]
        extractor = SubgraphExtractor(ordered.indptr, ordered.indices)
        products[by] = on_cpu(lambda adj=adj: multiply(adj, h, out))
        extractions[by] = on_cpu(lambda nodes=nodes, e=extractor: [e.extract(one) for one in nodes])
        pages = {
            kind: float(np.mean([count_pages(number[one]) for one in drawn]))
            for kind, drawn in batches.items()
        }
        rows = {kind: float(np.mean([len(one) for one in drawn])) for kind, drawn in batches.items()}
        gap = mean_gap(ordered)
        found.append(
            {"graph": name, "order": by, "cpu_seconds": spent, "gap": gap, "rows": rows, "pages": pages}
        )
    product, extraction = timing.interleave(products, seconds), timing.interleave(extractions, seconds)
    first = found[0]
    print(f"{name}: {graph.num_nodes:,} nodes, {graph.num_entries:,} entries; ratios to the graph as it is")
    for one in found:
        by = one["order"]
        one["product"], one["extraction"] = product[by], extraction[by]
        one["ratios"] = {
            "product": product[by]["min"] / product["as it is"]["min"],
            "extraction": extraction[by]["min"] / extraction["as it is"]["min"],
            **{f"pages, {kind}": one["pages"][kind] / first["pages"][kind] for kind in batches},
        }
        shown = "  ".join(f"{what} {ratio:.2f}" for what, ratio in one["ratios"].items())
        print(f"  {by:<12} {shown}  gap {one['gap']:,.0f}  ({one['cpu_seconds']:.1f} s CPU)", flush=True)
    return found


def on_cpu(run: Callable[[], object]) -> Callable[[], timing.Elapsed]:
    """A contender timed by the processor's seconds, which others on the machine lengthen less."""

    def timed() -> timing.Elapsed:
        began = time.process_time()
        run()
        return timing.Elapsed((time.process_time() - began) * 1e3)

    return timed


def draw_batches(graph: shoal.Graph) -> dict[str, list[np.ndarray]]:
    """The nodes whose features each batch reads."""
    samplers = {
        "frontier": shoal.FrontierSampler(graph, 4000, 500),
        "random walk": shoal.RandomWalkSampler(graph, roots=1500, depth=2),
        "cluster": shoal.ClusterSampler(
            graph, num_parts=max(graph.num_nodes // 2000, 8), clusters_per_batch=8
        ),
    }
    return {name: [one.draw_nodes(k) for k in range(BATCHES)] for name, one in samplers.items()}


def count_pages(nodes: np.ndarray) -> int:
    return len(np.unique(nodes // (PAGE // (4 * WIDTH))))


if __name__ == "__main__":
    main()
