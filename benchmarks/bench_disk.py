"""Graphs bigger than memory: anonymous memory, time and bytes read from the disk, one section for each kind of work.

    python benchmarks/bench_disk.py generate --scale 26 --degree 16 --features 128 --type float16 --memory 4GB --save
    python benchmarks/bench_disk.py evaluate                                # 2^20 nodes, 64 features, width 128, 2 layers
    python benchmarks/bench_disk.py evaluate --scale 23 --memory 1500MB --save
    python benchmarks/bench_disk.py evaluate --before ../old/src            # beside another version's package
    python benchmarks/bench_disk.py train --scale 26 --degree 16 --features 128 --type float16 --memory 4GB --seconds 1500 --cold --save
    python benchmarks/bench_disk.py predict --scale 26 --degree 16 --features 128 --type float16 --width 64 --memory 4GB --cold --save
    python benchmarks/bench_disk.py swapped --scale 20 --parts 16 --memory 1500MB --save
    python benchmarks/bench_disk.py partition --scale 23 --degree 16 --methods streaming kaminpar --memory 2GB --save
    python benchmarks/bench_disk.py batches --scales 20 22 24 26 --degree 16 --features 0 --save

A graph is generated where it is not in --folder yet, by `shoal data generate` within --memory, and opened from there; what that
took is printed too. Every contender has a process of its own and takes its turn --repeat times. Anonymous memory is RssAnon
of /proc, read every 10 ms by a thread; pages of mapped files are not in it. Bytes read are those that came from the disk: --cold
asks the system to forget the graph's pages before each turn. `train` takes steps on frontier batches for --seconds, `batches`
draws them and takes their subgraphs, `swapped` trains full batches in memory and by swapped parts. --save adds to benchmarks/results/disk.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from disk_jobs import read_io

BENCHMARKS = Path(__file__).parent


def name_graph(options: argparse.Namespace) -> Path:
    """Where the Kronecker graph of the options is stored."""
    kind = "" if options.type == "float32" else f"-{options.type}"
    name = f"kronecker-{options.scale}-{options.degree}-{options.features}{kind}"
    return Path(options.folder).resolve() / name


def prepare_graph(options: argparse.Namespace) -> Path:
    """The stored graph of the options, drawn where it is not there yet."""
    if not name_graph(options).exists():
        options.made += bench_generate(options)
    return name_graph(options)


def bench_generate(options: argparse.Namespace) -> list[dict]:
    """`shoal data generate` within the budget."""
    folder = name_graph(options)
    words = ["generate", "kronecker", "-o", str(folder), "--memory", options.memory, "--overwrite"]
    words += ["--features", options.type] if options.features else []
    settings = {"scale": options.scale, "degree": options.degree, "num_features": options.features}
    for name, value in {**settings, "num_classes": 8}.items():
        words += ["--set", f"{name}={value}"]
    found = watch_command([sys.executable, "-m", "shoal", "data", *words], options.threads)
    found["stored"] = sum(path.stat().st_size for path in folder.iterdir())
    print_turn(f"generated within {options.memory}", found, stored=f"{found['stored'] / 1e9:.2f} GB")
    return [{"contender": "shoal data generate", "turns": [found]}]


def watch_command(words: list[str], threads: int, out: IO[str] | None = None) -> dict[str, float]:
    """Seconds, CPU seconds, bytes and the most anonymous memory, child processes included, of a command that must succeed."""
    began, before = time.perf_counter(), os.times()
    process = subprocess.Popen(words, stdout=out, env={**os.environ, "SHOAL_THREADS": str(threads)})
    most, moved = 0, {"read": 0, "written": 0}
    while process.poll() is None:
        with suppress(OSError, KeyError, psutil.Error):  # one ends between two looks
            started = [
                process.pid,
                *(one.pid for one in psutil.Process(process.pid).children(recursive=True)),
            ]
            most, moved = max(most, sum(map(read_anonymous, started))), read_io(process.pid)
        time.sleep(0.01)
    after = os.times()
    if process.returncode:
        sys.exit(f"{' '.join(words)} ended with code {process.returncode}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": cpu,
        "anonymous": most,
        "bytes_read": moved["read"],
        "bytes_written": moved["written"],
    }


def read_anonymous(process: int) -> int:
    """Anonymous memory of a process, in bytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return 1024 * int(dict(line.split(":", 1) for line in lines)["RssAnon"].split()[0])


def print_turn(name: str, turn: dict, ratio: float | None = None, **more: str) -> None:
    said = "" if ratio is None else f"{ratio:5.2f} ×  "
    print(
        f"{name:<24} {said}{turn['seconds']:8.1f} s  cpu {turn['cpu_seconds']:7.1f} s  "
        f"anonymous {turn['anonymous'] / 1e9:6.2f} GB  read {turn['bytes_read'] / 1e9:6.2f} GB  "
        f"written {turn['bytes_written'] / 1e9:6.2f} GB  "
        + "  ".join(f"{key} {value}" for key, value in more.items()),
        flush=True,
    )


def run_apart(function: str, job: dict, source: str | None = None) -> dict:
    """A function of this file in a process of its own, with another version's package if `source` is given."""
    code = f"import json, sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import disk_jobs; print(json.dumps(disk_jobs.{function}(json.loads(sys.argv[1]))))"
    environment = dict(os.environ)
    if source:
        environment["PYTHONPATH"] = str(Path(source).resolve())
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(job)], env=environment, stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        sys.exit(f"{function} failed")
    answer: dict = json.loads(done.stdout.splitlines()[-1])
    return answer


def make_job(options: argparse.Namespace, **more: object) -> dict:
    names = (
        "features",
        "threads",
        "model",
        "width",
        "layers",
        "cold",
        "budget",
        "seconds",
        "steps",
        "memory",
    )
    return {name: getattr(options, name) for name in names} | {"folder": options.folder} | more


def bench_evaluate(options: argparse.Namespace) -> list[dict]:
    """Evaluation of the validation nodes: within the budget, in memory, and by another version."""
    job = make_job(options, graph=str(prepare_graph(options)))
    inside = {**job, "memory": "", "folder": ""}
    contenders: dict[str, tuple[dict, str | None]] = {
        f"within {options.memory}": (job, None),
        "in memory": (inside, None),
    }
    if options.before:
        contenders["before, in memory"] = (inside, options.before)
    chosen = options.only.split(",") if options.only else contenders
    contenders = {name: contenders[name] for name in contenders if name in chosen}
    found: dict[str, list[dict]] = {name: [] for name in contenders}
    for _ in range(options.repeat):
        for name, (one, source) in contenders.items():
            found[name].append(run_apart("evaluate_once", one, source))
            last = found[name][-1]
            print_turn(name, last, accuracy=f"{last['accuracy']:.6f}")
    first = min(turn["seconds"] for turn in next(iter(found.values())))
    for name, turns in found.items():
        best = min(turns, key=lambda turn: turn["seconds"])
        print_turn(name, best, best["seconds"] / first)
    return [{"contender": name, "turns": turns} for name, turns in found.items()]


def bench_one(function: str, name: str) -> Callable[[argparse.Namespace], list[dict]]:
    """A section with one contender."""

    def bench(options: argparse.Namespace) -> list[dict]:
        job = make_job(options, graph=str(prepare_graph(options)))
        turns = [run_apart(function, job) for _ in range(options.repeat)]
        for turn in turns:
            known = ("seconds", "cpu_seconds", "anonymous", "anonymous_before", "bytes_read", "bytes_written")
            print_turn(name, turn, **{key: f"{turn[key]:.6g}" for key in turn if key not in known})
        return [{"contender": name, "turns": turns}]

    return bench


def bench_batches(options: argparse.Namespace) -> list[dict]:
    """Batches of graphs of growing scale, beside the first one's."""
    results, scales = [], options.scales or [options.scale]
    for scale in scales:
        options.scale = scale
        job = make_job(options, graph=str(prepare_graph(options)), memory="", cold=False)
        turns = [run_apart("batches_once", job) for _ in range(options.repeat)]
        best = min(turns, key=lambda turn: turn["batch_cpu_ms"])
        results.append({"contender": f"2^{scale}", "turns": turns})
        least = min(turn["batch_cpu_ms"] for turn in results[0]["turns"])
        print(
            f"2^{scale}: {best['batch_cpu_ms'] / least:.2f} × 2^{scales[0]}, a batch {best['batch_cpu_ms']:.2f} ms CPU, "
            f"its nodes {best['nodes_cpu_ms']:.2f}, {best['entries']:,.0f} entries of {best['scanned']:,.0f} scanned; the first {best['first_cpu_seconds']:.1f} s",
            flush=True,
        )
    return results


def bench_swapped(options: argparse.Namespace) -> list[dict]:
    """Full batches: everything in memory, and parts that are swapped within the budget. Bytes must be those predicted."""
    more = {"graph": str(prepare_graph(options)), "method": options.method, "epochs": options.epochs}
    contenders = {
        "full, in memory": make_job(options, **more, parts=0) | {"memory": ""},
        f"swapped, {options.parts} parts": make_job(options, **more, parts=options.parts),
    }
    found: dict[str, list[dict]] = {name: [] for name in contenders}
    for _ in range(options.repeat):
        for name, job in contenders.items():
            found[name].append(run_apart("swap_once", job))
    first = min(turn["epoch_seconds"] for turn in next(iter(found.values())))
    for name, turns in found.items():
        best = min(turns, key=lambda turn: turn["epoch_seconds"])
        said = {"epoch": f"{best['epoch_seconds']:.2f} s", "loss": f"{best['loss']:.6f}"}
        for way in ("read", "written") if "predicted_read" in best else ():
            counted, predicted = best[f"counted_{way}"], best[f"predicted_{way}"]
            if counted != predicted:
                sys.exit(f"{name}: {predicted} bytes were predicted and {counted} {way}")
            said[f"swapped, {way}"] = f"{counted / 1e9:.3f} GB"
        grown = (best["anonymous"] - best["anonymous_before"]) / 1e9
        said["grown by"] = f"{grown:.2f} GB (estimated {best.get('estimated', 0) / 1e9:.2f})"
        print_turn(name, best, best["epoch_seconds"] / first, **said)
    return [{"contender": name, "turns": turns} for name, turns in found.items()]


def bench_partition(options: argparse.Namespace) -> list[dict]:
    """`shoal partition` within the budget, by each of the methods; what it stores is removed."""
    graph, results = prepare_graph(options), []
    for method in options.methods:
        with tempfile.TemporaryDirectory(dir=options.folder) as scratch:
            words = ["partition", str(graph), "--parts", str(options.parts), "--method", method]
            words += ["--memory", options.memory, "--json", "-o", f"{scratch}/parts"]
            with open(f"{scratch}/said", "w") as said:
                found = watch_command([sys.executable, "-m", "shoal", *words], options.threads, said)
            quality = json.loads(Path(f"{scratch}/said").read_text())
        told = {name: quality[name] for name in ("total_volume", "max_send_volume", "cover_volume")}
        print_turn(f"{method} within {options.memory}", found, **{k: f"{told[k]:,}" for k in told})
        results.append({"contender": method, "turns": [found | told]})
    return results


SECTIONS: dict[str, Callable[[argparse.Namespace], list[dict]]] = {
    "generate": bench_generate,
    "evaluate": bench_evaluate,
    "train": bench_one("train_once", "steps"),
    "predict": bench_one("predict_once", "predict"),
    "batches": bench_batches,
    "swapped": bench_swapped,
    "partition": bench_partition,
}


def save_section(options: argparse.Namespace, results: list[dict]) -> None:
    """Put a section's results beside the others of the file."""
    import timing

    path = timing.RESULTS / "disk.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    given = [Path(word).name if os.path.isabs(word) else word for word in sys.argv[1:] if word != "--save"]
    key = options.section if options.scales else f"{options.section} {options.scale}"
    known[key] = {
        "command": " ".join(["python benchmarks/bench_disk.py", *given]),
        "environment": timing.environment(),
        "results": results,
    }
    path.write_text(timing.format_record(known))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--scale", type=int, default=20, help="the graph has 2^scale nodes")
    parser.add_argument("--scales", type=int, nargs="*", help="of the graphs of `batches`")
    parser.add_argument("--degree", type=int, default=32)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--type", default="float32", help="what features are stored as")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--budget", type=int, default=8000, help="nodes of a batch")
    parser.add_argument("--seconds", type=float, default=60, help="of steps")
    parser.add_argument("--steps", type=int, default=300, help="of `train`, at most; batches of `batches`")
    parser.add_argument("--parts", type=int, default=16, help="of `swapped`")
    parser.add_argument("--method", default="metis", help="of `swapped`: how the graph is cut")
    parser.add_argument("--methods", nargs="*", default=["streaming"], help="of `partition`")
    parser.add_argument("--epochs", type=int, default=2, help="of `swapped`; the fastest is told")
    parser.add_argument("--memory", default="1500MB", help="the budget of the bounded contender")
    parser.add_argument("--only", help="contenders of `evaluate`, by name")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--cold", action="store_true", help="forget the graph's pages before each turn")
    parser.add_argument("--before", help="folder of another version's package, such as ../old/src")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where graphs and scratch files go")
    parser.add_argument("--save", action="store_true", help="add to benchmarks/results/disk.json")
    options = parser.parse_args()
    options.made = []
    results = SECTIONS[options.section](options) + options.made
    import timing

    timing.print_environment()
    if options.save:
        save_section(options, results)


if __name__ == "__main__":
    main()
