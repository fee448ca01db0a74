"""One rank of the scores of bench_boundary.py and bench_messages.py: trains one job after the other on its part, rank 0 tells each as a JSON line."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

import shoal
from shoal.distributed.exchange import ExchangeMethod
from shoal.distributed.exchanges.broadcast import Broadcast
from shoal.distributed.exchanges.p2p import PointToPoint
from shoal.distributed.launch import joined_ranks
from shoal.distributed.runtime import share_cores
from shoal.distributed.transport import Transport
from shoal.partitioning.part import Part
from shoal.partitioning.stored import open_part
from shoal.sampling.base import make_sampler


def train(transport: Transport, part: Part, job: dict[str, Any]) -> dict[str, Any]:
    settings = dict(job["model"])
    kind, hidden = settings.pop("model"), settings.pop("hidden")
    model = shoal.GNN(kind, part.num_features, hidden, part.num_classes, seed=job["seed"], **settings)
    training = dict(job["training"])
    epochs = training.pop("epochs")
    exchange: ExchangeMethod = PointToPoint(**job["exchange"], seed=job["seed"])
    if job.get("broadcast"):
        exchange = Broadcast()
    source = make_source(job["source"]) if "source" in job else None
    trainer = shoal.Trainer(model, part, source, transport=transport, exchange=exchange, **training)
    records = trainer.fit(epochs)
    result: dict[str, Any] = {
        **job["told"],
        "seed": job["seed"],
        "val": trainer.best_score,
        "test": trainer.evaluate("test")[trainer.metric],
        "bytes": sum(record["bytes"] for record in records) / len(records),
        "seconds": sum(record["seconds"] for record in records[2:]) / len(records[2:]),
        "sampling": sum(record["slowest"]["sampling"] for record in records[2:]) / len(records[2:]),
    }
    if job.get("detailed"):  # the slowest rank's seconds by kind, and the scores on the way
        kinds, counted = records[-1]["slowest"], records[2:]
        result["costs"] = {
            kind: statistics.median(record["slowest"][kind] for record in counted) for kind in kinds
        }
        result["best_seconds"] = min(record["seconds"] for record in counted)
        name = f"val_{trainer.metric}"
        result["curve"] = [[record["epoch"], record[name]] for record in records if name in record]
    if job.get("is_alone"):  # what earlier jobs of the process left behind would count as this one's
        result["ranks"] = trainer.share.describe_ranks()
    return result


def make_source(source: dict[str, Any]) -> shoal.Sampler:
    """The sampler whose batches all ranks share, over the whole graph."""
    graph = shoal.load(source["graph"], **source["importer"])
    graph = graph if graph.has_split else graph.with_split(seed=0)
    return make_sampler(source["sampler"]["name"], graph, **source["sampler"]["options"])


def main() -> None:
    folder, jobs, out = Path(sys.argv[1]), json.loads(sys.argv[2]), Path(sys.argv[3])
    with joined_ranks() as transport:
        share_cores(transport, 1)
        part = open_part(folder, transport.rank)
        for job in jobs:
            result = train(transport, part, job)
            if transport.rank == 0:
                with open(out, "a") as file:
                    file.write(json.dumps(result) + "\n")
        transport.barrier()


if __name__ == "__main__":
    main()
