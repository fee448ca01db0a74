"""python benchmarks/papers/depth.py: an epoch and its sampled nodes as the model gets deeper, subgraphs beside neighbour sampling.

Both run on Shoal's kernels, so the ratio is of methods and not of programming languages.
"""

from __future__ import annotations

from typing import Any

import harness
from harness import Published, Row, Table, declare, group

import bench_depth
import shoal
from timing import use_threads

WAYS = ("random walk", "neighbour")


def run(settings: dict[str, Any]) -> list[Row]:
    use_threads(settings["threads"])
    graph = harness.load_graph(settings["graph"])
    rows = []
    for layers in settings["layers"]:
        for way in WAYS:
            if way == "random walk":
                sampler: shoal.Sampler = shoal.RandomWalkSampler(graph, roots=settings["roots"], depth=2)
            else:
                fanouts = [settings["fanout"]] * layers
                sampler = shoal.NeighborSampler(graph, fanouts=fanouts, batch_size=settings["batch_size"])
            found = bench_depth.time_epoch(graph, sampler, layers)
            rows.append({"graph": settings["graph"], "way": way, **found})
            print(rows[-1], flush=True)
    return rows


def pairs(rows: list[Row]) -> list[tuple[int, Row, Row]]:
    by = {(row["layers"], row["way"]): row for row in rows}
    return [
        (layers, by[layers, WAYS[0]], by[layers, WAYS[1]])
        for layers in sorted({row["layers"] for row in rows})
        if (layers, WAYS[1]) in by
    ]


def tabulate(rows: list[Row]) -> Table:
    table = [
        [
            *["layers", "subgraphs, epoch", "neighbours, epoch", "ratio", "paper, 1 core", "paper, 40 cores"],
            *["nodes a batch, subgraphs", "nodes a batch, neighbours"],
        ]
    ]
    for layers, ours, theirs in pairs(rows):
        paper = [f"{PUBLISHED.values[key].get(layers, 0):g}" for key in ("one", "forty")]
        table.append(
            [
                *[str(layers), f"{ours['seconds']:.2f} s", f"{theirs['seconds']:.2f} s"],
                f"{theirs['seconds'] / ours['seconds']:.2f}",
                *("–" if value == "0" else value for value in paper),
                *[f"{ours['nodes']:,.0f}", f"{theirs['nodes']:,.0f}"],
            ]
        )
    return table


def explain(rows: list[Row]) -> str:
    found = pairs(rows)
    first, last = found[0], found[-1]
    fit = bench_depth.deviation_from_line([row for row in rows if row["way"] == WAYS[0]])
    ratios = ", ".join(
        f"{theirs['seconds'] / ours['seconds']:.1f} with {layers}" for layers, ours, theirs in found
    )
    behind = [str(layers) for layers, ours, theirs in found if theirs["seconds"] < ours["seconds"]]
    slower = (
        f" Neighbour sampling is the faster one with {' and '.join(behind)} {'layer' if behind == ['1'] else 'layers'}."
        if behind
        else ""
    )
    return (
        f"An epoch of subgraphs grows with the depth within {100 * fit:.0f} % of a straight line (figure 8); neighbour sampling takes {last[2]['seconds'] / first[2]['seconds']:.0f} times as long with {last[0]} layers as with {first[0]}, "
        f"since a batch of it reads {last[2]['nodes']:,.0f} nodes by then and one of subgraphs {last[1]['nodes']:,.0f} (figure 7: it converges to the whole graph). The ratio of epochs is {ratios} layers.{slower} "
        "Table II of IPDPS'19 has the same direction and larger ratios: it sets C++ beside TensorFlow, on a denser graph. The paper names neighbour explosion for both its growth with depth and, by the traffic it causes, that with cores. With equal kernels the neighbour explosion alone is left."
    )


def draw(axes: Any, rows: list[Row]) -> None:
    first = {way: found[0]["seconds"] for way, found in group(rows, "way").items()}
    labels = {"xlabel": "layers", "ylabel": "epoch / epoch with one layer", "yscale": "log"}
    harness.draw_lines(
        axes, group(rows, "way"), "layers", lambda row: row["seconds"] / first[row["way"]], **labels
    )


PUBLISHED = Published(
    "IPDPS'19 table II; JPDC'21 figures 7 and 8",
    {"one": {1: 2.03, 2: 7.74, 3: 335.36}, "forty": {1: 23.93, 2: 37.44, 3: 1306.21}},
)
EXPERIMENT = declare(
    globals(),
    paper="subgraphs",
    title="Deeper models",
    ours="SAGE, hidden 128, 2 threads, wordnet30 in place of Reddit; random-walk subgraphs (3,000 roots) and neighbour sampling (fan-out 10, 1,024 outputs). Six batches of an epoch are timed and scaled up.",
    theirs="Table II: Reddit, the authors' C++ beside GraphSAGE in TensorFlow on 1 to 40 cores. Figures 7 and 8: nodes sampled in each layer, and time of an iteration over that with one layer, on PPI, Reddit, Yelp and Amazon, 40 cores.",
    profiles={
        "tiny": {"graph": "digits", "layers": [1, 2], "roots": 100, "batch_size": 100},
        "small": {"graph": "wordnet30", "layers": [1, 2, 3, 4, 5]},
        "regular": {"graph": "wordnet30", "layers": [1, 2, 3, 4, 5, 6]},
        "large": {"graph": "acl-anthology", "layers": [1, 2, 3, 4, 5, 6, 7, 8]},
    },
    common={"roots": 3000, "fanout": 10, "batch_size": 1024, "threads": 2},
)

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
