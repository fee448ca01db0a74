"""Features on disk: rows found in a cache by policy, and steps beside features in memory and beside plain mapping.

    python benchmarks/bench_features.py                          # about 10 minutes, 400 MB in --folder
    python benchmarks/bench_features.py --scale 16 --seconds 20  # a trial
    python benchmarks/bench_features.py --only hits

The graph is a Kronecker graph of 2^scale nodes with 128 features in float16, stored; batches are frontier batches of 8,000.
`hits`: the share of rows found in the cache, for every policy and size, after as many batches as were counted; `reads` the
rows read over LRU's. `steps`: the time from batch to batch of a two-layer SAGE of width 128, with features in memory, with a
cache of 20 % whose misses bypass the page cache (O_DIRECT), and mapped, with the pages of the file dropped (posix_fadvise)
before every batch, before every turn and never; `indexed` are rows of a mapped tensor taken by torch's indexing, as PyG and
GraphBolt read features that are mapped. Contenders take turns of
20 batches, after some that are not counted; ratios are of medians, `low` is the lowest tenth, `cpu` the time of all threads. A target that is missed is
printed as LOST.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from timing import RESULTS, environment, print_environment  # isort: skip  (before torch)

import numpy as np
import torch

import shoal
from shoal.batch import Batch
from shoal.kernels.encoding import EncodedRows
from shoal.memory import keep_freed_memory
from shoal.sampling.feature_cache import FeatureCache, FeatureCaching
from shoal.sampling.feature_stream import FeatureCounts
from shoal.sampling.stream import BatchStream
from shoal.training.loss import compute_loss

SIZES = (0.02, 0.05, 0.1, 0.2)
POLICIES = {"degree": (0, False), "lru": (0, True), "16": (16, False), "64": (64, False), "200": (200, False)}
BATCHES, COUNTED = 600, 300
TURN, LEAD = 20, 8
STEP_TARGET, READ_TARGET = 1.3, 0.6


def make_graph(folder: Path, scale: int, num_features: int) -> shoal.Graph:
    """The stored graph, made if it is not there."""
    place = folder / f"kronecker-{scale}-{num_features}"
    if not place.exists():
        made = shoal.load("kronecker", scale=scale, degree=16, seed=1, num_features=num_features)
        shoal.save_graph(made, place, features="float16")
    return shoal.open_graph(place)


def make_sampler(graph: shoal.Graph) -> shoal.Sampler:
    budget = min(8000, graph.num_nodes // 8)
    return shoal.FrontierSampler(graph, budget, budget // 8, seed=0)


def count_hits(graph: shoal.Graph) -> list[dict]:
    """Rows found in the cache over rows asked for, by size and policy."""
    sampler = make_sampler(graph)
    window = max(window for window, _ in POLICIES.values())
    lists = [sampler.draw_nodes(k).astype(np.int32) for k in range(BATCHES + window + 1)]
    rows = []
    for size in SIZES:
        found: dict[str, float] = {}
        for name, (ahead, recent) in POLICIES.items():
            slots = round(size * graph.num_nodes)
            cache = FeatureCache(
                np.zeros((graph.num_nodes, 1), np.uint8), slots, graph.indptr, window=ahead, recent=recent
            )
            coming, missed, asked = iter(enumerate(lists)), 0, 0
            for k in range(BATCHES):
                while cache.num_entered <= ahead:
                    cache.enter(*next(coming))
                plan = cache.plan()
                if k >= BATCHES - COUNTED:
                    missed, asked = missed + len(plan.misses), asked + len(plan.rows)
            found[name] = round(1 - missed / asked, 4)
        reads = {name: round((1 - found[name]) / (1 - found["lru"]), 3) for name in found}
        rows.append({"cache": size, "found": found, "reads_over_lru": reads})
        print(
            f"{size:5.0%}  "
            + "  ".join(f"{name} {share:.3f} ({reads[name]:.2f})" for name, share in found.items())
        )
        best = reads["200"]  # the default
        print(
            f"       rows read over LRU's: {best:.2f}, target {READ_TARGET}{'' if best <= READ_TARGET else '  LOST'}"
        )
    return rows


def drop_pages(graph: shoal.Graph) -> None:
    """Have the system forget the pages of the features' file."""
    assert isinstance(graph.x, EncodedRows)
    file = os.open(graph.x.codes.filename, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


class Contender:
    """Steps on the same batches with features from one place."""

    def __init__(
        self, graph: shoal.Graph, caching: FeatureCaching, drop: str = "never", *, indexed: bool = False
    ) -> None:
        self.graph, self.drop = graph, drop
        self.rows = torch.from_numpy(graph.x.codes) if indexed else None  # type: ignore[union-attr]
        self.sampler = make_sampler(graph)
        self.stream = BatchStream(self.sampler, caching=caching)
        self.model = shoal.GNN("sage", graph.num_features, 128, graph.num_classes, num_layers=2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True)
        self.position = 0
        self.times: list[float] = []
        self.cpu = 0.0  # seconds of all threads in counted batches
        self.counts = FeatureCounts()

    def run(self, count: int, *, counted: bool) -> None:
        if self.drop == "turn":
            unmap(self.graph)
            drop_pages(self.graph)
        start = self.position
        self.position += count
        before, cpu = time.perf_counter(), time.process_time()
        for batch in self.stream.take(start, count):
            self.step(batch)
            now = time.perf_counter()
            if counted:
                self.times.append(1e3 * (now - before))
            if self.drop == "batch":
                unmap(self.graph)
                drop_pages(self.graph)
            before = time.perf_counter()
        self.cpu += (time.process_time() - cpu) * counted
        told = self.stream.take_counts()
        if counted and told:
            self.counts.add(
                FeatureCounts(**{name.removeprefix("feature_"): value for name, value in told.items()})
            )

    def step(self, batch: Batch) -> None:
        if self.rows is not None:
            batch.x = self.rows[batch.n_id].float()
        loss = compute_loss(self.model(batch), batch, None)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


def unmap(graph: shoal.Graph) -> None:
    """Let go of the mapped pages: what a process maps is not dropped."""
    assert isinstance(graph.x, EncodedRows)
    graph.x.codes.base.madvise(mmap.MADV_DONTNEED)


def time_steps(graph: shoal.Graph, seconds: float, cache: float) -> dict:
    """Milliseconds from batch to batch."""
    assert isinstance(graph.x, EncodedRows)
    inside = graph._copy(x=EncodedRows(np.array(graph.x.codes), graph.x.type))
    mapped = FeatureCaching(policy="mapped")
    contenders = {
        "memory": Contender(inside, mapped),
        "lookahead": Contender(graph, FeatureCaching(cache=cache, direct=True)),
        "lru": Contender(graph, FeatureCaching(policy="lru", cache=cache, direct=True)),
        "mapped, page cache": Contender(graph, mapped),
        "mapped, dropped every 20": Contender(graph, mapped, "turn"),
        "mapped, dropped": Contender(graph, mapped, "batch"),
        "indexed, page cache": Contender(graph, mapped, indexed=True),
        "indexed, dropped": Contender(graph, mapped, "batch", indexed=True),
    }
    warm = round(2 * cache * graph.num_nodes / make_sampler(graph).batch_size) + 2 * TURN
    for name, one in contenders.items():
        one.run(warm if name in ("lookahead", "lru") else TURN, counted=False)
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        for one in contenders.values():
            one.run(LEAD, counted=False)  # what was read ahead while others had their turn
            one.run(TURN, counted=True)
    results = {}
    for name, one in contenders.items():
        one.stream.close()
        parts = statistics.quantiles(one.times, n=10)
        results[name] = {
            "low": round(parts[0], 2),
            "median": round(statistics.median(one.times), 2),
            "mean": round(statistics.fmean(one.times), 2),
            "cpu": round(1e3 * one.cpu / len(one.times), 2),
            "batches": len(one.times),
        }
        if one.counts.rows:
            results[name] |= {
                "found": round(one.counts.found / one.counts.rows, 4),
                "rows_read_a_batch": round(one.counts.read / len(one.times)),
                "megabytes_a_batch": round(one.counts.read_bytes / len(one.times) / 1e6, 2),
                "wait_ms_a_batch": round(1e3 * one.counts.wait_seconds / len(one.times), 2),
            }
    inside_time = results["memory"]
    for name, one in results.items():
        ratios = {key: round(one[key] / inside_time[key], 3) for key in ("low", "median", "mean", "cpu")}
        one["over_memory"] = ratios
        lost = "  LOST" if name == "lookahead" and ratios["median"] > STEP_TARGET else ""
        print(
            f"{name:26} × {ratios['median']:.2f} of memory (low {ratios['low']:.2f}, mean {ratios['mean']:.2f}, CPU {ratios['cpu']:.2f}); {one}{lost}"
        )
    return results


def sections(arguments: argparse.Namespace, graph: shoal.Graph) -> Iterator[tuple[str, Callable[[], object]]]:
    yield "hits", lambda: count_hits(graph)
    yield "steps", lambda: time_steps(graph, arguments.seconds, 0.2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the graph is kept"
    )
    parser.add_argument("--only", default="hits,steps")
    parser.add_argument("-o", "--out", type=Path, default=RESULTS / "features.json")
    arguments = parser.parse_args()
    keep_freed_memory()
    graph = make_graph(arguments.folder, arguments.scale, arguments.features)
    print(graph)
    results = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    for name, run in sections(arguments, graph):
        if name in arguments.only.split(","):
            results[name] = run()
    results["environment"] = environment()
    arguments.out.write_text(json.dumps(results, indent=1) + "\n")
    print_environment()


if __name__ == "__main__":
    main()
