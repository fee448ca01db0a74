"""Measuring this machine once: how fast it computes and how two of its ranks exchange messages, kept in Shoal's home."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import torch

from shoal.analysis.machine import Machine, read_machine
from shoal.analysis.probe import probe_network
from shoal.analysis.speed import probe_rates
from shoal.distributed.transport import LocalTransport, Transport
from shoal.errors import ShoalError
from shoal.home import home_folder

_NO_WIRE = (1e-6, 1e12)  # latency and bandwidth of one rank, which sends nothing


def find_calibration(*, wire: bool) -> Path:
    """The file of this host, with this many threads and these versions; `wire` for the one with messages."""
    versions = [version(name) for name in ("torch", "numba")]
    told = [platform.node(), platform.machine(), str(torch.get_num_threads()), *versions]
    key = sha256("\n".join(told).encode()).hexdigest()[:12]
    return home_folder() / "machines" / f"{'wire' if wire else 'rates'}-{key}.json"


def read_calibration(*, wire: bool) -> Machine | None:
    """What was measured before; None where nothing was, or where the file cannot be read."""
    path = find_calibration(wire=wire)
    try:
        return read_machine(path) if path.is_file() else None
    except (ShoalError, OSError):
        return None


def measure_rates() -> Machine:
    """Measure how fast one rank computes that has this process's threads, and keep it."""
    machine = Machine(*_NO_WIRE, **probe_rates(LocalTransport()))
    with suppress(OSError):  # a home that cannot be written: it is measured again next time
        _keep(machine, find_calibration(wire=False))
    return machine


def measure_wire(transport: Transport, path: Path) -> None:
    """Measure the messages between ranks; rank 0 keeps it in `path`."""
    network = probe_network(transport)
    if transport.rank == 0:
        _keep(Machine(network.typical_latency, network.worst_bandwidth, tuple(network.crowd)), path)


def join_calibration(rates: Machine, wire: Machine) -> Machine:
    """Ranks that compute as one and exchange messages as the other."""
    return replace(rates, latency=wire.latency, bandwidth=wire.bandwidth, crowd=wire.crowd)


def _keep(machine: Machine, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    machine.save(path)
