"""python benchmarks/papers/random_parts.py: boundary nodes, memory, throughput and scores with METIS parts and with random ones.

Counts and the memory model are exact; ranks train with both kinds of parts. Test scores of settled runs come from
benchmarks/results/boundary-scores.jsonl, epochs of four hosts joined by slow links from boundary-hosts.jsonl.
"""

from __future__ import annotations

from typing import Any

import harness
import rates
import throughput
from harness import Published, Row, Table, declare, group, percent, span
from rates import find_gaps, list_saved

from bench_boundary import _SAGE, _TRAINING
from shoal.partitioning.quality import measure_quality

RATE = 0.1
RATES = (1.0, RATE, 0.0)
METHODS = ("metis", "random")
SAVED = (rates.SAVED, throughput.SAVED)


def run(settings: dict[str, Any]) -> list[Row]:
    return [count(name, parts) for name, parts in settings["graphs"]] + train(settings)


def count(name: str, parts: int) -> Row:
    """Boundary nodes, and the largest part's memory at p = 0.1 over that at p = 1, by the model."""
    graph = harness.load_graph(name)
    row: Row = {"kind": "counted", "graph": name, "parts": parts, "nodes": graph.num_nodes}
    for method in METHODS:
        found = measure_quality(graph, harness.cut_graph(graph, parts, method), parts)
        size, halo = found.parts["nodes"], found.parts["received"]
        row[method] = {
            "boundary": found.total_volume,
            "memory": float((3 * size + RATE * halo).max() / (3 * size + halo).max()),
        }
    print(row, flush=True)
    return row


def train(settings: dict[str, Any]) -> list[Row]:
    """Real ranks with both kinds of parts: the shortest epoch, bytes, time of messages and the test score at each rate."""
    graph = harness.load_graph(settings["trained"])
    common = {"model": _SAGE, "training": _TRAINING | {"epochs": settings["epochs"]}}
    jobs = [harness.make_job(rate, exchange={"cover": False}, **common) for rate in RATES]
    rows: list[Row] = []
    for parts in settings["ranks"]:
        for method in METHODS:
            for line in harness.train_on_ranks(graph, parts, method, jobs):
                told = {"kind": "trained", "graph": settings["trained"], "parts": parts, "method": method}
                told |= {name: line[name] for name in ("rate", "bytes", "seconds", "best_seconds", "test")}
                rows.append(told | {"exposed": line["costs"]["exposed"]})
                print(rows[-1], flush=True)
    return rows


def pick(rows: list[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


def index(rows: list[Row]) -> dict[int, dict[str, dict[float, Row]]]:
    """Trained rows by parts, method and rate."""
    return {
        parts: {method: {row["rate"]: row for row in some} for method, some in group(found, "method").items()}
        for parts, found in group(pick(rows, "trained"), "parts").items()
    }


def find_gain(found: dict[float, Row], name: str = "best_seconds") -> float:
    return float(found[1.0][name] / found[RATE][name])


def list_gains(graph: str) -> dict[str, list[float]]:
    """By speed of the links of four hosts: the gain of p = 0.1 with METIS parts and with random ones."""
    lines = [one for method in METHODS for one in throughput.list_hosts(graph, method) if one["rate"] == RATE]
    return {speed: [one["gain"] for one in found] for speed, found in group(lines, "speed").items()}


def tabulate(rows: list[Row]) -> Table:
    table = [
        [
            *["graph, parts", "boundary nodes: METIS", "random", "random / METIS"],
            *["memory, p = 0.1 / p = 1: METIS", "random"],
            *["throughput, p = 0.1 / p = 1: METIS", "random"],
            *["test score at p = 1, 0.1, 0: METIS", "random"],
        ]
    ]
    for row in pick(rows, "counted"):
        metis, chance = (row[method] for method in METHODS)
        cells = say_counts(*(one["boundary"] for one in (metis, chance)))
        memory = [f"{one['memory']:.2f}" for one in (metis, chance)]
        table.append([f"{row['graph']}, {row['parts']}", *cells, *memory, *["–"] * 4])
    for parts, found in index(rows).items():
        gains = [f"{find_gain(found[method]):.2f}" for method in METHODS]
        tests = [
            ", ".join(f"{100 * found[method][rate]['test']:.2f}" for rate in RATES) for method in METHODS
        ]
        name = found["metis"][1.0]["graph"]
        table.append([f"{name}, {parts} ranks here", *["–"] * 5, *gains, *tests])
    name = pick(rows, "trained")[0]["graph"]
    for speed, pair in list_gains(name).items():
        gains = [f"{gain:.2f}" for gain in pair]
        table.append([f"{name}, 4 hosts at {speed}", *["–"] * 5, *gains, "–", "–"])
    for name, paper in PUBLISHED.values.items():
        cells = say_counts(*paper["boundary"])
        pairs = [f"{one:.2f}" for one in paper["memory"]] + [f"{one:.1f}" for one in paper["throughput"]]
        tests = [", ".join(f"{test:.2f}" for test in paper[method]) for method in METHODS]
        table.append([f"paper: {name}", *cells, *pairs, *tests])
    return table


def say_counts(metis: int, chance: int) -> list[str]:
    return [f"{metis:,}", f"{chance:,}", f"{chance / metis:.1f}"]


def explain(rows: list[Row]) -> str:
    counted, paper = pick(rows, "counted"), list(PUBLISHED.values.values())
    ratios = [row["random"]["boundary"] / row["metis"]["boundary"] for row in counted]
    gains = all(row["random"]["memory"] < row["metis"]["memory"] for row in counted)
    tenth = find_gaps(list_saved("random"), RATE)
    metis = find_gaps(list_saved("metis"), RATE)
    said = ", ".join(f"{graph} {gap - metis[graph]:+.2f}" for graph, gap in tenth.items() if graph in metis)
    worse = [graph for graph, gap in tenth.items() if gap < -0.3]
    apart = {i: [one["random"][i] - one["metis"][i] for one in paper] for i in (1, 2)}
    return (
        f"Random parts have {span(ratios, 1)} times the boundary nodes of METIS's, {span((one['boundary'][1] / one['boundary'][0] for one in paper), 1)} times in table 8. Sampling saves more memory on random parts {'on every graph, as there' if gains else 'on some graphs only'}. "
        f"{explain_throughput(rows)}"
        f"Settled scores of p = 0.1 on random parts against p = 1, less the same on METIS's parts, in points: {said}; table 7 has {min(apart[1]):+.2f} to {max(apart[1]):+.2f}. {len(worse)} of {len(tenth)} graphs lose more than 0.3 to p = 1 ({', '.join(f'{graph} {tenth[graph]:+.2f}' for graph in worse) or 'none'}): nearly every neighbour is a boundary node in random parts, so a tenth of the graph is all that a layer reads. "
        f"Isolated parts, p = 0, of random nodes less those of METIS, one seed: {', '.join(say_isolated(parts, found) for parts, found in index(rows).items())}; {min(apart[2]):+.2f} to {max(apart[2]):+.2f} points in table 7."
    )


def say_isolated(parts: int, found: dict[str, dict[float, Row]]) -> str:
    gap = 100 * (found["random"][0.0]["test"] - found["metis"][0.0]["test"])
    return f"{gap:+.2f} points on {parts} parts"


def explain_throughput(rows: list[Row]) -> str:
    name = pick(rows, "trained")[0]["graph"]
    here = ", ".join(
        f"{find_gain(found['metis']):.2f} and {find_gain(found['random']):.2f} on {parts} ranks of this machine"
        for parts, found in index(rows).items()
    )
    links = list_gains(name)
    there = "".join(f", {a:.2f} and {b:.2f} on 4 hosts at {speed}" for speed, (a, b) in links.items())
    more = [b > a for a, b in links.values()]
    waiting = [
        percent(found[method][1.0]["exposed"] / found[method][1.0]["seconds"])
        for found in index(rows).values()
        for method in METHODS
    ]
    theirs = [[one["throughput"][i] for one in PUBLISHED.values.values()] for i in (0, 1)]
    agrees = "agrees across slow links" if more and all(more) else "is not seen on every link"
    return (
        f"p = 0.1 has this many times the throughput of p = 1 with METIS's and with random parts of {name}: {here}{there}; table 8 has {span(theirs[0], 1)} and {span(theirs[1], 1)}. "
        f"That random parts gain more, since they send more, {agrees}; on one machine messages are memory copies, so that there is little to gain, and ranks that share two cores wait for each other more than for bytes ({', '.join(waiting)} of an epoch at p = 1): [other runs](../lab/2026-11-16-ranks.md#boundary-sampling) have other ratios. "
    )


def draw(axes: Any, rows: list[Row]) -> None:
    counted = pick(rows, "counted")
    names = [f"{row['graph']}, {row['parts']}" for row in counted]
    ratios = {method: [row[method]["boundary"] / row["nodes"] for row in counted] for method in METHODS}
    harness.draw_bars(axes, names, ratios, xlabel="boundary nodes / nodes")


PUBLISHED = Published(
    "BNS-GCN tables 4, 7 and 8",  # pairs: METIS, random; scores at p = 1, 0.1, 0
    {
        "Reddit, 8": {
            "boundary": [460_000, 1_016_000],
            "memory": [0.47, 0.36],
            "throughput": [3.1, 5.0],
            "metis": [97.11, 97.15, 96.84],
            "random": [97.11, 96.95, 93.37],
        },
        "ogbn-products, 10": {
            "boundary": [1_848_000, 16_797_000],
            "memory": [0.75, 0.31],
            "throughput": [3.4, 7.3],
            "metis": [79.14, 79.30, 78.79],
            "random": [79.14, 79.57, 75.39],
        },
        "Yelp, 10": {
            "boundary": [649_000, 2_026_000],
            "memory": [0.83, 0.49],
            "throughput": [3.1, 5.1],
            "metis": [65.26, 65.34, 65.23],
            "random": [65.26, 65.18, 64.92],
        },
    },
)
EXPERIMENT = declare(
    globals(),
    paper="boundary",
    title="Random parts",
    ours="METIS's cut and random parts; memory by the model (3 n_inner + p n_boundary) of the largest part. acl-anthology stands in for Reddit, wordnet30 and amazon-computers for the sparser graphs. Ranks: SAGE of 3 layers of 64, one thread each, gloo on two cores, the shortest epoch, one run of one seed; the first layer's input is exchanged once. Hosts: four network namespaces with links of the stated rate, GCN of 3 layers of 64, made-up features, partial sums at p = 1 where they are fewer than rows, measured before.",
    theirs="METIS minimising volume; memory and throughput measured on 8 and 10 GPUs at p = 0.1 over p = 1, each GPU a part.",
    profiles={
        "tiny": {"graphs": [["digits", 4]], "trained": "digits", "ranks": [2], "epochs": 5},
        "small": {
            "graphs": [["acl-anthology", 8], ["wordnet30", 10], ["amazon-computers", 8]],
            "ranks": [4],
        },
        "regular": {
            "graphs": [
                ["acl-anthology", 8],
                ["wordnet30", 10],
                ["amazon-computers", 8],
                ["ppi-large", 10],
                ["flickr-asu", 8],
            ],
            "ranks": [2, 4, 8],
        },
        "large": {
            "graphs": [["acl-anthology", 8], ["flickr-asu", 8], ["kronecker:20:16", 10]],
            "ranks": [2, 4, 8],
        },
    },
    common={"trained": "amazon-computers", "epochs": 150},
)

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
