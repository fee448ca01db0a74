"""python benchmarks/papers/kronecker_sweep.py: time of an iteration as a Kronecker graph grows, and as it gets denser.

One iteration is forward, backward and update on a frontier subgraph; drawing it is timed beside. Processor time, the shortest of several.
"""

from __future__ import annotations

import time
from typing import Any

import harness
import numpy as np
from harness import Published, Row, Table, declare, group, span

import shoal
from timing import use_threads


def run(settings: dict[str, Any]) -> list[Row]:
    use_threads(settings["threads"])
    base, rows = settings["degree"], []
    for scale in settings["scales"]:
        rows.append({"sweep": "size", **measure(scale, base, settings)})
        print(rows[-1], flush=True)
    for degree in settings["degrees"]:
        rows.append({"sweep": "degree", **measure(settings["scale"], degree, settings)})
        print(rows[-1], flush=True)
    return rows


def measure(scale: int, degree: int, settings: dict[str, Any]) -> Row:
    graph = shoal.load("kronecker", scale=scale, degree=degree, num_features=50, seed=1)
    sampler = shoal.FrontierSampler(
        graph, settings["budget"], settings["frontier"], pin_cap=settings["pin_cap"]
    )
    model = shoal.GNN("sage", 50, settings["hidden"], 2, num_layers=2)
    trainer = shoal.Trainer(model, graph, sampler)
    drawing, stepping, edges, warm = [], [], [], 2
    for k in range(settings["steps"] + warm):
        started = time.process_time()
        batch = sampler.sample(k)
        drawn = time.process_time()
        trainer.train_step(batch)
        if k >= warm:
            drawing.append(drawn - started)
            stepping.append(time.process_time() - drawn)
            edges.append(batch.num_edges / batch.num_nodes)
    return {
        "nodes": graph.num_nodes,
        "degree": degree,
        "graph_degree": float(graph.degree.mean()),
        "subgraph_degree": float(np.mean(edges)),
        "step_ms": 1e3 * min(stepping),
        "sampling_ms": 1e3 * min(drawing),
    }


def tabulate(rows: list[Row]) -> Table:
    table = [
        ["sweep", "nodes", "degree asked for, found", "subgraph's degree", "iteration", "sampling", "paper"]
    ]
    for row in rows:
        paper = "towards 100 ms, 2²⁰ to 2²⁵ nodes" if row["sweep"] == "size" else "linear in the degree"
        degrees = f"{row['degree']:g}, {row['graph_degree']:.1f}"
        times = [f"{row['step_ms']:,.0f} ms", f"{row['sampling_ms']:,.1f} ms"]
        table.append(
            [row["sweep"], f"{row['nodes']:,}", degrees, f"{row['subgraph_degree']:.1f}", *times, paper]
        )
    return table


def fit(rows: list[Row]) -> tuple[float, float, float]:
    """Slope and intercept of the iteration over the subgraph's degree, and the share of the variance it leaves."""
    x = np.array([row["subgraph_degree"] for row in rows])
    y = np.array([row["step_ms"] for row in rows])
    slope, intercept = np.polyfit(x, y, 1)
    rest = y - slope * x - intercept
    return float(slope), float(intercept), float(rest.var() / max(y.var(), 1e-12))


def explain(rows: list[Row]) -> str:
    sizes = [row for row in rows if row["sweep"] == "size"]
    denser = [row for row in rows if row["sweep"] == "degree"]
    growth = sizes[-1]["nodes"] / sizes[0]["nodes"]
    slope, intercept, rest = fit(denser)
    times = span((row["step_ms"] for row in sizes), 0)
    return (
        f"While the graph grows {growth:,.0f} times, to {sizes[-1]['nodes']:,} nodes, an iteration takes {times} ms: that its cost does not follow the graph's size agrees with figure 5's left plot, where it converges to about "
        f"{PUBLISHED.values['iteration_ms']:g} ms on 40 cores. The paper says that the subgraph's degree stays as well; here it goes from {sizes[0]['subgraph_degree']:.1f} to {sizes[-1]['subgraph_degree']:.1f}, since 8,000 nodes are a larger share of a small skewed graph. "
        f"As the graph gets denser the iteration takes {intercept:,.0f} ms + {slope:.2f} ms for each edge a node of the subgraph has; a straight line leaves {100 * rest:.0f} % of the variance. "
        f"That is the right plot's linear growth, on top of dense products that do not depend on the degree and are most of an iteration at these degrees. Drawing takes {sizes[0]['sampling_ms']:.1f} ms on the smallest and {sizes[-1]['sampling_ms']:.1f} ms on the largest graph."
    )


def draw(axes: Any, rows: list[Row]) -> None:
    sweeps = {f"sweep of {sweep}": found for sweep, found in group(rows, "sweep").items()}
    labels = {"xlabel": "degree of the subgraph", "ylabel": "iteration, ms"}
    harness.draw_lines(axes, sweeps, "subgraph_degree", "step_ms", "o", **labels)


PUBLISHED = Published("JPDC'21 figure 5, §7.6", {"iteration_ms": 100})
EXPERIMENT = declare(
    globals(),
    paper="subgraphs",
    title="Kronecker graphs: sweeps of size and degree",
    ours="SAGE of 2 layers of 512, 50 features, frontier of 1,000, budget of 8,000, at most 30 pins, float32; processor seconds of one thread.",
    theirs="The same model on Kronecker graphs of degree 16 from 2²⁰ to 2²⁵ nodes (left), of seven degrees (right); C++ on 40 cores in float64. The time is that of forward and backward on one subgraph.",
    profiles={
        "tiny": {
            "budget": 200,
            "frontier": 20,
            "hidden": 16,
            "scales": [10, 11],
            "degree": 8,
            "scale": 10,
            "degrees": [4, 8],
            "steps": 1,
        },
        "small": {"scales": [15, 16, 17, 18, 19], "scale": 16, "degrees": [8, 16, 32, 64], "steps": 3},
        "regular": {"scales": [18, 19, 20, 21, 22], "scale": 20, "degrees": [8, 16, 32, 64], "steps": 10},
        "large": {
            "scales": [20, 21, 22, 23, 24, 25],
            "scale": 20,
            "degrees": [8, 16, 32, 64, 128, 256],
            "steps": 20,
        },
    },
    common={"degree": 16, "budget": 8000, "frontier": 1000, "hidden": 512, "pin_cap": 30, "threads": 1},
)
PUBLISHED = EXPERIMENT.published

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
