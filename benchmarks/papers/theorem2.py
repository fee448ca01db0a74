"""python benchmarks/papers/theorem2.py: cache misses of feature propagation against cache size, and the traffic that theorem 2 bounds.

The addresses that a product reads and writes go through a model of a private cache: 8 ways, lines of 64 bytes, least recently
used out first. Ways to multiply: by rows; by parts of columns copied to a place of their own, as Shoal's
feature-partitioned product does; by parts of a matrix stored column by column, as in JPDC'21 §7.4, that fill the cache or half of it.
"""

from __future__ import annotations

from typing import Any

import harness
import numpy as np
from harness import Published, Row, Table, declare, group, percent, span
from theorem1 import make_graph

import shoal
from shoal.kernels.jit import kernel
from shoal.kernels.plan import part_width
from shoal.kernels.rows import NUM_ACCUMULATORS, VECTOR_BYTES

WAYS, LINE, ITEM, LOAD = 8, 64, 4, 32
LAYOUTS = ("rows", "parts, copied", "parts, by columns", "by columns, half the cache")


@kernel
def touch(tags, line):
    """1 if the line was not in the cache; it is the most recent of its set then."""
    row = line % tags.shape[0]
    last = tags.shape[1] - 1
    for way in range(tags.shape[1]):
        if tags[row, way] == line:
            last = way
            break
    missed = tags[row, last] != line
    for way in range(last, 0, -1):
        tags[row, way] = tags[row, way - 1]
    tags[row, 0] = line
    return 1 if missed else 0


@kernel
def touch_span(tags, first_byte, num_bytes):
    """Misses of adjacent bytes."""
    missed = 0
    for line in range(first_byte // LINE, (first_byte + num_bytes - 1) // LINE + 1):
        missed += touch(tags, line)
    return missed


@kernel
def run_rows(tags, indptr, indices, f, block, h, index, out):
    """(accesses, misses of reads, misses of writes) of the product by rows, `block` columns in registers at a time."""
    accesses, reads, writes = 0, 0, 0
    for r in range(len(indptr) - 1):
        for first in range(0, f, block):
            wide = min(block, f - first)
            for k in range(indptr[r], indptr[r + 1]):
                reads += touch(tags, (index + k * 4) // LINE)
                reads += touch_span(tags, h + (indices[k] * f + first) * ITEM, wide * ITEM)
                accesses += 1 + (wide * ITEM + LOAD - 1) // LOAD
            writes += touch_span(tags, out + (r * f + first) * ITEM, wide * ITEM)
            accesses += (wide * ITEM + LOAD - 1) // LOAD
    return accesses, reads, writes


@kernel
def run_copied(tags, indptr, indices, f, width, h, index, out, packed):
    """The same by parts of `width` columns, each copied before it is used."""
    accesses, reads, writes = 0, 0, 0
    n = len(indptr) - 1
    for first in range(0, f, width):
        wide = min(width, f - first) * ITEM
        loads = (wide + LOAD - 1) // LOAD
        for j in range(n):
            reads += touch_span(tags, h + (j * f + first) * ITEM, wide)
            writes += touch_span(tags, packed + j * width * ITEM, wide)
            accesses += 2 * loads
        for r in range(n):
            for k in range(indptr[r], indptr[r + 1]):
                reads += touch(tags, (index + k * 4) // LINE)
                reads += touch_span(tags, packed + indices[k] * width * ITEM, wide)
                accesses += 1 + loads
            writes += touch_span(tags, out + (r * f + first) * ITEM, wide)
            accesses += loads
    return accesses, reads, writes


@kernel
def run_columns(tags, indptr, indices, f, width, h, index, out):
    """The same where every column is stored on its own: one access a value."""
    accesses, reads, writes = 0, 0, 0
    n = len(indptr) - 1
    for first in range(0, f, width):
        stop = min(first + width, f)
        for r in range(n):
            for k in range(indptr[r], indptr[r + 1]):
                reads += touch(tags, (index + k * 4) // LINE)
                accesses += 1
                for column in range(first, stop):
                    reads += touch(tags, (h + (column * n + indices[k]) * ITEM) // LINE)
                    accesses += 1
            for column in range(first, stop):
                writes += touch(tags, (out + (column * n + r) * ITEM) // LINE)
                accesses += 1
    return accesses, reads, writes


def run(settings: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for name in settings["graphs"]:
        graph = make_graph(name)
        budget = min(settings["budget"], graph.num_nodes)
        nodes = shoal.FrontierSampler(graph, budget, min(1000, budget)).sample(0).blocks[0]
        indptr, indices = nodes.indptr.numpy(), nodes.indices.numpy()
        rows += [
            measure(name, indptr, indices, settings["f"], kilobytes, layout)
            for kilobytes in settings["caches"]
            for layout in LAYOUTS
        ]
        print(name, len(indptr) - 1, len(indices), flush=True)
    return rows


def measure(name: str, indptr: np.ndarray, indices: np.ndarray, f: int, kilobytes: int, layout: str) -> Row:
    n = len(indptr) - 1
    size = kilobytes << 10
    tags = np.full((size // (WAYS * LINE), WAYS), -1, np.int64)
    matrix = n * f * ITEM + 4096
    places = (0, matrix, matrix + 4 * len(indices) + 4096)
    if layout == "rows":
        width, found = f, run_rows(tags, indptr, indices, f, NUM_ACCUMULATORS * VECTOR_BYTES // ITEM, *places)
    elif layout == "parts, copied":
        width = part_width(n, f, ITEM, 1, size)
        found = run_copied(tags, indptr, indices, f, width, *places, places[2] + matrix)
    else:
        room = size // 2 if layout.endswith("half the cache") else size
        width = max(1, min(f, room // (ITEM * n)))
        found = run_columns(tags, indptr, indices, f, width, *places)
    accesses, reads, writes = found
    return {
        "graph": name,
        "nodes": n,
        "entries": len(indices),
        "f": f,
        "kilobytes": kilobytes,
        "layout": layout,
        "width": width,
        "miss_rate": (reads + writes) / accesses,
        "traffic_over_bound": reads * LINE / (n * f * ITEM),
        "fits": width * n * ITEM <= size,
    }


def pick(rows: list[Row], layout: str, kilobytes: int | None = None) -> list[Row]:
    return [row for row in rows if row["layout"] == layout and kilobytes in (None, row["kilobytes"])]


def tabulate(rows: list[Row]) -> Table:
    caches = sorted({row["kilobytes"] for row in rows})
    table = [
        [
            "subgraph, layout",
            *(f"{size} KB" for size in caches),
            "read traffic / bound, largest cache",
            "paper's formula",
        ]
    ]
    for name in dict.fromkeys(row["graph"] for row in rows):
        for layout in LAYOUTS:
            found = [row for row in pick(rows, layout) if row["graph"] == name]
            cells = [percent(row["miss_rate"], 1) for row in found]
            table.append(
                [
                    f"{name}, {layout}",
                    *cells,
                    f"{found[-1]['traffic_over_bound']:.2f}",
                    f"{predict(found[-1]):.2f}",
                ]
            )
    marks = PUBLISHED.values["below_5_percent_from_kilobytes"]
    table.append(
        ["paper, its subgraphs", *("< 5 %" if size >= marks else "–" for size in caches), "≤ 2", "–"]
    )
    return table


def predict(row: Row) -> float:
    """The paper's traffic of indices and features with these parts, over the least that any partition reads: b·n·f."""
    parts = -(-row["f"] // row["width"])
    return 1 + 4 * parts * row["entries"] / (row["nodes"] * row["f"] * ITEM)


def explain(rows: list[Row]) -> str:
    mark = PUBLISHED.values["below_5_percent_from_kilobytes"]
    at = min((row["kilobytes"] for row in rows if row["kilobytes"] >= mark), default=rows[-1]["kilobytes"])
    by_rows, copied, columns, half = (pick(rows, layout, at) for layout in LAYOUTS)
    held = [row for row in rows if row["fits"] and 4 * row["entries"] <= row["kilobytes"] << 10]
    full, rest = (
        [row for row in held if row["layout"] == layout]
        for layout in ("parts, by columns", "by columns, half the cache")
    )
    off = [row["traffic_over_bound"] / predict(row) for row in rest]
    small = [row for row in rows if not row["fits"] and row["layout"] == "parts, copied"]
    sparse = [row for row in columns if row["miss_rate"] > 0.05]
    named = ", ".join(f"{row['graph']} ({row['entries'] / row['nodes']:.1f} entries a row)" for row in sparse)
    above = f"; above it stays {named}, where a row of features is read too few times" if sparse else ""
    lost = (
        f" Copied parts are whole cache lines, 16 values of a row: up to {max(row['kilobytes'] for row in small)} KB not even one fits for these subgraphs."
        if small
        else ""
    )
    return (
        f"With {at} KB the miss rate by columns is {span((100 * row['miss_rate'] for row in columns), 1)} %, where figure 6 has below 5 %, and it falls with the cache as there{above}. "
        f"Theorem 2's conditions (the part and the subgraph's indices fit) hold in {len(full) + len(rest)} of the {len(pick(rows, LAYOUTS[2])) + len(pick(rows, LAYOUTS[3]))} cases by columns. Parts that fill the cache read {span(row['traffic_over_bound'] for row in full)} times the bound b·n·f and not at most 2: results and indices stream through the same cache and push the part out, which the analysis leaves aside. "
        f"Parts of half the cache read {span(off)} of what the paper's formula gives for them, {span(row['traffic_over_bound'] for row in rest)} times the bound where it allows 3 for twice as many parts.{lost} By rows, which Shoal uses on most shapes, {span((100 * row['miss_rate'] for row in by_rows), 1)} % of the accesses of 32 bytes miss at {at} KB, with copied parts "
        f"{span((100 * row['miss_rate'] for row in copied), 1)} %, by columns with half the cache {span((100 * row['miss_rate'] for row in half), 1)} % of those of 4: misses by rows are answered by a shared cache and hidden by prefetching, which the model does not time."
    )


def draw(axes: Any, rows: list[Row]) -> None:
    first = group(rows, "graph")[rows[0]["graph"]]
    found = {layout: pick(first, layout) for layout in LAYOUTS}
    labels = {"xlabel": "cache, KB", "ylabel": "misses, % of accesses", "title": rows[0]["graph"]}
    harness.draw_lines(axes, found, "kilobytes", lambda row: 100 * row["miss_rate"], xscale="log", **labels)
    harness.draw_level(axes, 5, "JPDC'21 fig. 6: below, from 512 KB")


PUBLISHED = Published(
    "JPDC'21 §7.4 and figure 6; theorem 2: IPDPS'19 §V-B, JPDC'21 §5.3",
    {"below_5_percent_from_kilobytes": 512},
)
_CACHES = [32, 64, 128, 256, 512, 1024, 2048]
_FEWER = [32, 128, 512, 1024, 2048]
EXPERIMENT = declare(
    globals(),
    paper="subgraphs",
    title="Theorem 2 and cache misses",
    ours="One product of a frontier subgraph of 8,000 nodes with float32 features (64 columns at the small profile); the kernel's addresses through a model of one private cache. An access is of 32 bytes, by columns of 4; writes count as misses too, not as read traffic.",
    theirs="Figure 6: a whole training iteration in float64 on 40 cores, DynamoRIO's simulator, features stored by columns, private caches of 32 KB to 2 MB, second cache of 50 MB. Theorem 2 is proved for indices of 2 bytes and not measured (JPDC'21 §5.3).",
    profiles={
        "tiny": {"graphs": ["even:10:8"], "budget": 512, "f": 32, "caches": [32, 512]},
        "small": {"graphs": ["ppi", "even:16:15", "kronecker:16:16"], "f": 64, "caches": _FEWER},
        "regular": {
            "graphs": ["ppi", "even:18:15", "kronecker:18:16", "wordnet30"],
            "f": 512,
            "caches": _CACHES,
        },
        "large": {
            "graphs": ["ppi", "even:20:15", "kronecker:20:16", "wordnet30", "acl-anthology"],
            "f": 1024,
            "caches": _CACHES,
        },
    },
    common={"budget": 8000},
)

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
