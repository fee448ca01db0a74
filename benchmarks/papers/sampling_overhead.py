"""python benchmarks/papers/sampling_overhead.py: time of sampling over that of training: boundary sampling beside node, edge and walk samplers."""

from __future__ import annotations

import time
from typing import Any

import harness
from harness import Published, Row, Table, declare, group, mean, percent, span

import shoal
from timing import use_threads

RATES = (0.1, 0.01)


def run(settings: dict[str, Any]) -> list[Row]:
    graph = harness.load_graph(settings["graph"])
    rows = [measure_sampler(graph, name, settings) for name in ("node", "edge", "random walk")]
    model = {"model": "sage", "hidden": settings["hidden"], "num_layers": 2, "dropout": 0.1}
    common = {"model": model, "training": {"lr": 0.003, "epochs": settings["epochs"], "eval_every": 1000}}
    for parts in settings["parts"]:
        jobs = [harness.make_job(rate, exchange={"cover": False}, **common) for rate in RATES]
        for line in harness.train_on_ranks(graph, parts, "metis", jobs):
            share = line["costs"]["sampling"] / line["seconds"]
            rows.append(
                {
                    "graph": settings["graph"],
                    "way": f"boundary, p = {line['rate']:g}",
                    "parts": parts,
                    "share": share,
                }
            )
            print(rows[-1], flush=True)
    return rows


def measure_sampler(graph: shoal.Graph, name: str, settings: dict[str, Any]) -> Row:
    """Processor seconds of drawing batches over those of training on them, one thread."""
    use_threads(1)
    n = graph.num_nodes
    sampler: shoal.Sampler
    if name == "node":
        sampler = shoal.NodeSampler(graph, budget=n // 8)
    elif name == "edge":
        sampler = shoal.EdgeSampler(graph, num_edges=n // 12)
    else:
        sampler = shoal.RandomWalkSampler(graph, roots=n // 20, depth=2)
    model = shoal.GNN("sage", graph.num_features, settings["hidden"], graph.num_classes, num_layers=2)
    trainer = shoal.Trainer(model, graph, sampler)
    drawing = training = 0.0
    for k in range(settings["batches"] + 2):
        started = time.process_time()
        batch = sampler.sample(k)
        drawn = time.process_time()
        trainer.train_step(batch)
        if k >= 2:
            drawing += drawn - started
            training += time.process_time() - drawn
    return {"graph": settings["graph"], "way": name, "parts": 1, "share": drawing / (drawing + training)}


def tabulate(rows: list[Row]) -> Table:
    table = [["graph", "sampler", "parts", "sampling, share of the time", "paper (Reddit)"]]
    for row in rows:
        theirs = PUBLISHED.values.get(row["way"], {})
        paper = theirs.get(row["parts"], theirs.get(1)) if isinstance(theirs, dict) else None
        table.append(
            [
                row["graph"],
                row["way"],
                str(row["parts"]),
                percent(row["share"], 1),
                percent(paper, 1) if paper is not None else "–",
            ]
        )
    return table


def explain(rows: list[Row]) -> str:
    plain = [row for row in rows if row["parts"] == 1]
    boundary = [row for row in rows if row["parts"] > 1]
    by_parts = ", ".join(
        f"{span((100 * row['share'] for row in boundary if row['parts'] == parts), 1)} % on {parts}"
        for parts in sorted({row["parts"] for row in boundary})
    )
    theirs = [
        value
        for name, found in PUBLISHED.values.items()
        if name.startswith("boundary")
        for value in found.values()
    ]
    cited = span((100 * PUBLISHED.values[name][1] for name in ("node", "edge", "random walk")), 0)
    others = f"Node, edge and walk samplers take {span((100 * row['share'] for row in plain), 1)} % here, inducing the subgraph included, and {cited} % in the paper, which cites GraphSAINT: that trains on a GPU, which shortens training, so that sampling on the host is a larger share."
    shares = [mean(row["share"] for row in found) for found in group(boundary, "parts").values()]
    growth = (
        "It grows with the parts as there, since boundaries grow while the work of a part shrinks. "
        if shares == sorted(shares)
        else "It does not grow with the parts as it does there; more ranks than cores lengthen an epoch, which may hide it. "
    )
    return f"Boundary sampling takes this share of an epoch: {by_parts} parts; the paper's {span((100 * value for value in theirs), 1)} %. {growth}{others}"


def draw(axes: Any, rows: list[Row]) -> None:
    drawn = group([row for row in rows if row["way"] in ("boundary, p = 0.1", "random walk")], "graph")
    labels = {"xlabel": "parts (1: random-walk sampler)", "ylabel": "sampling, % of the time, p = 0.1"}
    harness.draw_lines(axes, drawn, "parts", lambda row: 100 * row["share"], **labels)
    paper = PUBLISHED.values["boundary, p = 0.1"]
    axes.plot(list(paper), [100 * share for share in paper.values()], "k--", label="paper, Reddit")


PUBLISHED = Published(
    "BNS-GCN table 12",
    {
        "node": {1: 0.23},
        "edge": {1: 0.20},
        "random walk": {1: 0.24},
        "boundary, p = 0.1": {2: 0.017, 4: 0.032, 8: 0.066},
        "boundary, p = 0.01": {2: 0.013, 4: 0.030, 8: 0.073},
    },
)
EXPERIMENT = declare(
    globals(),
    paper="boundary",
    title="Overhead of sampling",
    ours="amazon-computers in place of Reddit, SAGE of 2 layers of 128. Samplers: one thread, an eighth of the nodes in a batch, share of sampling and training together. Boundary: real ranks, the slowest rank's seconds, median epoch.",
    theirs="Sampling time over training time. Reddit on 2, 4 and 8 GPUs; node, edge and walk from GraphSAINT on Reddit.",
    profiles={
        "tiny": {"graph": "digits", "parts": [2], "hidden": 16, "epochs": 5, "batches": 2},
        "small": {"graph": "amazon-computers", "parts": [2, 4], "hidden": 128, "epochs": 10, "batches": 10},
        "regular": {
            "graph": "amazon-computers",
            "parts": [2, 4, 8],
            "hidden": 256,
            "epochs": 30,
            "batches": 100,
        },
        "large": {"graph": "acl-anthology", "parts": [2, 4, 8], "hidden": 256, "epochs": 30, "batches": 100},
    },
)

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
