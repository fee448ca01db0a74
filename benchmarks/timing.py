"""Interleaved timing of a kernel and its peers, and the record of a benchmark run."""

import argparse
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

# Idle OpenMP threads would spin and hold a core while the next contender runs; Intel's (MKL) for 0.2 s. Import
# this module before torch.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")

import numba
import numpy
import torch

from shoal.memory import keep_freed_memory
from shoal.threads import set_threads

RESULTS = Path(__file__).parent / "results"


def interleave(
    contenders: dict[str, Callable[[], object]], seconds: float, least: int = 5
) -> dict[str, dict]:
    """Run all contenders in turn until `seconds` are over; min, median and spread of each, in ms.

    Taking turns lets a disturbance hit everybody; a turn is one run that is not counted, to bring back what
    the others drove out of the caches, and as many as fit in 10 ms, 3 at least (long runs count at once). Whoever takes 20 times as long as the
    first contender has only `least` turns. Ratios are made from the minima, the times least disturbed.
    """
    for run in contenders.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in contenders}
    ours = next(iter(contenders))
    start = time.perf_counter()
    turns = 0
    while time.perf_counter() - start < seconds or turns < least:
        for name, run in contenders.items():
            if turns >= least and min(times[name]) > 20 * min(times[ours]):
                continue
            once = _milliseconds(run)
            repeats = 0 if once > 50 else int(max(3, min(10 / once, 50)))
            times[name] += [_milliseconds(run) for _ in range(repeats)] or [once]
        turns += 1
    return {
        name: {
            "min": min(all_),
            "median": statistics.median(all_),
            "spread": statistics.quantiles(all_, n=4)[2] - statistics.quantiles(all_, n=4)[0],
            "runs": len(all_),
        }
        for name, all_ in times.items()
    }


class Elapsed(float):
    """Milliseconds that a contender measured itself; returned by it, they count instead of ours."""


def _milliseconds(run: Callable[[], object]) -> float:
    before = time.perf_counter()
    answer = run()
    return float(answer) if isinstance(answer, Elapsed) else (time.perf_counter() - before) * 1e3


def number(job: Callable[[int], object]) -> Callable[[], object]:
    """A contender that runs job(0), job(1), …"""
    numbers = itertools.count()
    return lambda: job(next(numbers))


class Worker:
    """A peer in an environment of its own: answers every line of JSON with the time of one run there."""

    def __init__(self, python: str, script: str, *arguments: str, **environment: str) -> None:
        path = Path(__file__).parent / script
        self._process = subprocess.Popen(
            [python, path, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | environment,
        )

    def ask(self, request: dict[str, object]) -> Elapsed:
        return Elapsed(self.answer(request)["ms"])

    def answer(self, request: dict[str, object]) -> dict:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def describe(times: dict[str, dict], ours: str) -> str:
    """Ratios of the peers to ours first, then the times."""
    best = times[ours]["min"]
    ratios = "  ".join(f"{times[name]['min'] / best:.2f}x {name}" for name in times if name != ours)
    lines = [f"  {ratios}"]
    lines += [
        f"    {name:<28} min {t['min']:9.3f}  median {t['median']:9.3f}  spread {t['spread']:8.3f} ms  ({t['runs']} runs)"
        for name, t in times.items()
    ]
    return "\n".join(lines)


def add_memory_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep-memory",
        action="store_true",
        help="keep freed memory in the process, as the trainer does; the peers in this process gain from it too",
    )


def use_memory_option(keep: bool) -> str:
    """Apply --keep-memory; returns what to add to the name of the results."""
    if keep:
        keep_freed_memory()
    print(f"freed memory is {'kept in the process' if keep else 'returned as the C library decides'}")
    return "-memory-kept" if keep else ""


def use_threads(count: int) -> None:
    set_threads(count)


def environment() -> dict[str, object]:
    cpu = platform.processor() or "unknown"
    if Path("/proc/cpuinfo").exists():
        models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        cpu = models[0].split(":", 1)[1].strip() if models else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numba": numba.__version__,
        "numpy": numpy.__version__,
    }


def save(name: str, results: list[dict]) -> None:
    """Write results with the command and the environment."""
    RESULTS.mkdir(exist_ok=True)
    given = [Path(arg).name if os.path.isabs(arg) else arg for arg in sys.argv[1:]]
    command = "python " + " ".join([f"benchmarks/{Path(sys.argv[0]).name}", *given])
    record = {"command": command, "environment": environment(), "results": results}
    (RESULTS / f"{name}.json").write_text(format_record(record))


def format_record(record: object) -> str:
    """JSON with one line for each list of plain values."""
    text = json.dumps(record, indent=1) + "\n"
    return re.sub(r"\[\s+([^\[\]{}]+?)\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def print_environment() -> None:
    print("environment:", ", ".join(f"{key} {value}" for key, value in environment().items()))
