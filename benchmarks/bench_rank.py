"""One rank of bench_distributed.py: trains on its part and tells times, traffic and memory as JSON."""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import shoal
from shoal.analysis.probe import probe_network
from shoal.analysis.simulate import Machine, list_exchanges
from shoal.analysis.speed import probe_rates
from shoal.distributed.exchange import EXCHANGES
from shoal.distributed.launch import joined_ranks
from shoal.distributed.runtime import share_cores
from shoal.distributed.transport import Transport
from shoal.partitioning.part import Part


def load_part(folder: Path, rank: int) -> Part:
    """A part as bench_distributed.py stored it: one .npz for each rank."""
    with np.load(folder / f"part-{rank}.npz") as file:
        fields = {name: file[name] for name in file.files}
    plain = json.loads(str(fields.pop("plain")))
    return Part(**plain, **fields)


def time_exchanges(trainer: shoal.Trainer, rounds: int) -> float:
    """Seconds of an epoch's exchanges one after the other with nothing beside them: the slowest rank's, the median of some rounds."""
    plan, transport = trainer.share.plan, trainer.transport
    exchanges = list_exchanges(trainer.model)
    rows_of = {one.width: torch.ones(trainer.share.part.num_local, one.width) for one in exchanges}
    seconds = []
    for _ in range(rounds):
        transport.barrier()
        started = time.perf_counter()
        for one in exchanges:
            if one.direction == "forward":
                plan.start_forward(rows_of[one.width], one.layer).wait()
            else:
                exchange = plan.start_backward(one.width, torch.float32, one.layer)
                for peer, first, last in plan.halo_spans:
                    exchange.send(peer, first, last)
                exchange.wait()
        seconds.append(float(transport.gather(np.array([time.perf_counter() - started])).max()))
    return statistics.median(seconds)


def probe_machine(transport: Transport) -> Machine:
    """What `shoal doctor --save` keeps."""
    network = probe_network(transport)
    wire = network.typical_latency, network.worst_bandwidth
    rates = probe_rates(transport, network.sums)
    return Machine(*wire, tuple(network.crowd), **rates, sums=tuple(network.sums), ranks=transport.size)


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def count_share(part: Part) -> int:
    """Bytes of a part's own arrays."""
    arrays = [value for value in vars(part).values() if isinstance(value, np.ndarray)]
    return sum(array.nbytes for array in arrays)


def run(transport: Transport, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    part = load_part(folder / job["parts"], transport.rank)
    model = shoal.GNN(
        job.get("model", "gcn"),
        part.num_features,
        job["hidden"],
        part.num_classes,
        num_layers=job["layers"],
        dropout=0.0,
    )
    settings = {name: job[name] for name in ("boundary_rate", "boundary_sampling") if name in job}
    exchange = EXCHANGES[job["exchange"]](**settings)
    trainer = shoal.Trainer(model, part, transport=transport, exchange=exchange, eval_every=10**6)
    records = trainer.fit(job["epochs"])[2:]  # the first two compile and settle
    middle = {
        key: statistics.median(record["slowest"][key] for record in records) for key in records[0]["slowest"]
    }
    memory = transport.gather(np.array([peak_memory(), count_share(part), part.num_halo, part.num_local]))
    machine = probe_machine(transport) if transport.size > 1 else None  # beside what is held against it
    communication = time_exchanges(trainer, job.get("rounds", 9))
    return {
        "epoch": statistics.median(record["seconds"] for record in records),
        "best": min(record["seconds"] for record in records),
        "bytes": records[-1]["bytes"],
        "messages": records[-1]["messages"],
        "slowest": middle,
        "mean": {key: statistics.median(record["time"][key] for record in records) for key in middle},
        "communication": communication,
        "machine": None if machine is None else asdict(machine),
        "memory": memory.tolist(),
    }


def main() -> None:
    folder, job = Path(sys.argv[1]), json.loads(sys.argv[2])
    with joined_ranks() as transport:
        share_cores(transport, job.get("threads"))
        result = run(transport, job, folder)
        if transport.rank == 0:
            print(json.dumps(result), flush=True)
        transport.barrier()


if __name__ == "__main__":
    main()
