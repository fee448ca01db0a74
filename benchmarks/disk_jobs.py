"""What `bench_disk.py` measures, one function for each kind of work, called in processes of their own."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import shoal


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


def read_io(process: int | str = "self") -> dict[str, int]:
    """Bytes that a process had read from and written to the disk."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    known = dict(line.split(": ") for line in lines)
    return {"read": int(known["read_bytes"]), "written": int(known["write_bytes"])}


def forget_pages(folder: Path) -> None:
    """Ask the system to drop a stored graph's pages from its cache."""
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


class Turn:
    """Seconds, CPU seconds, bytes and anonymous memory of the block, in `found`; within the job's budget and threads."""

    def __init__(self, job: dict) -> None:
        from shoal.threads import set_threads

        self.job = job
        self.found: dict[str, float] = {}
        set_threads(job["threads"])

    def __enter__(self) -> Turn:
        if self.job["memory"]:
            from shoal.memory import parse_bytes, set_memory_budget

            set_memory_budget(parse_bytes(self.job["memory"]))
        if self.job["cold"]:
            forget_pages(Path(self.job["graph"]))
        self._memory = MemoryWatch().__enter__()
        self._began = time.perf_counter(), time.process_time(), read_io()
        return self

    def __exit__(self, *error: object) -> None:
        ended = time.perf_counter(), time.process_time(), read_io()
        self._memory.__exit__(*error)
        self.found |= {
            "seconds": ended[0] - self._began[0],
            "cpu_seconds": ended[1] - self._began[1],
            "anonymous": self._memory.most,
            "anonymous_before": self._memory.first,
            **{f"bytes_{name}": ended[2][name] - self._began[2][name] for name in ended[2]},
        }


def make_trainer(job: dict, graph: shoal.Graph) -> shoal.Trainer:
    import torch

    import shoal

    torch.manual_seed(0)
    budget = min(job["budget"], graph.num_nodes // 2)
    model = shoal.GNN(
        job["model"], graph.num_features, job["width"], graph.num_classes, num_layers=job["layers"]
    )
    return shoal.Trainer(model, graph, shoal.FrontierSampler(graph, budget, max(budget // 8, 1)))


def make_small(job: dict) -> shoal.Trainer:
    """A trainer of a small graph: what it does loads the compiled kernels."""
    import shoal

    return make_trainer(
        job, shoal.load("kronecker", scale=8, num_features=job["features"] or 8, num_classes=8)
    )


def evaluate_once(job: dict) -> dict[str, float]:
    """One evaluation of the validation nodes in this process; the package may be an older version."""
    import shoal

    graph, turn = shoal.open_graph(job["graph"]), Turn(job)
    make_small(job).evaluate("val")
    with turn:
        trainer = make_trainer(job, graph)
        if job["folder"]:
            trainer.share.scratch_folder = Path(job["folder"])
        scores = trainer.evaluate("val")
    return {**turn.found, "accuracy": scores["accuracy"]}


def predict_once(job: dict) -> dict[str, float]:
    """The class of every node."""
    import shoal

    graph, turn = shoal.open_graph(job["graph"]), Turn(job)
    make_small(job).predict()
    with turn:
        trainer = make_trainer(job, graph)
        trainer.share.scratch_folder = Path(job["folder"])
        classes = trainer.predict(follow)
    return {**turn.found, "checked_sum": int(classes.sum())}


def follow(done: int, total: int) -> None:
    """Tell how far a long job is, now and then, on stderr."""
    if done * 50 // total != (done - 1) * 50 // total:
        print(f"{done:,} of {total:,}", file=sys.stderr, flush=True)


def train_once(job: dict) -> dict[str, float]:
    """Steps on frontier batches until the seconds are over; those until the first step are not counted in."""
    import shoal
    from shoal.memory import keep_freed_memory

    keep_freed_memory()
    small, turn = make_small(job), Turn(job)
    small.train_epoch()
    graph = shoal.open_graph(job["graph"])
    with turn:
        began, times, losses = time.perf_counter(), [], []
        trainer = make_trainer(job, graph)
        stream = trainer._stream
        for batch in stream.take(0, 1 << 30):
            losses.append(trainer.train_step(batch))
            times.append(time.perf_counter() - began)
            if len(times) == 1:
                cpu, read = time.process_time(), read_io()["read"]
            if times[-1] - times[0] > job["seconds"] or len(times) > job["steps"]:
                break
        steps = len(times) - 1
        turn.found |= {
            "first_step_seconds": times[0],
            "steps": steps,
            "steps_in_an_epoch": trainer.sampler.num_batches,
            "step_ms": 1e3 * (times[-1] - times[0]) / steps,
            "step_cpu_ms": 1e3 * (time.process_time() - cpu) / steps,
            "step_bytes_read": (read_io()["read"] - read) / steps,
            "loss": sum(losses[-100:]) / len(losses[-100:]),
            **stream.take_counts(),
        }
        stream.close()
    return turn.found


def batches_once(job: dict) -> dict[str, float]:
    """CPU milliseconds to draw a batch's nodes and to take its subgraph; pages are in memory after the first ones."""
    import numpy as np

    import shoal
    from shoal.kernels.induce import sum_degrees

    turn = Turn(job)
    graph = shoal.open_graph(job["graph"])
    sampler = shoal.FrontierSampler(graph, job["budget"], job["budget"] // 8)
    made = time.process_time()
    sampler.sample(0)
    first = time.process_time() - made
    warm, count = job["steps"], job["steps"]
    for k in range(warm):
        sampler.sample(k)
    with turn:
        began = time.process_time()
        for k in range(warm, warm + count):
            sampler.draw_nodes(k)
        drawn = time.process_time()
        entries = [sampler.sample(k).num_edges for k in range(warm, warm + count)]
        ended = time.process_time()
    oriented = sampler._oriented
    rows = graph.indptr if oriented is None else oriented.indptr
    scanned = [sum_degrees(rows, sampler.draw_nodes(k)) for k in range(warm, warm + count)]
    return {
        **turn.found,
        "scanned": float(np.mean(scanned)),
        "batch_cpu_ms": 1e3 * (ended - drawn) / count,
        "nodes_cpu_ms": 1e3 * (drawn - began) / count,
        "first_cpu_seconds": first,
        "entries": float(np.mean(entries)),
    }


def swap_once(job: dict) -> dict[str, float]:
    """Epochs of full-batch training, in memory or by swapped parts; nothing is evaluated."""
    import torch

    import shoal

    def make(graph: shoal.Graph, parts: int) -> shoal.Trainer:
        torch.manual_seed(0)
        model = shoal.GNN(
            job["model"], graph.num_features, job["width"], graph.num_classes, num_layers=job["layers"]
        )
        cut = shoal.partition_graph(graph, parts, job["method"]) if parts else None
        trainer = shoal.Trainer(model, graph, swapped=cut)
        trainer.share.scratch_folder = Path(job["folder"])
        return trainer

    small = shoal.load("kronecker", scale=8, num_features=job["features"], num_classes=8)
    make(small, min(job["parts"], 4)).train_epoch()
    trainer = make(shoal.open_graph(job["graph"]), job["parts"])
    known: dict[str, float] = {}
    if job["parts"]:
        plan = trainer.share.plan
        said = plan.predict()
        known = {"predicted_read": said.read, "predicted_written": said.written}
        known |= {"estimated": plan.held, "files": plan.filed}
    with Turn(job) as turn:
        records = [trainer.train_epoch() for _ in range(job["epochs"])]
    counted = {f"counted_{name}": records[-1].get(f"bytes_{name}", 0) for name in ("read", "written")}
    epoch = min(record["seconds"] for record in records)
    return turn.found | known | counted | {"epoch_seconds": epoch, "loss": records[-1]["loss"]}
