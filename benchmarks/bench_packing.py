"""Whether rows that others need should stand together in a part: time to pack messages, and of the local product.

    python benchmarks/bench_packing.py --graphs soc-Slashdot0902 metis-mdual --parts 4 16

The part that sends most of METIS's, 128 columns, one thread. Its rows in the order of the graph, with the rows that
others need first, and with those ordered by the first rank that needs them too. Packing is what `HaloPlan` does before
it sends; the order of the rows changes the product with the local columns as well.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse as sp
import torch

import shoal
import timing
from shoal.distributed.halo import list_spans, take_rows
from shoal.kernels.adjacency import Adjacency
from shoal.kernels.spmm import multiply
from shoal.partitioning.part import Part

WIDTH = 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--graphs", nargs="*", default=["soc-Slashdot0902", "metis-mdual", "wordnet30"])
    parser.add_argument("--parts", type=int, nargs="*", default=[4, 16])
    parser.add_argument("--seconds", type=float, default=2, help="for each comparison")
    args = parser.parse_args()
    timing.use_threads(1)
    results = []
    for name in args.graphs:
        graph = shoal.load(name)
        for num_parts in args.parts:
            parts = shoal.partition_graph(graph, num_parts, "metis").split()
            part = max(parts, key=lambda one: one.num_sent)
            results.append({"graph": name, "parts": num_parts, **compare_orders(part, args.seconds)})
            timing.save("packing", results)
    timing.print_environment()


def list_orders(part: Part) -> dict[str, np.ndarray]:
    """Orders of the local rows, the graph's first."""
    receiver = np.repeat(np.arange(part.num_parts), np.diff(part.send_offsets))
    first = np.full(part.num_local, part.num_parts)
    np.minimum.at(first, part.send_rows, receiver)
    return {
        "as it is": np.arange(part.num_local),
        "boundary first": np.argsort(first == part.num_parts, kind="stable"),
        "boundary first, by receiver": np.argsort(first, kind="stable"),
    }


def compare_orders(part: Part, seconds: float) -> dict:
    h = torch.randn(part.num_local, WIDTH)
    out = torch.empty(part.num_sent, WIDTH)
    product = torch.empty(part.num_local, WIDTH)
    spans = list_spans(part.send_offsets)
    ones = np.ones(len(part.local_indices), np.float32)
    pattern = sp.csr_array((ones, part.local_indices, part.local_indptr), shape=(part.num_local,) * 2)
    pack, multiply_local = {}, {}
    for name, order in list_orders(part).items():
        place = np.empty(part.num_local, np.int64)
        place[order] = np.arange(part.num_local)
        rows = torch.from_numpy(place[part.send_rows])
        local = pattern[order][:, order].tocsr()
        local.sort_indices()
        adj = Adjacency(
            torch.from_numpy(local.indptr.astype(np.int64)),
            torch.from_numpy(local.indices.astype(np.int32)),
            part.num_local,
        )
        pack[name] = lambda rows=rows: [take_rows(h, rows[a:b], out[a:b]) for _, a, b in spans]
        multiply_local[name] = lambda adj=adj: multiply(adj, h, product)
    found = {
        "local_rows": part.num_local,
        "boundary_rows": len(np.unique(part.send_rows)),
        "sent_rows": part.num_sent,
        "packing": timing.interleave(pack, seconds),
        "local_product": timing.interleave(multiply_local, seconds),
    }
    print(f"{part}, {found['sent_rows']:,} rows sent")
    for what in ("packing", "local_product"):
        print(f" {what}", timing.describe(found[what], "as it is"), sep="\n", flush=True)
    return found


if __name__ == "__main__":
    main()
