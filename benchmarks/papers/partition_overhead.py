"""python benchmarks/papers/partition_overhead.py: time of partitioning in epochs of full-batch training on one machine."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import harness
from harness import Published, Row, Table, declare, span

import bench_partition

METHODS = ("streaming", "metis", "hypergraph")
SAVED = "partition-epochs.json"


def run(settings: dict[str, Any]) -> list[Row]:
    options = Namespace(limit=settings["limit"])
    return [
        bench_partition.compare_with_epoch(name, settings["parts"], options) for name in settings["graphs"]
    ]


def add_saved(rows: list[Row]) -> list[Row]:
    known = {row["graph"] for row in rows}
    saved = harness.read_saved(SAVED)["results"]
    return rows + [one for one in saved if one["graph"] not in known]


def tabulate(rows: list[Row]) -> Table:
    table = [["graph", "parts", "an epoch", *(f"{method}, epochs" for method in METHODS), "paper"]]
    for row in add_saved(rows):
        cells = [f"{row[method]:.1f}" for method in METHODS]
        table.append(
            [row["graph"], str(row["parts"]), f"{1e3 * row['epoch_seconds']:.0f} ms", *cells, "not reported"]
        )
    return table


def explain(rows: list[Row]) -> str:
    found = add_saved(rows)
    spans = ", ".join(f"{method} {span((row[method] for row in found), 1)}" for method in METHODS)
    runs = PUBLISHED.values["bns_epochs"]
    worst, dear = (max(found, key=lambda row: row[method]) for method in ("hypergraph", "metis"))
    return (
        f"Epochs of one machine that partitioning takes: {spans}. VLDB'22 gives no time of its partitioner and measures five epochs of training; BNS-GCN calls METIS's cost negligible over {runs[0]:,} to {runs[1]:,} epochs. "
        f"METIS takes at most {dear['metis']:.1f} epochs ({dear['graph']}), {100 * dear['metis'] / runs[0]:.0f} % of the shortest of those runs in one process; on P processors an epoch is up to P times shorter, and partitioning, which is not divided here, as many times as many epochs. The hypergraph method costs up to {worst['hypergraph']:.0f} epochs ({worst['graph']}): it pays for long training, many seeds or slow links, not for a run of a few epochs."
    )


def draw(axes: Any, rows: list[Row]) -> None:
    found = add_saved(rows)
    ratios = {method: [row[method] for row in found] for method in METHODS}
    labels = {"xlabel": "partitioning / epoch of one machine", "xscale": "log"}
    harness.draw_bars(axes, [row["graph"] for row in found], ratios, **labels)


PUBLISHED = Published("VLDB'22 §5 reports no time; BNS-GCN §3.2 and §4", {"bns_epochs": [100, 3000]})
EXPERIMENT = declare(
    globals(),
    paper="partitions",
    title="Partitioning overhead in epochs",
    ours="16 parts; an epoch of SAGE, 2 layers of 128, full batch in one process, 2 threads. Partitioning in a process of its own. Graphs below the fresh ones were measured before, on a quiet machine.",
    theirs="VLDB'22: PaToH and METIS with default parameters, KaHyPar for papers100M. BNS-GCN: METIS, once before training.",
    profiles={
        "tiny": {"graphs": ["digits"], "parts": 4, "limit": 60},
        "small": {"graphs": ["cora"], "parts": 16, "limit": 300},
        "regular": {
            "graphs": ["cora", "pubmed", "amazon-computers", "wordnet30", "ppi-large"],
            "parts": 16,
            "limit": 600,
        },
        "large": {
            "graphs": ["pubmed", "wordnet30", "ppi-large", "acl-anthology"],
            "parts": 64,
            "limit": 3600,
        },
    },
)

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
