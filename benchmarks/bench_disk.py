"""Graphs bigger than memory: anonymous memory, time and bytes read from the disk, one section for each kind of work.

    python benchmarks/bench_disk.py evaluate                                # 2^20 nodes, 64 features, width 128, 2 layers
    python benchmarks/bench_disk.py evaluate --scale 23 --memory 1500MB --save
    python benchmarks/bench_disk.py evaluate --before ../old/src            # beside another version's package

The graph is drawn once, stored in --folder and opened from there. Every contender has a process of its own and takes its
turn --repeat times. Anonymous memory is RssAnon of /proc, read every 10 ms by a thread; pages of mapped files are not in
it. Bytes read are those that came from the disk: --cold asks the system to forget the graph's pages before each turn.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

BENCHMARKS = Path(__file__).parent


class MemoryWatch:
    """The most anonymous memory that this process holds while the block lasts, and what it held at first."""

    def __enter__(self) -> MemoryWatch:
        from shoal.memory import anonymous_memory

        self._read = anonymous_memory
        self.first = self.most = self._read()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.most = max(self.most, self._read())

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        self.most = max(self.most, self._read())


def read_io() -> dict[str, int]:
    """Bytes that this process had read from and written to the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    known = dict(line.split(": ") for line in lines)
    return {"read": int(known["read_bytes"]), "written": int(known["write_bytes"])}


def forget_pages(folder: Path) -> None:
    """Ask the system to drop a stored graph's pages from its cache."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def prepare_graph(options: argparse.Namespace) -> Path:
    """The stored Kronecker graph of the options, drawn where it is not there yet."""
    import shoal

    folder = Path(options.folder) / f"kronecker-{options.scale}-{options.features}"
    if not folder.exists():
        graph = shoal.load(
            "kronecker",
            scale=options.scale,
            degree=options.degree,
            num_features=options.features,
            num_classes=8,
        )
        shoal.save_graph(graph, folder)
    return folder


def evaluate_once(job: dict) -> dict[str, float]:
    """One evaluation of the validation nodes in this process; the package may be an older version."""
    import torch

    import shoal
    from shoal.threads import set_threads

    set_threads(job["threads"])
    small = shoal.load("kronecker", scale=8, num_features=job["features"], num_classes=8)
    graph = shoal.open_graph(job["graph"])
    torch.manual_seed(0)

    def make(one: shoal.Graph) -> shoal.Trainer:
        model = shoal.GNN(
            job["model"], one.num_features, job["width"], one.num_classes, num_layers=job["layers"]
        )
        return shoal.Trainer(model, one, shoal.NodeSampler(one, budget=100))

    make(small).evaluate("val")  # compiled kernels are loaded
    if job["memory"]:
        from shoal.memory import parse_bytes, set_memory_budget

        set_memory_budget(parse_bytes(job["memory"]))
    if job["cold"]:
        forget_pages(Path(job["graph"]))
    began = time.perf_counter(), time.process_time(), read_io()
    with MemoryWatch() as memory:
        trainer = make(graph)
        made = time.perf_counter()
        if job["folder"]:
            trainer.share.scratch_folder = Path(job["folder"])
        scores = trainer.evaluate("val")
    ended = time.perf_counter(), time.process_time(), read_io()
    return {
        "seconds": ended[0] - made,
        "cpu_seconds": ended[1] - began[1],
        "trainer_seconds": made - began[0],
        "anonymous": memory.most,
        "anonymous_before": memory.first,
        **{f"bytes_{name}": ended[2][name] - began[2][name] for name in ended[2]},
        "accuracy": scores["accuracy"],
    }


def run_apart(function: str, job: dict, source: str | None = None) -> dict:
    """A function of this file in a process of its own, with another version's package if `source` is given."""
    code = f"import json, sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import bench_disk; print(json.dumps(bench_disk.{function}(json.loads(sys.argv[1]))))"
    environment = dict(os.environ)
    if source:
        environment["PYTHONPATH"] = str(Path(source).resolve())
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(job)], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{function} failed:\n{done.stderr}")
    answer: dict = json.loads(done.stdout.splitlines()[-1])
    return answer


def bench_evaluate(options: argparse.Namespace) -> list[dict]:
    """Evaluation of the validation nodes: within the budget, in memory, and by another version."""
    graph = prepare_graph(options)
    names = ("features", "threads", "model", "width", "layers", "cold")
    common = {name: getattr(options, name) for name in names} | {"graph": str(graph)}
    contenders: dict[str, tuple[dict, str | None]] = {
        f"within {options.memory}": ({**common, "memory": options.memory, "folder": options.folder}, None),
        "in memory": ({**common, "memory": "", "folder": ""}, None),
    }
    if options.before:
        contenders["before, in memory"] = ({**common, "memory": "", "folder": ""}, options.before)
    found: dict[str, list[dict]] = {name: [] for name in contenders}
    for _ in range(options.repeat):
        for name, (job, source) in contenders.items():
            found[name].append(run_apart("evaluate_once", job, source))
    results = []
    first = min(turn["seconds"] for turn in next(iter(found.values())))
    for name, turns in found.items():
        best = min(turns, key=lambda turn: turn["seconds"])
        ratio = best["seconds"] / first
        print(
            f"{name:<20} {ratio:5.2f} ×  {best['seconds']:8.1f} s  cpu {best['cpu_seconds']:7.1f} s  "
            f"anonymous {best['anonymous'] / 1e9:6.2f} GB (before {best['anonymous_before'] / 1e9:.2f})  "
            f"read {best['bytes_read'] / 1e9:6.2f} GB  written {best['bytes_written'] / 1e9:6.2f} GB  "
            f"accuracy {best['accuracy']:.6f}",
            flush=True,
        )
        results.append({"contender": name, "turns": turns})
    return results


SECTIONS: dict[str, Callable[[argparse.Namespace], list[dict]]] = {"evaluate": bench_evaluate}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--scale", type=int, default=20, help="the graph has 2^scale nodes")
    parser.add_argument("--degree", type=int, default=32)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--model", default="sage")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--memory", default="1500MB", help="the budget of the bounded contender")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--cold", action="store_true", help="forget the graph's pages before each turn")
    parser.add_argument("--before", help="folder of another version's package, such as ../old/src")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where graphs and scratch files go")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/disk-SECTION.json")
    options = parser.parse_args()
    results = SECTIONS[options.section](options)
    import timing

    timing.print_environment()
    if options.save:
        timing.save(f"disk-{options.section}", results)


if __name__ == "__main__":
    main()
