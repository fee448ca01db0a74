"""Clusters dealt anew to real ranks, for a page: scores beside ranks that sample the whole graph, and what a deal costs."""

from __future__ import annotations

import statistics

from page_tables import Record, Table, read, render

WAYS = ("whole graph", "every epoch", "every 5", "never")


def list_cases() -> dict[tuple[str, int], dict[str, Record]]:
    """Records by graph and number of ranks, then by way of dealing."""
    cases: dict[tuple[str, int], dict[str, Record]] = {}
    for row in read("reshuffle")["results"]:
        cases.setdefault((row["data"], row["ranks"]), {})[row["dealt"]] = row
    return cases


def tabulate_reshuffle() -> Table:
    """A line for each graph and number of ranks."""
    heads = ("whole graph", "dealt every epoch", "every 5 epochs", "never dealt anew")
    table = [["graph, ranks", *heads, "rows moved, MB a deal", "a deal, an epoch without one"]]
    for (graph, ranks), found in list_cases().items():
        dealt = found["every epoch"]
        scores = [
            f"{100 * found[way]['test']:.1f} ± {100 * statistics.stdev(found[way]['scores']):.1f}"
            for way in WAYS
        ]
        moved = f"{100 * dealt['share_of_rows']:.0f} %, {dealt['bytes_moved'] / dealt['deals'] / 1e6:,.1f} MB"
        spent = f"{dealt['deal']:.2f} s, {dealt['epoch']:.2f} s"
        table.append([f"{graph}, {ranks}", *scores, moved, spent])
    return table


def say_reshuffle() -> str:
    """The table, and what dealing every epoch changes."""
    cases, load = list_cases(), read("reshuffle")["environment"]["load"]
    seeds = {len(row["scores"]) for found in cases.values() for row in found.values()}
    apart = ", ".join(
        f"{100 * (found['every epoch']['test'] - found['never']['test']):+.1f} ({graph}, {ranks} ranks)"
        for (graph, ranks), found in cases.items()
    )
    said = f"Test scores in percent, mean and standard deviation over {min(seeds)} seeds; load {load} while it ran.\nDealt every epoch against never, points: {apart}."
    return f"\n{said}\n\n{render(tabulate_reshuffle())}"
