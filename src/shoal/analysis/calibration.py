"""Calibration of this machine: compute rates, and messages between two ranks, measured once and cached in Shoal's home."""

from __future__ import annotations

import platform
from contextlib import suppress
from dataclasses import fields, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import torch

from shoal.analysis.machine import Machine, read_machine
from shoal.analysis.probe import probe_network
from shoal.analysis.speed import probe_rates, probe_steps
from shoal.distributed.transport import LocalTransport, Transport
from shoal.errors import ShoalError
from shoal.home import home_folder

_MESSAGES = ("latency", "bandwidth", "crowd", "sums", "message_seconds", "ranks")  # fields of `measure_wire`
_NO_WIRE = (1e-6, 1e12)  # latency and bandwidth of one rank, which sends nothing


def find_calibration(*, wire: bool) -> Path:
    """The cache file for this host, number of threads, versions and what is measured; with `wire`, the one for messages."""
    versions = [version(name) for name in ("torch", "numba")] + [field.name for field in fields(Machine)]
    told = [platform.node(), platform.machine(), str(torch.get_num_threads()), *versions]
    key = sha256("\n".join(told).encode()).hexdigest()[:12]
    return home_folder() / "machines" / f"{'wire' if wire else 'rates'}-{key}.json"


def read_calibration(*, wire: bool) -> Machine | None:
    """The cached calibration; None if there is none, or its file cannot be read."""
    path = find_calibration(wire=wire)
    try:
        return read_machine(path) if path.is_file() else None
    except (ShoalError, OSError):
        return None


def measure_rates() -> Machine:
    """Measure and cache the compute rates of one rank with this process's threads."""
    machine = Machine(*_NO_WIRE, **probe_rates(LocalTransport()))
    with suppress(OSError):  # Shoal's home is not writable: measured again next time
        _keep(machine, find_calibration(wire=False))
    return machine


def measure_wire(transport: Transport, path: Path) -> None:
    """Measure messages between ranks; rank 0 writes the result to `path`."""
    network = probe_network(transport)
    message = probe_steps(transport, network.sums)["message_seconds"]
    if transport.rank == 0:
        wire = network.typical_latency, network.worst_bandwidth, tuple(network.crowd)
        machine = Machine(*wire, sums=tuple(network.sums), message_seconds=message, ranks=transport.size)
        _keep(machine, path)


def join_calibration(rates: Machine, wire: Machine) -> Machine:
    """A machine with the compute rates of `rates` and the messages of `wire`."""
    return replace(rates, **{name: getattr(wire, name) for name in _MESSAGES})


def _keep(machine: Machine, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    machine.save(path)
