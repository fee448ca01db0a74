"""The table of kills, soaks and fuzzed files in docs/runs.md, read from benchmarks/results; `page.py` writes it."""

from __future__ import annotations

from collections import defaultdict
from statistics import median
from typing import Any

from page_tables import Table, read

BAD = {"traceback": "tracebacks", "crash": "crashes", "hang": "hangs", "memory": "out of memory"}
CHECKSUMS = {
    "wrong": "that no longer match",
    "mended": "corrected by the mutation",
    "none": "absent from the format",
}


def tabulate_reliability() -> Table:
    kills, soak = read("kills"), read("soak")
    table = [["measurement", "extent", "result"]]
    table.append(
        [
            "kills at random moments",
            _count_kills(kills),
            f"{len(kills['wrong'])} runs with other weights or stray files",
        ]
    )
    table.append(["soak", f"{_count_kills(soak)}, {len(soak['resources'])} rounds", _describe_rounds(soak)])
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in read("fuzz")["readers"].values():
        if row["inputs"] >= 10_000:
            found[row["checksums"]].append(row)
    for kind, rows in found.items():
        inputs = sum(row["inputs"] for row in rows)
        bad = ", ".join(f"{sum(row[name] for row in rows)} {said}" for name, said in BAD.items())
        most = max(row["different"] / row["inputs"] for row in rows)
        table.append(
            [
                f"fuzzing, checksums {CHECKSUMS[kind]}",
                f"{len(rows)} readers, {inputs:,} inputs",
                f"{bad}; other content accepted: at most {100 * most:.2g} % of a reader's",
            ]
        )
    return table


def _count_kills(results: dict[str, Any]) -> str:
    return f"{results['kills']} kills, {results['runs']} runs, {len(results['by_method'])} methods"


def _describe_rounds(soak: dict[str, Any]) -> str:
    rounds = soak["resources"][2:]
    half = len(rounds) // 2
    early, late = ([one["bytes"] >> 20 for one in part] for part in (rounds[:half], rounds[half:]))
    rest = ", ".join(
        f"{name} {min(one[name] for one in rounds)} to {max(one[name] for one in rounds)}"
        for name in ("threads", "descriptors", "temporary files")
    )
    return f"{len(soak['wrong'])} wrong runs; memory {median(early):.0f} to {median(late):.0f} MB (medians of the halves), {rest}"
