"""Import of a large Parquet graph: time, peak memory against the size of the result, time to open it.

    python benchmarks/bench_import.py                      # 10^7 edges, 10^6 nodes, 32 features
    python benchmarks/bench_import.py --edges 1000000 --nodes 100000

For integer and string ids, with and without a node table, each in a process of its own: writes the tables
to a scratch folder, imports them, stores the graph and opens it. Peak memory is what the process grew by
since its modules and kernels were loaded; cpu s is the processor time, which a busy machine does not stretch. Fails if a promise is broken: 30 s, 3 × the stored size, 50 ms to open.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SECONDS, RATIO, OPEN_MS = 30.0, 3.0, 50.0


def write_tables(
    folder: Path, num_edges: int, num_nodes: int, num_features: int, strings: bool, nodes: bool
) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    # Integer ids with gaps, in no order: what exports of a database look like.
    ids = rng.permutation(num_nodes * 3)[:num_nodes].astype(np.int64)
    values = pa.array([f"user-{i:09d}" for i in ids]) if strings else pa.array(ids)
    if nodes:
        columns: dict[str, pa.Array] = {"id": values}
        for i in range(num_features):
            columns[f"f{i}"] = pa.array(rng.standard_normal(num_nodes, np.float32))
        columns["label"] = pa.array(rng.integers(0, 10, num_nodes))
        columns["split"] = pa.array(
            np.array(["train", "val", "test"])[rng.choice(3, num_nodes, p=[0.6, 0.2, 0.2])]
        )
        pq.write_table(pa.table(columns), folder / "nodes.parquet", row_group_size=1 << 17)
    with pq.ParquetWriter(
        folder / "edges.parquet", pa.schema({"source": values.type, "target": values.type})
    ) as writer:
        for start in range(0, num_edges, 1 << 20):
            size = min(1 << 20, num_edges - start)
            ends = [values.take(pa.array(rng.integers(0, num_nodes, size))) for _ in range(2)]
            writer.write_table(pa.table(ends, names=["source", "target"]))


def measure(folder: Path) -> dict[str, float]:
    """Import, store and open; runs in a fresh process."""
    from shoal.datasets.importers import import_graph
    from shoal.store import open_graph, save_graph

    import_graph(folder / "tiny")  # loads the compiled kernels
    baseline = _memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    start, work = time.perf_counter(), time.process_time()
    graph = import_graph(folder / "tables", directed=False)
    imported = time.perf_counter()
    save_graph(graph, folder / "stored")
    stored, worked = time.perf_counter(), time.process_time()
    growth = _memory("VmHWM") - baseline
    size = sum(file.stat().st_size for file in (folder / "stored").iterdir())
    opening = time.perf_counter()
    again = open_graph(folder / "stored")
    opened = time.perf_counter()
    assert again.num_entries == graph.num_entries
    return {
        "import_seconds": imported - start,
        "store_seconds": stored - imported,
        "seconds": stored - start,
        "cpu_seconds": worked - work,
        "peak_growth_mb": growth / 1e6,
        "stored_mb": size / 1e6,
        "ratio": growth / size,
        "open_ms": 1e3 * (opened - opening),
    }


def _memory(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}: this benchmark needs Linux")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure)))
        return
    broken = []
    print(
        f"{'case':<24}{'ratio':>7}{'peak MB':>9}{'stored MB':>10}{'import s':>9}{'store s':>8}{'total s':>8}{'cpu s':>7}{'open ms':>8}"
    )
    for strings in (False, True):
        for nodes in (True, False):
            case = f"{'string' if strings else 'integer'} ids{', node table' if nodes else ''}"
            with tempfile.TemporaryDirectory() as scratch:
                write_tables(Path(scratch) / "tables", args.edges, args.nodes, args.features, strings, nodes)
                write_tables(Path(scratch) / "tiny", 100, 10, 2, strings, nodes)
                command = [sys.executable, __file__, "--measure", scratch]
                result = json.loads(
                    subprocess.run(command, check=True, capture_output=True, text=True).stdout
                )
            print(
                f"{case:<24}{result['ratio']:>7.2f}{result['peak_growth_mb']:>9.0f}{result['stored_mb']:>10.0f}"
                f"{result['import_seconds']:>9.1f}{result['store_seconds']:>8.1f}{result['seconds']:>8.1f}{result['cpu_seconds']:>7.1f}{result['open_ms']:>8.1f}",
                flush=True,
            )
            if result["seconds"] > SECONDS or result["ratio"] > RATIO or result["open_ms"] > OPEN_MS:
                broken.append(case)
    print(
        f"{args.edges:,} edges, {args.nodes:,} nodes, {args.features} features; {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, pyarrow {pa.__version__}"
    )
    if broken:
        sys.exit(f"broken promise ({SECONDS:g} s, {RATIO:g} × stored, {OPEN_MS:g} ms): {'; '.join(broken)}")


if __name__ == "__main__":
    main()
