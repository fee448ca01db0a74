"""The six tables of docs/benchmarks.md, read from benchmarks/results. Ratios are peer / ours; below 1 they are bold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from traces import MARGIN, find_time, keep_best, set_against  # isort: skip

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results"

Record = dict[str, Any]
Table = list[list[str]]  # the header first


def read(name: str) -> Any:
    path = next(iter(sorted(RESULTS.glob(f"{name}.json*"))))
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def fastest(times: Any) -> float:
    return times["min"] if isinstance(times, dict) else times


def times(ratio: float | None) -> str:
    """A ratio peer / ours, bold where the peer is faster."""
    if ratio is None:
        return "–"
    said = f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 2 else f"{ratio:.2f}"
    return f"**{said}**" if ratio < 1 else said


def ms(value: float) -> str:
    return f"{value:,.0f}\u00a0ms" if value >= 100 else f"{value:.3g}\u00a0ms"


def score(value: float) -> str:
    return f"{value:.4f}".lstrip("0")


def render(table: Table, most: int = 8) -> str:
    assert len(table) <= most + 1, f"at most {most} rows"
    lines = [table[0], ["---"] * len(table[0]), *table[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# -- products and steps ------------------------------------------------------------------------------------------------

PEERS = {
    "torch `A @ h`": "torch A @ h",
    "torch `addmm`, int32": "torch addmm(out=) int32",
    "MKL": "sparse_dot_mkl",
    "PyG": "PyG message passing",
}


def tabulate_products() -> Table:
    table = [["product, 2 threads", "Shoal", *PEERS, "torch, 1 thread"]]
    rows = [row for row in read("spmm")["results"] if row["what"] in ("forward", "forward + backward")]
    for row in rows:
        if row["threads"] != 2 or (row["what"] != "forward" and row["f"] == 64):
            continue
        keys = ("what", "n", "degree", "f")
        alone = next(one for one in rows if one["threads"] == 1 and all(one[key] == row[key] for key in keys))
        best = fastest(row["ms"]["shoal"])
        ratios = [fastest(row["ms"][peer]) / best if peer in row["ms"] else None for peer in PEERS.values()]
        single = fastest(alone["ms"]["torch A @ h"]) / fastest(alone["ms"]["shoal"])
        name = f"{row['what']}, n = {row['n']:,}, degree {row['degree']}, width {row['f']}"
        table.append([name, ms(best), *map(times, ratios), times(single)])
    return table


def find_steps(file: str, case: str, threads: int, peer: str) -> tuple[float, float]:
    """(ours, the peer's) in ms, of the run that had both."""
    for row in read(file)["results"]:
        if row["case"].startswith(case) and row.get("threads") == threads and peer in row["times_ms"]:
            return fastest(row["times_ms"]["shoal"]), fastest(row["times_ms"][peer])
    raise LookupError(f"{file}: no {case} beside {peer}")


def find_attention(file: str, threads: int) -> tuple[float, float]:
    row = next(row for row in read(file)["results"] if row["threads"] == threads)
    return fastest(row["ms"]["shoal"]), fastest(row["ms"]["PyG GATConv"])


STEPS = {
    "SAGE step, torch CSR": ("step", "torch CSR"),
    "SAGE step, PyG, same function": ("step", "PyG, same function"),
    "SAGE step, PyG `SAGEConv` (twice the dense work)": ("step", "PyG SAGEConv (twice the dense work)"),
    "SAGE step, DGL 2.1, same function": ("step", "DGL"),
    "mean aggregation, n = 8,000, width 512, DGL": ("mean aggregation n=8000", "DGL"),
    "mean aggregation, n = 200,000, width 128, DGL": ("mean aggregation n=200000", "DGL"),
}


def tabulate_steps() -> Table:
    table = [
        ["step, peer", "Shoal", "peer", "ratio, 2 threads", "1 thread", "2 threads, both keep freed memory"]
    ]
    for name, (case, peer) in STEPS.items():
        runs = [
            find_steps(file, case, threads, peer)
            for file, threads in (("step", 2), ("step", 1), ("step-memory-kept", 2))
        ]
        table.append([name, *map(ms, runs[0]), *(times(theirs / ours) for ours, theirs in runs)])
    runs = [find_attention("gat", 2), find_attention("gat", 1), find_attention("gat-memory-kept", 2)]
    table.append(
        [
            "GAT layer, 8 heads × 64, PyG `GATConv`",
            *map(ms, runs[0]),
            *(times(theirs / ours) for ours, theirs in runs),
        ]
    )
    bounds = []
    for file, threads in (("step", 2), ("step", 1), ("step-memory-kept", 2)):
        row = next(
            row for row in read(file)["results"] if row.get("threads") == threads and "roofline" in row
        )
        bounds.append((fastest(row["times_ms"]["shoal"]), row["roofline"]["ms"]))
    table.append(
        [
            "SAGE step, its roofline (dense products and memory)",
            *map(ms, bounds[0]),
            *(times(bound / ours) for ours, bound in bounds),
        ]
    )
    return table


# -- sampling ----------------------------------------------------------------------------------------------------------

SAMPLING = (  # what, file, part of it, claim, ours, peer
    ("frontier draw, 2²⁰ nodes", "sampling-regular", "draw", "frontier draw, 2^20", "clocks", "numpy"),
    ("frontier draw, 2²⁰ nodes", "sampling-regular", "draw", "frontier draw, 2^20", "clocks", "fenwick"),
    (
        "random-walk subgraph, normalised, PPI",
        "sampling-pyg",
        "walk",
        "random walk subgraph, normalised, edge_index, ppi",
        "ours",
        "PyG",
    ),
    (
        "random-walk subgraph, normalised, 2²⁰ nodes",
        "sampling-pyg",
        "walk",
        "random walk subgraph, normalised, edge_index, 2^20",
        "ours",
        "PyG",
    ),
    ("random-walk subgraph, PPI", "sampling-regular", "walk", "random walk subgraph, ppi", "ours", "numpy"),
    ("edge subgraph, PPI", "sampling-regular", "walk", "edge subgraph, ppi", "ours", "numpy"),
    (
        "16 frontier subgraphs, 2 threads",
        "sampling-regular",
        "threads",
        "16 frontier",
        "2 threads",
        "1 threads",
    ),
    (
        "frontier subgraph of 2²⁴ nodes, beside 2²⁰",
        "sampling-large",
        "growth",
        "frontier subgraph",
        "2^24 nodes",
        "2^20 nodes",
    ),
)
PEER_NAMES = {
    "numpy": "NumPy",
    "fenwick": "Fenwick tree, Numba",
    "1 threads": "Shoal, 1 thread",
    "2^20 nodes": "Shoal, 2²⁰ nodes",
}


def tabulate_sampling() -> Table:
    table = [["sampling, 1 thread", "peer", "Shoal", "peer", "ratio"]]
    for what, file, part, claim, ours, peer in SAMPLING:
        row = next(
            row
            for row in read(file)[part]["results"]
            if row["claim"].startswith(claim) and (row["ours"], row["peer"]) == (ours, peer)
        )
        mine, theirs = fastest(row["ours_ms"]), fastest(row["peer_ms"])
        table.append([what, PEER_NAMES.get(peer, peer), ms(mine), ms(theirs), times(theirs / mine)])
    return table


# -- time to a score ---------------------------------------------------------------------------------------------------

# The longer runs of a graph take the place of the shorter ones.
SCORE_FILES = ("acl", "wordnet", "wordnet-4", "ppi-large", "ppi", "longer", "small")


def list_cases() -> list[Record]:
    """One record a graph and depth: test scores by the end, ratios of the time to a common validation score."""
    cases: dict[tuple[str, int], Record] = {}
    for file in SCORE_FILES:
        for result in read(f"time-to-score-{file}")["results"]:
            ways = {name: way["traces"] for name, way in result["ways"].items() if way["traces"]}
            if "subgraphs" not in ways:
                continue
            curves = {name: keep_best(traces) for name, traces in ways.items()}
            goal = curves["full batch"][-1][2] - MARGIN
            ratios = {}
            for name in ways:
                _, ours, theirs = set_against(ways["subgraphs"], ways[name])
                ratios[name] = theirs / ours if ours and theirs else None
            case = {
                "name": result["data"]
                + (f" with {result['layers']} layers" if result["layers"] != 2 else ""),
                "nodes": result["nodes"],
                "tests": {name: curve[-1][2] for name, curve in curves.items()},
                "reached": find_time(curves["subgraphs"], 2, goal),
                "ratios": ratios,
            }
            cases.setdefault((result["data"], result["layers"]), case)
    return sorted(cases.values(), key=lambda case: (-case["nodes"], case["name"]))


def tabulate_times() -> Table:
    table = [
        [
            *["graph, SAGE of 2 layers", "nodes", "full batch", "subgraphs", "neighbours"],
            *["ratio, full batch", "ratio, neighbours", "ratio, PyG full batch"],
        ]
    ]
    for case in list_cases()[:8]:
        tests, ratios = case["tests"], case["ratios"]
        table.append(
            [
                *[case["name"], f"{case['nodes']:,}"],
                *(score(tests[name]) for name in ("full batch", "subgraphs", "neighbours")),
                *(times(ratios.get(name)) for name in ("full batch", "neighbours", "PyG full batch")),
            ]
        )
    return table


# -- partitions and exchanges ------------------------------------------------------------------------------------------

PARTS = 16


def tabulate_partitions() -> Table:
    table = [
        [
            *["graph, 16 parts", "rows sent, random", "METIS cut", "METIS volume", "`hypergraph`"],
            *["items sent, `cover`", "CPU s, METIS cut", "CPU s, `hypergraph`"],
        ]
    ]
    covers = {(row["graph"], row["parts"]): row["methods"] for row in read("cover-volumes")["results"]}
    rows = [row for row in read("partition-volumes")["results"] if row["parts"] == PARTS]
    rows.sort(key=lambda row: -row["random"]["total_volume"])
    for row in rows[:8]:
        whole = row["random"]["total_volume"]
        cells = []
        for method in ("metis", "metis-volume", "hypergraph"):
            found = row["methods"].get(method, {}).get("total_volume")
            cells.append(f"{found / whole:.3f}" if found else "–")
        cover = covers.get((row["graph"], PARTS), {}).get("cover", {}).get("cover")
        seconds = [f"{row['methods'][method]['cpu_seconds']:.1f}" for method in ("metis", "hypergraph")]
        sums = f"{cover / whole:.3f}" if cover else "–"
        table.append([row["graph"], f"{whole:,.0f}", *cells, sums, *seconds])
    return table


RATES = {"100mbit": "100 Mbit/s", "1gbit": "1 Gbit/s"}


def list_exchanges() -> dict[str, dict[tuple[str, str], Record]]:
    """Way → (graph, rate) → record, of four hosts."""
    found: dict[str, dict[tuple[str, str], Record]] = {}
    for row in read("exchange"):
        found.setdefault(row["way"], {})[row["graph"], row["rate"]] = row
    return found


def tabulate_exchanges() -> Table:
    """Epochs by every exchange, in brackets how many times as fast as rows."""
    ways = list_exchanges()
    cases = list(ways["rows"])
    graphs = list(dict.fromkeys(graph for graph, _ in cases))
    header = ["exchange", *(f"MB an epoch, {graph}" for graph in graphs)]
    header += [f"{graph}, {RATES[rate]}" for graph, rate in cases]
    table = [[*header, "predicted / measured"]]
    for way, found in ways.items():
        sent = {graph: row["bytes"] for (graph, _), row in found.items()}
        cells = [f"{sent[graph] / 1e6:,.1f}" if graph in sent else "–" for graph in graphs]
        for case in cases:
            if case not in found:
                cells.append("–")
                continue
            epoch = found[case]["epoch"]
            cells.append(f"{ms(epoch * 1e3)} ({times(ways['rows'][case]['epoch'] / epoch)})")
        ratios = sorted(row["predicted"] / row["epoch"] for row in found.values())
        table.append([way, *cells, f"{ratios[0]:.2f} to {ratios[-1]:.2f}"])
    return table
