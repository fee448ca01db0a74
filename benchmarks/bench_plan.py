"""What `shoal plan` predicts beside what `shoal train` then takes: seconds and CPU seconds of an epoch, anonymous memory.

    python benchmarks/bench_plan.py cora pubmed
    python benchmarks/bench_plan.py --save
    python benchmarks/bench_plan.py --methods partitioned --hosts 2 --save cora
    python benchmarks/bench_plan.py --methods swapped --memory 500MB --save pubmed

For every graph plan runs, then `shoal train` with each method for some epochs; the first epoch, which loads kernels,
does not count. Without names all graphs with features and labels are tried, each in full, by batches and with SIGN.
`samplers` are those beside the run's own. Ratios are predicted / actual: 1 is right. On a machine that others use,
seconds of one minute tell little of the next: CPU seconds are firmer. Across ranks CPU seconds are those of rank 0,
predicted without exchanges. Memory is RssAnon of /proc, read every 5 ms, of the process or the largest rank.
--save adds to benchmarks/results/plan.json.
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

RESULTS = Path(__file__).parent / "results" / "plan.json"
WATCH = Path(__file__).parent / "plan_watch.py"
LABELLED = "cora citeseer pubmed hetero-tolokers amazon-computers ppi coauthor-physics wordnet30 ppi-large acl-anthology"
METHODS = ("full", "sampled", "samplers", "precomputed", "partitioned", "swapped")


def run_plan(graph: str, options: argparse.Namespace) -> dict:
    """What plan says of a graph; nothing where it says that there is nothing to train."""
    words = [sys.executable, "-m", "shoal", "plan", graph, "--json", "--seconds", str(options.seconds)]
    words += ["--hosts", str(options.hosts)] if options.hosts > 1 else []
    words += ["--memory", options.memory] if options.memory else []
    if "samplers" not in options.methods:
        words += ["--set", "sampler.name=random-walk"]  # the default: others need not be tried
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {"candidates": []}


def run_training(graph: str, said: dict, options: argparse.Namespace) -> dict:
    """Mean seconds and CPU seconds of an epoch behind the first, and the most memory."""
    epochs = options.epochs or int(min(max(5 / (said["cpu"] or said["seconds"] or 1), 4), 40))
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        words = [sys.executable, "-m", "shoal", "train", graph, *said["options"], "--epochs", str(epochs)]
        words += ["--plugin", str(WATCH), "--set", "training.callbacks=plan-watch", "--out", str(folder)]
        words += ["--memory", options.memory] if options.memory else []
        subprocess.run(words, env={**os.environ, "BENCH_PLAN": place}, stdout=sys.stderr, check=True)
        records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        held = [int(path.read_text()) for path in Path(place).iterdir() if path.name.isdecimal()]
    records = [record for record in records if "epoch" in record][1:]
    evaluations = [record["eval_seconds"] for record in records if "eval_seconds" in record]
    return {
        "seconds": statistics.mean(record["seconds"] for record in records),
        "cpu": statistics.mean(record["cpu"] for record in records),
        "evaluation": statistics.mean(evaluations) if evaluations else None,
        "memory": max(held),
        "epochs": len(records),
        "load": os.getloadavg()[0],
    }


def compare(graph: str, said: dict, took: dict) -> dict:
    """A row of the results."""
    ratios = {
        f"{name}_ratio": None if said[key] is None or took[key] is None else said[key] / took[key]
        for name, key in (
            ("time", "seconds"),
            ("cpu", "cpu"),
            ("memory", "memory"),
            ("evaluation", "evaluation"),
        )
    }
    told = {key: said[key] for key in ("seconds", "cpu", "evaluation", "memory", "how")}
    return {"graph": graph, "method": said["name"], **ratios, "predicted": told, "actual": took}


def print_row(row: dict) -> None:
    ratios = [row[f"{name}_ratio"] for name in ("time", "cpu", "memory", "evaluation")]
    time, cpu, memory, evaluation = ("    –" if ratio is None else f"{ratio:5.2f}" for ratio in ratios)
    took = row["actual"]
    print(
        f"{row['graph']:<18} {row['method']:<22} time {time} ×  cpu {cpu} ×  memory {memory} ×  evaluation {evaluation} ×  "
        f"({took['seconds']:.3f} s, cpu {took['cpu']:.3f} s, {took['memory'] / 1e6:,.0f} MB; {row['predicted']['how']}; load {took['load']:.1f})",
        flush=True,
    )


def save_row(row: dict) -> None:
    """Put a row into the results, in place of an older one of the same graph and method."""
    known = json.loads(RESULTS.read_text()) if RESULTS.is_file() else []
    known = [one for one in known if (one["graph"], one["method"]) != (row["graph"], row["method"])]
    given = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:]]
    row["command"] = " ".join(["python benchmarks/bench_plan.py", *given])
    RESULTS.write_text(json.dumps([*known, row], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="*", default=LABELLED.split())
    parser.add_argument("--data", default=os.environ.get("SHOAL_DATA", "../shared/data"))
    parser.add_argument("--methods", nargs="+", default=["full", "sampled", "precomputed"], choices=METHODS)
    parser.add_argument(
        "--epochs", type=int, help="to train; by default 4 to 40, about 5 CPU seconds of them"
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="that plan measures")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--memory")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    os.environ["SHOAL_DATA"] = str(Path(options.data).resolve())
    os.environ["SHOAL_THREADS"] = str(options.threads)
    for graph in options.graphs:
        plan = run_plan(graph, options)
        for number, said in enumerate(plan["candidates"]):
            method = said["name"].split(",")[0]
            if number and method == "sampled":
                method = "samplers"
            if method in options.methods and not said["fits"]:
                print(f"{graph:<18} {said['name']:<22} does not fit in memory", flush=True)
            elif method in options.methods:
                row = compare(graph, said, run_training(graph, said, options))
                row |= {"best": plan["best"], "threads": options.threads}
                print_row(row)
                if options.save:
                    save_row(row)


if __name__ == "__main__":
    main()
