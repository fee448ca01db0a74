"""Test scores of the methods beside each other, for a page: after as many CPU seconds, and full batch with more."""

from __future__ import annotations

from page_tables import Record, Table, read, score
from traces import keep_best

SECONDS = 50  # the limit of all but full batch, with the last step that began before it
COLUMNS = {
    "full batch": "full batch",
    "subgraphs": "subgraphs",
    "subgraphs, history": "with histories",
    "neighbours": "neighbours",
    "LABOR": "LABOR",
    "clusters": "clusters",
    "SIGN": "SIGN",
    "PyG neighbours": "PyG neighbours",
}


def list_methods() -> dict[str, dict[str, list[Record]]]:
    """The runs of each case and way; of eight layers those with batch norm, with which most ways learn."""
    cases: dict[str, dict[str, list[Record]]] = {}
    for row in read("methods"):
        if row["layers"] < 8 or row.get("norm") == "batch":
            name = f"{row['graph']}, {row['layers']} layers"
            cases.setdefault(name, {}).setdefault(row["way"], []).append(row)
    return dict(sorted(cases.items()))


def find_score(rows: list[Record], seconds: float) -> float:
    """The mean test score at the best validation scores of the first seconds."""
    curve = keep_best([row["trace"] for row in rows])
    return max((point for point in curve if point[0] <= seconds), default=curve[0])[2]


def tabulate_methods() -> Table:
    """A line for each case: the test score of each way after 50 CPU seconds, the best in bold, and full batch's at its end."""
    table = [["graph", *COLUMNS.values(), "full batch, 200 s"]]
    for name, ways in list_methods().items():
        found = {way: find_score(rows, SECONDS) for way, rows in ways.items()}
        best = max(found.values())
        cells = []
        for way in COLUMNS:
            said = score(found[way]) if way in found else "–"
            cells.append(f"**{said}**" if found.get(way) == best else said)
        table.append([name, *cells, score(find_score(ways["full batch"], float("inf")))])
    return table
