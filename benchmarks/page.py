"""python benchmarks/page.py: write docs/benchmarks.md, and what other pages say between marks.

Every figure and every name of a graph is read from benchmarks/results. `tests/test_benchmarks_page.py` holds the pages in
step with the files.
"""

from __future__ import annotations

import datetime
import re
import subprocess
from collections.abc import Callable, Iterable

import page_tables as tables
import reliability
from page_methods import find_longer_losses, list_findings, tabulate_histories, tabulate_methods
from page_reshuffle import say_reshuffle
from page_tables import RESULTS, ROOT, Table, ms, read, render, times

PAGE = ROOT / "docs/benchmarks.md"
_DATE = re.compile(r"`([\w.-]+\.jsonl?)` \((\d{4}-\d\d-\d\d)")

# -- where Shoal loses -------------------------------------------------------------------------------------------------


def join(parts: Iterable[str]) -> str:
    return ", ".join(parts) or "none"


# Methods that subgraphs are compared with, as a sentence names them.
RIVALS = {
    "neighbours": "**Neighbour sampling** (`--sampler neighbor`)",
    "full batch": "**Full batch** (`--method full`)",
    "PyG full batch": "**PyG's full batch**",
}


def list_sampling_losses() -> list[str]:
    """Cases in which subgraphs need longer to a score than another method, or end below the full batch."""
    cases = tables.list_cases()
    lines = []
    for way, said in RIVALS.items():
        tried = [case for case in cases if case["ratios"].get(way)]
        lost = [case for case in tried if case["ratios"][way] < 1]
        if lost:
            named = join(f"{case['name']} ({case['ratios'][way]:.2f})" for case in lost)
            lines.append(
                f"{said} reaches the same validation score sooner than subgraphs in {len(lost)} of {len(tried)} cases: {named}."
            )
    missed = [case for case in cases if case["reached"] is None]
    named = join(
        f"{case['name']} ({100 * (case['tests']['subgraphs'] - case['tests']['full batch']):+.1f})"
        for case in missed
    )
    lines.append(
        f"**Subgraphs** ended more than {100 * tables.MARGIN:.2g} points below the full batch's test score in {len(missed)} of {len(cases)} cases: {named}."
    )
    lines.append(find_longer_losses())
    return lines


def list_losses() -> list[str]:
    lines = list_sampling_losses()
    ours, theirs = tables.find_steps("step", "step", 1, "DGL")
    lines.append(
        f"**DGL's step** takes only {theirs / ours:.2f} times ours on one thread: most of the step is dense products that all libraries share."
    )
    grown = next(iter(read("sampling-large")["growth"]["results"]))
    lines.append(
        f"**A frontier subgraph** takes {1 / grown['ratio']:.2f} times as long when the graph grows from 2²⁰ to 2²⁴ nodes."
    )
    ways = tables.list_exchanges()
    for case, plain in ways["covers"].items():
        slower = [
            f"{way} ({plain['epoch'] / found[case]['epoch']:.2f})"
            for way, found in ways.items()
            if way.startswith("covers +") and case in found and found[case]["epoch"] > plain["epoch"]
        ]
        if slower:
            lines.append(
                f"**Shorter or stale messages** are slower than covers alone on {case[0]} at {tables.RATES[case[1]]}: {join(slower)}."
            )
    epochs = read("partition-epochs")["results"]
    worst = max(epochs, key=lambda row: row["hypergraph"])
    lines.append(
        f"**`hypergraph` partitioning** takes {min(row['hypergraph'] for row in epochs):.1f} to {worst['hypergraph']:.0f} full-batch epochs of one machine ({worst['graph']}); METIS at most {max(row['metis'] for row in epochs):.1f}."
    )
    lines.append(find_boundary_losses())
    return lines


def find_boundary_losses() -> str:
    """Graphs on which a boundary rate of 0.1 costs more than 0.3 points of the test score, four parts by METIS."""
    found: dict[str, dict[int, dict[float, float]]] = {}
    for row in read("boundary-scores"):
        if row["parts"] == 4 and row["way"] == "nodes" and row["method"] == "metis":
            found.setdefault(row["graph"], {}).setdefault(row["seed"], {})[row["rate"]] = row["test"]
    means = {}
    for graph, seeds in found.items():
        gaps = [100 * (rates[0.1] - rates[1.0]) for rates in seeds.values() if {0.1, 1.0} <= set(rates)]
        if gaps:
            means[graph] = sum(gaps) / len(gaps)
    lost = join(f"{graph} ({gap:+.2f} points)" for graph, gap in sorted(means.items()) if gap < -0.3)
    return f"**Boundary sampling** at a rate of 0.1 costs more than 0.3 points on {lost}, of {len(means)} graphs in 4 METIS parts."


# -- the page ----------------------------------------------------------------------------------------------------------

HEAD = """# Benchmarks

This page is generated from the files in `benchmarks/results` by `make benchmarks-page`. Under each table stand the script and its files with date and load; a file names the whole command. **Ratios are peer / ours**: above 1 Shoal is faster, below 1 it loses and the ratio is bold. Times are the shortest of interleaved runs.

Machine: {machine}. It is a virtual machine shared with other work: times move by tens of percent, ratios within a table less. Nothing was measured on a GPU; Shoal has no GPU kernels.

How targets were met or missed, and every measurement that is not here, is in the [lab notes](lab/index.md).

## Where Shoal loses

{losses}"""

SECTIONS = (
    (
        "Product",
        "`bench_spmm.py`",
        "`A h` for a random graph in CSR and a dense matrix, float32. A dash: the peer was not run, or needs over 2 GiB for its messages.",
        ("spmm.json",),
        tables.tabulate_products,
    ),
    (
        "Step",
        "`bench_step.py`, `bench_gat.py`",
        "A training step of SAGE: 2 layers of 512, 500 inputs, 8,000 nodes of degree 15, dropout 0.1, Adam. All but `SAGEConv` compute the same function. The trainer keeps freed memory in the process; in the last column the peers do too.",
        ("step.json", "step-memory-kept.json", "gat.json", "gat-memory-kept.json"),
        tables.tabulate_steps,
    ),
    (
        "Sampling",
        "`bench_sampling.py`",
        "A batch, from its random numbers to its subgraph in CSR. PyG's sampler runs with torch-sparse 0.6.18.",
        ("sampling-regular.json", "sampling-pyg.json", "sampling-large.json"),
        tables.tabulate_sampling,
    ),
    (
        "Time to a score",
        "`bench_time_to_score.py`",
        "The eight largest cases of {cases}. Scores are on test nodes, at the best validation score by the end of a limited time. A ratio is the other method's CPU seconds over those of subgraphs (random walks), to the validation score at which the worse of the two ended, less 0.0025. Neighbours and full batch run on Shoal's kernels. PyG made few steps in its time on the large graphs: its ratio compares the beginning of training.",
        tuple(f"time-to-score-{name}.json" for name in tables.SCORE_FILES),
        tables.tabulate_times,
    ),
    (
        "Partitioning",
        "`bench_partition.py`, `bench_cover.py`",
        "Rows that ranks send in an exchange, as a share of what a random partition sends: smaller is better. The eight graphs that send most of {graphs}. `cover` counts items, rows or partial sums. Imbalance 0.01. A dash: not run, or not done in 240 s.",
        ("partition-volumes.json", "cover-volumes.json"),
        tables.tabulate_partitions,
    ),
    (
        "Exchange",
        "`bench_exchange.py`",
        "An epoch of a GCN (3 layers of 128) on four ranks in network namespaces whose links let the stated rate through; in brackets how many times as fast as `rows`, the plain halo exchange on `hypergraph` parts. `broadcast` is CAGNET's. Bytes are predicted exactly; the last column is about times.",
        ("exchange.json",),
        tables.tabulate_exchanges,
    ),
)


def tabulate_summary() -> Table:
    """Ours beside PyG."""
    table = [["two threads of an AMD EPYC", "PyG", "Shoal", "PyG / Shoal"]]
    products = next(
        row["ms"]
        for row in read("spmm")["results"]
        if (row["what"], row["threads"], row["n"], row["f"]) == ("forward", 2, 8000, 128)
    )
    walk = next(iter(read("sampling-pyg")["walk"]["results"]))
    pairs = {
        "training step, SAGE of width 512, same function, 8,000 nodes of degree 15": tables.find_steps(
            "step", "step", 2, "PyG, same function"
        ),
        "the same, malloc set to keep freed memory, in both": tables.find_steps(
            "step-memory-kept", "step", 2, "PyG, same function"
        ),
        "GAT layer, forward and backward, 8,000 nodes of degree 15": tables.find_attention("gat", 2),
        "GAT layer, malloc set to keep freed memory, in both": tables.find_attention("gat-memory-kept", 2),
        "aggregation of width 128, 8,000 nodes of degree 15": (
            tables.fastest(products["shoal"]),
            tables.fastest(products["PyG message passing"]),
        ),
        "random-walk subgraph, normalised, PPI, one thread": (
            tables.fastest(walk["ours_ms"]),
            tables.fastest(walk["peer_ms"]),
        ),
    }
    table += [[name, ms(theirs), ms(ours), times(theirs / ours)] for name, (ours, theirs) in pairs.items()]
    return table


def say_depth() -> str:
    """The longest epoch by neighbour sampling beside the one by random walks of as many layers."""
    measured = {one["sampler"]: one for one in read("depth")["results"]}
    deepest = measured["neighbour"]["depths"][-1]
    walk = next(one for one in measured["random walk"]["depths"] if one["layers"] == deepest["layers"])
    return (
        f"An epoch of {measured['neighbour']['data']} with {deepest['layers']} layers takes "
        f"{deepest['seconds']:.2g} s by neighbour sampling, {walk['seconds']:.2g} s by random walks"
    )


def build_page(dates: dict[str, str]) -> str:
    """The page; `dates` says when each file was measured."""
    environment = read("spmm")["environment"]
    machine = f"{environment['cores']} cores of an {environment['cpu']}, torch {environment['torch']}, Numba {environment['numba']}, Python {environment['python']}"
    counts = {
        "cases": f"{len(tables.list_cases())}",
        "graphs": f"{len({row['graph'] for row in read('partition-volumes')['results']})}",
    }
    text = HEAD.format(machine=machine, losses="".join(f"- {line}\n" for line in list_losses()))
    for title, scripts, said, files, tabulate in SECTIONS:
        sources = ", ".join(f"`{name}` ({dates[name]}{find_load(name)})" for name in files)
        text += f"\n## {title}\n\n{said.format(**counts)}\n\n{render(tabulate())}\n{scripts}: {sources}\n"
    return "\n".join(_wrap(line) for line in text.split("\n"))


def _wrap(line: str, width: int = 118) -> str:
    """Lines of prose below `width` characters; tables stay as they are."""
    if line.startswith("|"):
        return line
    indent = "  " if line.startswith("- ") else ""
    lines = [""]
    for word in line.split(" "):
        if lines[-1].strip() and len(lines[-1]) + len(word) >= width:
            lines.append(indent + word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1].strip() else lines[-1] + word
    return "\n".join(lines)


# What a page says between `<!-- NAME -->` and `<!-- end of NAME -->`.
FILLED: dict[str, Callable[[], str]] = {
    "summary of benchmarks": lambda: "\n" + render(tabulate_summary()),
    "where subgraphs lose": lambda: (
        "\n" + "".join(_wrap(f"- {line}") + "\n" for line in list_sampling_losses())
    ),
    "epochs by depth": say_depth,
    "methods beside each other": lambda: "\n" + render(tabulate_methods(), most=15),
    "clusters dealt anew": say_reshuffle,
    "what methods show": lambda: "\n" + "".join(_wrap(f"- {line}") + "\n" for line in list_findings()),
    "histories beside subgraphs": lambda: "\n" + render(tabulate_histories(), most=15),
    "results of reliability": lambda: "\n" + render(reliability.tabulate_reliability()),
}
MARKED = {
    ROOT / "README.md": ("summary of benchmarks", "where subgraphs lose"),
    ROOT / "docs/index.md": ("summary of benchmarks", "where subgraphs lose"),
    ROOT / "docs/howto/which-method.md": (
        *("epochs by depth", "methods beside each other"),
        "what methods show",
    ),
    ROOT / "docs/samplers.md": ("clusters dealt anew",),
    ROOT / "docs/histories.md": ("histories beside subgraphs",),
    ROOT / "docs/runs.md": ("results of reliability",),
}


def fill(text: str, name: str) -> str:
    """A page with what stands between its marks renewed; both marks must be there, once."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if (text.count(begin), text.count(end)) != (1, 1):
        raise LookupError(f"the page has no single pair of marks {begin} and {end}")
    head, rest = text.split(begin)
    return head + begin + FILLED[name]() + end + rest.split(end)[1]


def read_dates(page: str) -> dict[str, str]:
    return dict(_DATE.findall(" ".join(page.split())))


def find_load(name: str) -> str:
    """The load of the machine where a file says it."""
    record = read(name.split(".")[0])
    record = record if isinstance(record, dict) else {}
    found = record.get("environment") or next(iter(record.values()), {})
    return f", load {found['load']}" if "load" in found else ""


def find_dates() -> dict[str, str]:
    """When each file was last committed; today for one that has changed since."""
    dates = {}
    for path in RESULTS.glob("*.json*"):
        changed = subprocess.run(
            ["git", "status", "--porcelain", path], cwd=ROOT, capture_output=True, text=True, check=True
        )
        asked = ["git", "log", "-1", "--format=%as", "--", path]
        known = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
        dates[path.name] = datetime.date.today().isoformat() if changed.stdout or not known else known
    return dates


def main() -> None:
    PAGE.write_text(build_page(find_dates()))
    for path, names in MARKED.items():
        text = path.read_text()
        for name in names:
            text = fill(text, name)
        path.write_text(text)


if __name__ == "__main__":
    main()
