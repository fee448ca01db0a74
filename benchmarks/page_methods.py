"""Test scores of the methods beside each other, for pages: after as many CPU seconds, and of full batch with more."""

from __future__ import annotations

from page_tables import Record, Table, read, score
from traces import MARGIN, has_settled, keep_best

SECONDS, LONGER = (
    50,
    250,
)  # what every way has, and every run of full batch: 40 and 200, and the last step before a score
SEEDS = 3
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
SAMPLERS = ("subgraphs", "neighbours", "LABOR", "clusters")  # of Shoal, without histories
Runs = dict[str, list[Record]]  # of a case, by way


def list_methods() -> dict[str, Runs]:
    """The runs of each case and way; of eight layers those with batch norm, with which most ways learn."""
    cases: dict[str, Runs] = {}
    for row in read("methods"):
        if row["layers"] < 8 or row.get("norm") == "batch":
            name = f"{row['graph']}, {row['layers']} layers"
            cases.setdefault(name, {}).setdefault(row["way"], []).append(row)
    return dict(sorted(cases.items()))


def find_score(rows: list[Record], seconds: float) -> float:
    """The mean test score at the best validation scores of the first seconds."""
    curve = keep_best([row["trace"] for row in rows])
    return max((point for point in curve if point[0] <= seconds), default=curve[0])[2]


def find_scores(ways: Runs) -> dict[str, float]:
    """The test score of each way in the time that all have."""
    return {way: find_score(rows, SECONDS) for way, rows in ways.items()}


def find_longest(ways: Runs) -> list[Record]:
    """The runs of full batch that settled; otherwise the longest of them."""
    rows = ways["full batch"]
    settled = [row for row in rows if has_settled(row["trace"])]
    return settled or [max(rows, key=lambda row: row["trace"][-1][0])]


def show_longest(ways: Runs) -> str:
    """The test score of full batch where it settled and the seconds of a run; in brackets the runs, if not all."""
    rows = find_longest(ways)
    seconds = sum(row["trace"][-1][0] for row in rows) / len(rows)
    said = f"{score(find_score(rows, float('inf')))} in {seconds:,.0f} s"
    return said + ("" if has_settled(rows[0]["trace"]) else "\\*") + _count(rows)


def _count(rows: list[Record]) -> str:
    """How many runs a mean is of, in brackets, where it is not of three."""
    return f" ({len(rows)})" if rows and len(rows) != SEEDS else ""


def tabulate_methods() -> Table:
    """A line for each case: the test score of each way in equal time, the best in bold, and full batch's in longer time."""
    table = [["graph", *COLUMNS.values(), "full batch, 200 s", "settled, or longest"]]
    for name, ways in list_methods().items():
        found = find_scores(ways)
        best = max(found.values())
        cells = []
        for way in COLUMNS:
            said = score(found[way]) if way in found else "–"
            said = f"**{said}**" if found.get(way) == best else said
            cells.append(said + _count(ways.get(way, [])))
        longer = score(find_score(ways["full batch"], LONGER)) + _count(ways["full batch"])
        table.append([name, *cells, longer, show_longest(ways)])
    return table


def tabulate_histories() -> Table:
    """A line for each case: subgraphs, with histories, and full batch; and how much of the gap histories close."""
    table = [["graph", "subgraphs", "with histories", "gained", "full batch", "gap of subgraphs"]]
    for name, ways in list_methods().items():
        found = find_scores(ways)
        plain, kept = found["subgraphs"], found["subgraphs, history"]
        whole = find_score(ways["full batch"], LONGER)
        table.append(
            [
                *(name, score(plain), score(kept), f"{round(100 * (kept - plain), 1) + 0:+.1f}"),
                *(score(whole), f"{100 * (whole - plain):+.1f}"),
            ]
        )
    return table


def list_findings() -> list[str]:
    """What the table of methods says, as sentences."""
    cases = list_methods()
    short = {name: find_scores(ways) for name, ways in cases.items()}
    whole = {name: find_score(ways["full batch"], LONGER) for name, ways in cases.items()}

    def name_cases(names: list[str]) -> str:
        return f"{len(names)} of {len(cases)}" + (f" ({'; '.join(names)})" if 0 < len(names) <= 4 else "")

    beaten = [name for name in cases if max(short[name].values()) > whole[name]]
    settled = [name for name, ways in cases.items() if has_settled(find_longest(ways)[0]["trace"])]
    leaders = [max(short[name], key=short[name].__getitem__) for name in cases]
    first = ", ".join(f"{COLUMNS[way]} {leaders.count(way)}" for way in COLUMNS if way in leaders)
    lost = [name for name in cases if short[name]["subgraphs, history"] < short[name]["subgraphs"]]
    leads = {
        way: [name for name in cases if max(SAMPLERS, key=short[name].__getitem__) == way] for way in SAMPLERS
    }
    led = ", ".join(f"{way} on {len(names)}" for way, names in leads.items() if way != "subgraphs")
    return [
        f"**With four times the time**, 200 CPU seconds, full batch ends above everything else with {SECONDS}, but for {name_cases(beaten)}.",
        f"**In equal time**, {SECONDS} seconds, the first on {len(cases)} cases are: {first}. Histories lose to plain subgraphs on {name_cases(lost)}.",
        f"**Among samplers without histories** subgraphs are first on {name_cases(leads['subgraphs'])}, {led}.",
        f"**How long full batch takes**: on {len(settled)} of {len(cases)} cases one or more runs settled, after {_span(cases, settled)} CPU seconds. A star marks those that had not.",
    ]


def _span(cases: dict[str, Runs], names: list[str]) -> str:
    seconds = [row["trace"][-1][0] for name in names for row in find_longest(cases[name])]
    return f"{min(seconds):.0f} to {max(seconds):.0f}"


def find_longer_losses() -> str:
    """How far subgraphs end below full batch with four times their seconds."""
    gaps, ahead = {}, 0
    for name, ways in list_methods().items():
        found = find_scores(ways)
        gaps[name] = 100 * (find_score(ways["full batch"], LONGER) - found["subgraphs"])
        ahead += found["full batch"] > found["subgraphs"] + MARGIN
    lost = {name: gap for name, gap in gaps.items() if gap > 100 * MARGIN}
    worst = max(lost, key=lost.__getitem__)
    return f"**In the comparison of methods** full batch with 200 CPU seconds ends above subgraphs with {SECONDS} in {len(lost)} of {len(gaps)} cases, by {min(lost.values()):.1f} to {lost[worst]:.1f} points ({worst}); with {SECONDS} it does in {ahead}."
