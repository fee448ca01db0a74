"""python benchmarks/papers/graphs.py: the graphs of the papers' tables beside those that stand in for them here."""

from __future__ import annotations

from typing import Any

import harness
from harness import LOG, Published, Row, Table, declare, span


def run(settings: dict[str, Any]) -> list[Row]:
    rows = []
    for name in settings["graphs"]:
        graph = harness.load_graph(name)
        masks = (graph.train_mask, graph.val_mask, graph.test_mask)
        rows.append(
            {
                "graph": name,
                "nodes": graph.num_nodes,
                "edges": graph.num_edges,
                "features": graph.num_features,
                "classes": 0 if graph.y is None else graph.num_classes,
                "multi": graph.y is not None and graph.multi_label,
                "split": None if masks[0] is None else [int(mask.sum()) / graph.num_nodes for mask in masks],
            }
        )
        print(rows[-1], flush=True)
    return rows


def describe(one: Row) -> list[str]:
    """Nodes, edges, features, classes and split."""
    classes = f"{one['classes']}{' multi-label' * one['multi']}" if one["classes"] else "–"
    split = " / ".join(f"{share:.2f}" for share in one["split"] or ()) or "–"
    return [f"{one['nodes']:,}", f"{one['edges']:,}", str(one["features"] or "–"), classes, split]


def tabulate(rows: list[Row]) -> Table:
    found = {row["graph"]: row for row in rows}
    labels = ["nodes", "edges", "features", "classes", "train / val / test"]
    table = [["paper's graph", "tables", *labels, "here", *labels]]
    for name, one in PUBLISHED.values.items():
        for i, here in enumerate([known for known in one["here"] if known in found] or [None]):
            theirs = [name, one["tables"], *describe(one)] if i == 0 else ["”", *["–"] * 6]
            ours = [here, *describe(found[here])] if here else ["no stand-in", *["–"] * 5]
            table.append([*theirs, *ours])
    return table


def explain(rows: list[Row]) -> str:
    found = {row["graph"]: row for row in rows}
    sizes = {
        name: max(found[here]["nodes"] for here in one["here"] if here in found) / one["nodes"]
        for name, one in PUBLISHED.values.items()
        if set(one["here"]) & set(found) and name not in SAME
    }
    missing = [name for name, one in PUBLISHED.values.items() if not one["here"]]
    return (
        f"Of the {len(PUBLISHED.values)} graphs listed {len(SAME)} are here ({', '.join(SAME)}), {len(missing)} have no stand-in ({', '.join(missing)}). "
        f"The largest stand-in of a graph has {span(sizes.values(), 3)} of its nodes, so that counts and times are compared as ratios only. PPI and soc-Slashdot0902 have fewer edges here than printed: our files hold no self loops and no repeated edges, which may be why; PPI's labels are a reconstruction. "
        f"Reddit has two rows because two papers print ten times the edges of the other two."
        if sizes
        else "None of the papers' graphs was read."
    )


def draw(axes: Any, rows: list[Row]) -> None:
    points = {
        "papers": [(one["nodes"], 2 * one["edges"] / one["nodes"]) for one in PUBLISHED.values.values()],
        "here": [(row["nodes"], 2 * row["edges"] / row["nodes"]) for row in rows],
    }
    labels = {"xlabel": "nodes", "ylabel": "2 edges / nodes"}
    harness.draw_lines(axes, points, 0, 1, lambda name: "ks" if name == "papers" else "o", **LOG, **labels)
    axes.legend(loc="upper right")


def publish(
    tables: str, nodes: int, edges: int, here: str = "", labels: str = "", split: tuple[float, ...] = ()
) -> Row:
    """A row of the papers' tables; `labels` are features and classes, `here` what stands in for the graph."""
    features, classes, *multi = labels.split() or "00"
    told = {"tables": tables, "nodes": nodes, "edges": edges, "here": here.split(), "split": split}
    return told | {"features": int(features), "classes": int(classes), "multi": bool(multi)}


_SAMPLED, _VLDB, _BNS = "IPDPS'19 I, JPDC'21 2", "VLDB'22 1", "BNS-GCN 3"
_BOTH = f"{_VLDB}, {_BNS}"
SAME = ("PPI", "soc-Slashdot0902", "Cora")  # here themselves
_REDDIT = "602 41", (0.66, 0.10, 0.24)
PUBLISHED = Published(
    "IPDPS'19 table I; JPDC'21 table 2; VLDB'22 table 1; BNS-GCN table 3",
    {
        "PPI": publish(_SAMPLED, 14_755, 225_270, "ppi", "50 121 M", (0.66, 0.12, 0.22)),
        "Reddit": publish(_SAMPLED, 232_965, 11_606_919, "wordnet30", *_REDDIT),
        "Yelp": publish(f"{_SAMPLED}, {_BNS}", 716_847, 6_977_410, "", "300 100 M", (0.75, 0.15, 0.10)),
        "Amazon": publish(
            _SAMPLED, 1_598_960, 132_169_734, "kronecker:15:64", "200 107 M", (0.80, 0.05, 0.15)
        ),
        "amazon0601": publish(_VLDB, 403_394, 3_387_388),
        "cit-Patents": publish(_VLDB, 3_774_768, 16_518_948),
        "coPapersDBLP": publish(_VLDB, 540_486, 30_491_458, "ca-AstroPh"),
        "com-Amazon": publish(_VLDB, 334_863, 1_851_744, "wordnet30"),
        "com-Youtube": publish(_VLDB, 1_134_890, 5_975_248),
        "flickr": publish(_VLDB, 820_878, 9_837_214, "flickr-asu"),
        "roadNet-CA": publish(_VLDB, 1_971_281, 5_533_214, "road-world-highways"),
        "soc-Slashdot0902": publish(_VLDB, 82_168, 948_464, "soc-Slashdot0902"),
        "Cora": publish(_VLDB, 2_708, 10_556, "cora"),
        "Reddit, more edges": publish(_BOTH, 232_965, 114_615_892, "acl-anthology hetero-tolokers", *_REDDIT),
        "ogbn-products": publish(
            _BNS, 2_400_000, 62_000_000, "amazon-computers wordnet30", "100 47", (0.08, 0.02, 0.90)
        ),
        "ogbn-papers100M": publish(
            _BOTH, 111_059_956, 1_615_685_872, "acl-anthology pubmed", "128 172", (0.78, 0.08, 0.14)
        ),
    },
)
EXPERIMENT = declare(
    globals(),
    paper="items",
    title="Graphs of the papers and here",
    ours="As read: edges of undirected graphs counted once, of directed ones as arcs. `kronecker:15:64` is generated. Where a graph has no split of its own, 60/20/20 is drawn. Block models and further Kronecker graphs are named where they are used.",
    theirs="As printed; edges of undirected graphs are counted once in some tables and in both directions in others. JPDC'21 has synthetic graphs too, with 50 features, 2 classes and a split of 0.50 / 0.25 / 0.25. BNS-GCN's Yelp has a split of 0.75 / 0.10 / 0.15.",
    profiles={
        "tiny": {"graphs": ["digits"]},
        "small": {},
        "regular": {},
        "large": {},
    },
    common={"graphs": sorted({name for one in PUBLISHED.values.values() for name in one["here"]})},
)

if __name__ == "__main__":
    harness.main(EXPERIMENT, __doc__)
