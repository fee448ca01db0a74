"""One rank of bench_reshuffle.py: trains one job after the other on batches of its own, rank 0 tells each as a JSON line."""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

import shoal
from shoal.distributed.launch import joined_ranks
from shoal.distributed.moving import MovingSampler
from shoal.distributed.runtime import share_cores
from shoal.distributed.transport import Transport
from shoal.sampling.base import Sampler

WALKS = {"depth": 2}


class TimedSampler(MovingSampler):
    """A MovingSampler that keeps the seconds of every deal."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.deal_seconds: dict[int, float] = {}

    def part_sampler(self, deal: int) -> Sampler:
        if deal in self._made:
            return self._made[deal]
        started = time.perf_counter()
        made = super().part_sampler(deal)
        self.deal_seconds[deal] = time.perf_counter() - started
        return made


def train(transport: Transport, graph: shoal.Graph, clusters: np.ndarray, job: dict[str, Any]) -> Any:
    """Test score at the best validation score, taken every second epoch; seconds of an epoch and of each deal, bytes."""
    options: dict[str, Any] = WALKS | {"roots": job["roots"], "seed": job["seed"]}
    sampler: Sampler
    if job["every"] is None:
        sampler = shoal.RandomWalkSampler(graph, **options)
    else:
        dealt = {"assignment": clusters, "reshuffle_every": job["every"]}
        sampler = TimedSampler(graph, "random-walk", transport=transport, **dealt, **options)
    model = shoal.GNN("sage", graph.num_features, 64, graph.num_classes, seed=job["seed"])
    trainer = shoal.Trainer(model, graph, sampler, transport=transport, lr=0.01, eval_every=2)
    records = trainer.fit(job["epochs"])
    deals, sent = np.zeros(0), 0
    if isinstance(sampler, TimedSampler):
        deals = np.array([seconds for deal, seconds in sampler.deal_seconds.items() if deal > 0])
        sent = sum(num_bytes for num_bytes, _ in sampler.ledger.sent.values())
    slowest = transport.gather(deals).max(axis=0) if len(deals) else deals
    without = [
        record["seconds"] for i, record in enumerate(records) if i and i % (job["every"] or len(records))
    ] or [record["seconds"] - seconds for record, seconds in zip(records[1:], slowest)]
    return {
        "dealt": job["dealt"],
        "seed": job["seed"],
        "test": trainer.evaluate("test")[trainer.metric],
        "epoch": statistics.median(without),
        "deals": slowest.tolist(),
        "bytes": int(transport.gather(np.array([sent])).sum()),
    }


def main() -> None:
    folder, jobs, out = Path(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    with joined_ranks() as transport:
        share_cores(transport, 1)
        graph = shoal.load(jobs[0]["data"])
        graph = graph if graph.has_split else graph.with_split(seed=0)
        if issparse(graph.x):  # only dense rows move
            graph = graph._copy(x=graph.x.toarray())
        clusters = np.load(folder / "clusters.npy")
        for job in jobs:
            result = train(transport, graph, clusters, job)
            if transport.rank == 0:
                with open(out, "a") as file:
                    file.write(json.dumps(result) + "\n")
        transport.barrier()


if __name__ == "__main__":
    main()
