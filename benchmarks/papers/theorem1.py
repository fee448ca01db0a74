"""python benchmarks/papers/theorem1.py: probes, clean-ups and speed-up of the Dashboard, beside what theorem 1 predicts.

The Dashboard's draw is repeated by a copy that counts; both must find the same nodes by the same pops. The speed-up with p
processors is of counted operations: p probes or p memory accesses at a time.
"""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
from harness import LOG, Published, Row, Table, declare, mean, span

import shoal
from shoal.kernels.bits import make_bitmap, mark
from shoal.kernels.jit import kernel
from shoal.rng import below, key, random_u64
from shoal.sampling.frontier_methods.start import draw_frontier, step, weigh

PROCESSORS = np.array([1, 2, 4, 8, 16, 32])
EPSILON = 0.5
FRONTIER, BUDGET = 1000, 8000


@kernel
def count_dashboard(
    indptr, indices, pin_cap, frontier, budget, max_pops, stream, bitmap, length, processors, steps
):
    """(nodes, pops, probes, clean-ups, pins appended) of `draw_by_dashboard`; `steps` receives the steps of each number of processors."""
    pins = np.empty(length, np.int32)
    tile_node, tile_first, tile_pins = (
        np.empty(length, np.int64),
        np.empty(length, np.int64),
        np.empty(length, np.int64),
    )
    tiles, used, probes, cleanups, appended = 0, 0, 0, 0, 0
    walkers = draw_frontier(len(indptr) - 1, frontier, stream, bitmap)
    for i in range(frontier):
        v = walkers[i]
        size = min(weigh(indptr[v + 1] - indptr[v], pin_cap), length - used - (frontier - 1 - i))
        tile_node[tiles], tile_first[tiles], tile_pins[tiles] = v, used, size
        pins[used : used + size] = tiles
        used += size
        tiles += 1
    counter, count, pops = frontier, frontier, 0
    while count < budget and pops < max_pops:
        tile, tries = np.int32(-1), 0
        while tile == -1:
            tile = pins[below(random_u64(stream, counter), used)]
            counter += 1
            tries += 1
        probes += tries
        first, old = tile_first[tile], tile_pins[tile]
        pins[first : first + old] = -1
        tile_pins[tile] = 0
        v = step(indptr, indices, tile_node[tile], random_u64(stream, counter))
        counter += 1
        size = weigh(indptr[v + 1] - indptr[v], pin_cap)
        moved = 0
        if used + size > length:
            live, used = 0, 0
            for t in range(tiles):
                kept = tile_pins[t]
                if kept > 0:
                    tile_node[live], tile_first[live], tile_pins[live] = tile_node[t], used, kept
                    pins[used : used + kept] = live
                    used += kept
                    live += 1
            tiles, moved = live, used
            cleanups += 1
            size = min(size, length - used)
        tile_node[tiles], tile_first[tiles], tile_pins[tiles] = v, used, size
        pins[used : used + size] = tiles
        used += size
        tiles += 1
        appended += size
        for i in range(len(processors)):
            p = processors[i]
            steps[i] += (tries + p - 1) // p + (old + p - 1) // p + (size + p - 1) // p + (moved + p - 1) // p
        count += mark(bitmap, v)
        pops += 1
    return count, pops, probes, cleanups, appended


def run(settings: dict[str, Any]) -> list[Row]:
    rows = []
    for name, cap in settings["graphs"]:
        graph = make_graph(name)
        for eta in settings["etas"]:
            rows.append(measure(graph, name, cap, eta, settings["batches"]))
            print(rows[-1], flush=True)
    return rows


def make_graph(name: str) -> shoal.Graph:
    """`even:SCALE:DEGREE` has random edges, all degrees alike."""
    if not name.startswith("even:"):
        return harness.load_graph(name)
    scale, degree = map(int, name.split(":")[1:])
    ends = np.random.default_rng(0).integers(0, 1 << scale, (2, degree << (scale - 1)))
    return shoal.Graph.from_edge_index(ends, 1 << scale, directed=False, name=name)


def measure(graph: shoal.Graph, name: str, cap: int | None, eta: float, batches: int) -> Row:
    frontier, budget = min(FRONTIER, graph.num_nodes // 16), min(BUDGET, graph.num_nodes // 2)
    sampler = shoal.FrontierSampler(graph, budget, frontier, method="dashboard", eta=eta, pin_cap=cap)
    weight = np.clip(graph.degree, 1, cap).astype(np.float64)
    steps = np.zeros(len(PROCESSORS), np.int64)
    found = []
    for k in range(batches):
        nodes, pops = sampler.draw(k)
        bitmap = make_bitmap(graph.num_nodes)
        args = (graph.indptr, graph.indices, sampler._cap, sampler.frontier, budget, sampler._most_pops)
        counted = count_dashboard(
            *args, np.uint64(key(sampler.seed, k)), bitmap, *sampler._board, PROCESSORS, steps
        )
        assert counted[:2] == (len(nodes), pops), "the copy that counts differs from the Dashboard"
        found.append(counted)
    pops, probes, cleanups, appended = (mean(one[i] for one in found) for i in (1, 2, 3, 4))
    average = float(weight.mean())
    return {
        "graph": name,
        "nodes": graph.num_nodes,
        "degree": average,
        "next_degree": float((weight * graph.degree).sum() / graph.degree.sum()),
        "pin_cap": cap,
        "eta": eta,
        "frontier": frontier,
        "pops": pops,
        "probes": probes / pops,
        "cleanups": cleanups,
        "predicted_cleanups": pops / ((eta - 1) * frontier),
        "pins_a_push": appended / pops,
        "processors": PROCESSORS.tolist(),
        "speedup": (steps[0] / steps).tolist(),
        "bound_holds_to": EPSILON * average * (4 + 3 / (eta - 1)) - eta,
    }


def tabulate(rows: list[Row]) -> Table:
    table = [
        [
            *["graph", "η", "probes a pop", "paper: η", "clean-ups", "paper: (n − m) / ((η − 1) m)"],
            *["pins a push / d", "speed-up, p = 8", "paper: at least"],
        ]
    ]
    for row in rows:
        bound = 8 / (1 + EPSILON) if row["bound_holds_to"] >= 8 else None
        table.append(
            [
                *[say_graph(row), f"{row['eta']:g}", f"{row['probes']:.2f}", f"{row['eta']:g}"],
                *[f"{row['cleanups']:.1f}", f"{row['predicted_cleanups']:.1f}"],
                f"{row['pins_a_push'] / row['degree']:.2f}",
                f"{row['speedup'][row['processors'].index(8)]:.2f}",
                f"{bound:.2f}" if bound else "–",
            ]
        )
    return table


def say_graph(row: Row) -> str:
    cap = f", at most {row['pin_cap']} pins" if row["pin_cap"] else ""
    return f"{row['graph']}, d = {row['degree']:.1f}{cap}"


def explain(rows: list[Row]) -> str:
    even = [row for row in rows if row["graph"].startswith("even")]
    skewed = [row for row in rows if row not in even and row["pin_cap"] is None]
    capped = [row for row in rows if row["pin_cap"] is not None]
    ratio, skew, cap = (
        span(row["cleanups"] / row["predicted_cleanups"] for row in found) if found else "–"
        for found in (even, skewed, capped)
    )
    growth = span(row["next_degree"] / row["degree"] for row in skewed)
    cases = [
        (row, p, found)
        for row in rows
        for p, found in zip(row["processors"], row["speedup"])
        if 1 < p <= row["bound_holds_to"]
    ]
    missed = [case for case in cases if case[2] < case[1] / (1 + EPSILON)]
    beyond = sum(
        p > EPSILON * row["degree"] * (2 + 1 / (row["eta"] - 1)) - row["eta"] for row, p, _ in missed
    )
    lost = ", ".join(
        f"{found:.1f} of {p / (1 + EPSILON):.1f} on {row['graph']} with {p} and η = {row['eta']:g}"
        for row, p, found in missed
    )
    named = (
        f" It is missed by {lost}: a tile has no work for more processors than pins, and the bound is of IPDPS'19's board, which writes three values a pin. With one access a pin, as the compact board has, the same proof covers p up to ε d (2 + 1 / (η − 1)) − η; {beyond} of the {len(missed)} are beyond that."
        if missed
        else ""
    )
    limited = f" With a cap on pins they are {cap} of it." if capped else ""
    return (
        f"Where degrees are alike, clean-ups are {ratio} of the predicted number. Probes stay below η because only the used part of the board is probed: "
        f"it holds between 1 and η times the valid pins, so the mean of (1 + η) / 2 is what to expect, and the paper's η is the bound. On skewed graphs "
        f"clean-ups are {skew} of the prediction: the node that is pushed is found along an edge, so its mean degree is {growth} times the graph's "
        f"average d that the analysis uses.{limited} The speed-up of counted operations reaches the bound of theorem 1 in {len(cases) - len(missed)} of the {len(cases)} cases it is given for.{named}"
    )


def draw(axes: Any, rows: list[Row]) -> None:
    least = min(row["eta"] for row in rows)
    lines = {
        say_graph(row): list(zip(row["processors"], row["speedup"])) for row in rows if row["eta"] == least
    }
    labels = {"xlabel": "processors", "ylabel": "speed-up of counted operations"}
    harness.draw_lines(axes, lines, 0, 1, **LOG, **labels)
    axes.plot(PROCESSORS, PROCESSORS / (1 + EPSILON), "k--", label="theorem 1, ε = 0.5")


_REAL = [["ppi", None], ["kronecker:16:16", None], ["kronecker:16:16", 30]]
PUBLISHED = Published("IPDPS'19 §IV-C, theorem 1; JPDC'21 §4.3", {"epsilon": EPSILON})
EXPERIMENT = declare(
    globals(),
    paper="subgraphs",
    title="Theorem 1: probes, clean-ups and speed-up of the Dashboard",
    ours="Frontier of 1,000, budget of 8,000 nodes, counted operations of the compact Dashboard (JPDC'21). `even` graphs have random edges; n counts pops here, since a batch ends with 8,000 distinct nodes.",
    theirs="Analysis of IPDPS'19 §IV-C, whose board keeps three values a pin, and its theorem 1 with ε = 0.5: p / 1.5 for p up to ε d (4 + 3 / (η − 1)) − η; frontier of 1,000 (§IV-A). Nothing of it is measured there.",
    profiles={
        "tiny": {"graphs": [["even:10:8", None], ["kronecker:10:8", None]], "etas": [2.0], "batches": 1},
        "small": {
            "graphs": [["even:16:15", None], ["even:16:50", None], *_REAL],
            "etas": [2.0, 3.0],
            "batches": 5,
        },
        "regular": {
            "graphs": [["even:18:15", None], ["even:18:50", None], *_REAL, ["kronecker:20:16", None]],
            "etas": [1.5, 2.0, 3.0],
            "batches": 20,
        },
        "large": {
            "graphs": [["even:20:15", None], ["even:20:50", None], *_REAL, ["kronecker:22:16", None]],
            "etas": [1.5, 2.0, 3.0, 4.0],
            "batches": 50,
        },
    },
)

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
