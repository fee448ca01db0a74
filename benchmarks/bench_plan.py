"""What `shoal plan` predicts beside what `shoal train` then takes: seconds an epoch and anonymous memory.

    python benchmarks/bench_plan.py --data ../shared/data cora pubmed ppi wordnet30
    python benchmarks/bench_plan.py --data ../shared/data --methods full sampled --epochs 4 --save

For every graph plan runs in a process of its own, then `shoal train` with each method for some epochs; the first epoch, which loads kernels,
does not count. Ratios are predicted / actual: 1 is right. Memory is RssAnon of /proc, read every 10 ms. --save adds to
benchmarks/results/plan.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_disk import watch_command

RESULTS = Path(__file__).parent / "results" / "plan.json"
LABELLED = "cora citeseer pubmed hetero-tolokers amazon-computers ppi coauthor-physics wordnet30 ppi-large acl-anthology"


def run_plan(graph: str, seconds: float, threads: int) -> dict:
    """What plan says of a graph."""
    words = [sys.executable, "-m", "shoal", "plan", graph, "--json", "--seconds", str(seconds)]
    environment = {**os.environ, "SHOAL_THREADS": str(threads)}
    done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def run_training(graph: str, options: list[str], epochs: int, threads: int) -> dict:
    """Median seconds of an epoch and of an evaluation behind the first, and the most memory."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        words = [sys.executable, "-m", "shoal", "train", graph, *options, "--epochs", str(epochs)]
        found = watch_command([*words, "--out", str(folder)], threads)
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    records = [record for record in records if "epoch" in record][1:]
    return {
        "seconds": statistics.median(record["seconds"] for record in records),
        "memory": found["anonymous"],
        "load": os.getloadavg()[0],
    }


def save_row(row: dict) -> None:
    """Put a row into the results, in place of an older one of the same graph and method."""
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else []
    known = [one for one in known if (one["graph"], one["method"]) != (row["graph"], row["method"])]
    row["command"] = "python benchmarks/bench_plan.py " + " ".join(sys.argv[1:])
    RESULTS.write_text(json.dumps([*known, row], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=LABELLED.split())
    parser.add_argument("--data", default=os.environ.get("SHOAL_DATA", "../shared/data"))
    parser.add_argument("--methods", nargs="+", default=["full", "sampled"], choices=["full", "sampled"])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60.0, help="that plan measures")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    os.environ["SHOAL_DATA"] = str(Path(options.data).resolve())
    for graph in options.graphs:
        plan = run_plan(graph, options.seconds, options.threads)
        for method in options.methods:
            said = next(one for one in plan["candidates"] if one["options"][1] == method)
            took = run_training(graph, said["options"], options.epochs, options.threads)
            row = {
                "graph": graph,
                "method": said["name"],
                "time_ratio": said["seconds"] / took["seconds"],
                "memory_ratio": said["memory"] / took["memory"],
                "predicted": {key: said[key] for key in ("seconds", "memory", "how")},
                "actual": took,
                "best": plan["best"],
            }
            print(
                f"{graph:<18} {said['name']:<22} time {row['time_ratio']:5.2f} ×  memory {row['memory_ratio']:5.2f} ×  "
                f"({took['seconds']:.3f} s, {took['memory'] / 1e6:,.0f} MB; load {took['load']:.1f})",
                flush=True,
            )
            if options.save:
                save_row(row | {"threads": options.threads})


if __name__ == "__main__":
    main()
