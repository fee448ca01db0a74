"""Test scores of recipes at their full length, over several seeds.

    SHOAL_DATA=DIR python benchmarks/bench_recipe_scores.py ppi-frontier ppi-rw [--seeds 0 1 2]
    python benchmarks/bench_recipe_scores.py --show

Each run is `shoal train --recipe NAME --seed K` in a process of its own, with one thread. Rows are added to
benchmarks/results/recipe-scores.jsonl as runs end, with all validation scores taken; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "recipe-scores.jsonl"
Row = dict[str, Any]


def train_recipe(name: str, seed: int) -> Row:
    """Train a recipe with a seed; its scores, epochs and CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        line = [sys.executable, "-m", "shoal", "train", "--recipe", name, "--seed", str(seed)]
        line += ["--repeat", "1", "--json", "--no-report", "--out", str(run)]
        fixed = {"SHOAL_HOME": folder, "SHOAL_THREADS": "1"}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(line, env=os.environ | fixed, stdout=subprocess.PIPE, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            sys.exit(f"{' '.join(line)} ended with code {done.returncode}")
        said = json.loads(done.stdout)
        records = [json.loads(one) for one in (run / "metrics.jsonl").read_text().splitlines()]
    key = next(one for one in said if one.startswith("val_"))  # of the metric that chooses the weights
    return {
        "val": said[key],
        "test": said[key.replace("val_", "test_")],
        "best_epoch": said["best_epoch"],
        "epochs": said["epochs"],
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1),
        "curve": [[one["epoch"], round(one[key], 5)] for one in records if key in one and "epoch" in one],
    }


def read_rows() -> list[Row]:
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.is_file() else []


def show(rows: list[Row]) -> None:
    """A table: means and deviations over the seeds."""
    print("| recipe | seeds | epochs | validation | test | test of each seed | CPU s a run |")
    print("|---|---|---|---|---|---|---|")
    for name in dict.fromkeys(row["recipe"] for row in rows):
        own = sorted((row for row in rows if row["recipe"] == name), key=lambda row: row["seed"])
        val, test, seconds = ([row[key] for row in own] for key in ("val", "test", "cpu_seconds"))
        spread = f" ± {np.std(test, ddof=1):.4f}" if len(test) > 1 else ""
        each = ", ".join(f"{one:.4f}" for one in test)
        cells = [name, len(own), own[0]["epochs"], f"{np.mean(val):.4f}", f"{np.mean(test):.4f}{spread}"]
        print("| " + " | ".join(map(str, [*cells, each, f"{np.mean(seconds):.0f}"])) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--show", action="store_true", help="print what was measured")
    args = parser.parse_args()
    for seed in () if args.show else args.seeds:
        for name in args.recipes:
            if any((row["recipe"], row["seed"]) == (name, seed) for row in read_rows()):
                continue
            row = {"recipe": name, "seed": seed} | train_recipe(name, seed)
            with RESULTS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print({key: value for key, value in row.items() if key != "curve"}, flush=True)
    show(read_rows())


if __name__ == "__main__":
    main()
