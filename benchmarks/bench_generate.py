"""Seconds and memory to make graphs, in memory and straight to disk.

    python benchmarks/bench_generate.py                         # 10⁷ edges in memory
    python benchmarks/bench_generate.py --scales 20 22 --memory 1GB --folder /large/disk

In memory, prints for each generator the median and the spread of the whole call (edges, features, CSR, validation); the first
call compiles and is not counted. With --scales, `shoal data generate kronecker` runs in a process of its own for each
scale: wall-clock and CPU seconds, the most anonymous memory it held (read from /proc every 10 ms), and the bytes it stored.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import timing
from shoal.datasets.generators import GENERATORS
from shoal.memory import parse_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--edges", type=int, default=10_000_000, help="edges drawn before merging, in memory")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--scales", type=int, nargs="*", help="of Kronecker graphs drawn to disk instead")
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    if options.scales:
        results = [
            generate_to_disk(scale, options.features, options.memory, options.folder)
            for scale in options.scales
        ]
        timing.save("generate", results)
    else:
        generate_in_memory(options.edges, options.repeat)
    timing.print_environment()


def generate_in_memory(edges: int, repeat: int) -> None:
    scale = 20
    cases = {
        "blocks": {"num_nodes": max(edges // 10, 10), "degree": 20},
        "kronecker": {"scale": scale, "degree": 2 * edges / 2**scale},
    }
    for name, settings in cases.items():
        make = GENERATORS[name]
        make(**{**settings, "degree": 1})
        seconds = []
        for seed in range(repeat):
            start = time.perf_counter()
            graph = make(**settings, seed=seed)
            seconds.append(time.perf_counter() - start)
        print(
            f"{name}: {statistics.median(seconds):.2f} s (from {min(seconds):.2f} to {max(seconds):.2f}), "
            f"{edges:,} edges drawn, {graph.num_edges:,} kept, {graph.num_nodes:,} nodes, "
            f"{graph.num_features} features"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GB")


def generate_to_disk(scale: int, features: int, memory: str, folder: Path) -> dict:
    """One run of the command; refuses to report one that broke its budget without saying so."""
    place = Path(tempfile.mkdtemp(dir=folder))
    words = ["kronecker", "-o", str(place / "g"), "--memory", memory]
    words += ["--set", f"scale={scale}", "--set", f"num_features={features}"]
    try:
        began, before = time.perf_counter(), os.times()
        process = subprocess.Popen([sys.executable, "-m", "shoal", "data", "generate", *words])
        peak = 0
        while process.poll() is None:
            peak = max(peak, read_anonymous(process.pid))
            time.sleep(0.01)
        after = os.times()
        assert process.returncode == 0
        stored = sum(path.stat().st_size for path in (place / "g").iterdir())
    finally:
        shutil.rmtree(place)
    found = {
        "scale": scale,
        "features": features,
        "memory": memory,
        "seconds": time.perf_counter() - began,
        "cpu_seconds": after.children_user
        + after.children_system
        - before.children_user
        - before.children_system,
        "peak_anonymous_bytes": peak,
        "stored_bytes": stored,
    }
    broke = "" if peak <= parse_bytes(memory) else "  BROKE ITS BUDGET"
    print(
        f"2^{scale} nodes, {features} features, --memory {memory}: {found['seconds']:.0f} s, "
        f"{found['cpu_seconds']:.0f} s CPU, {peak / 1e9:.2f} GB anonymous at most, {stored / 1e9:.2f} GB stored{broke}",
        flush=True,
    )
    return found


def read_anonymous(pid: int) -> int:
    try:
        found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


if __name__ == "__main__":
    main()
