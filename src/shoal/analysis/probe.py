"""Network probe: latency and bandwidth of every pair of ranks, and advice where a pair is slow."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import psutil
import torch

from shoal.distributed.transport import Transport

_SMALL, _LARGE = 8, 1 << 22  # bytes; the large ones far above the burst that a rate limiter lets through
_ROUNDS = 10
_MAX_SECONDS = 1.0  # of large messages between a pair
_CROWD_SIZES = (8, 1 << 14, 1 << 16, 1 << 18, 1 << 20)  # bytes of a message while all send to all
_CROWD_BYTES = 1 << 22  # most that a rank then sends to all others; not a limit for the two shortest sizes
_CROWD_ROUNDS, _CROWD_SECONDS = 9, 2.0
_SUM_SIZES = (16, 1 << 16, 1 << 20)  # bytes of an all-reduce
_IN_A_ROW = 4  # exchanges timed together, as a step has several


@dataclass(frozen=True)
class Network:
    """What was measured between every two ranks.

    Attributes:
        hosts: of every rank.
        addresses: what each rank's host name resolves to, as it sees itself.
        interfaces: GLOO_SOCKET_IFNAME of every rank, empty if gloo chooses.
        latency: (P, P) seconds one way; 0 on the diagonal.
        bandwidth: (P, P) bytes a second one way; infinite on the diagonal.
        crowd: (bytes, seconds) of each message of a rank while all ranks send to all, for growing messages.
        sums: (bytes, seconds) of an all-reduce, for growing tensors.
    """

    hosts: list[str]
    addresses: list[str]
    interfaces: list[str]
    latency: np.ndarray
    bandwidth: np.ndarray
    crowd: list[tuple[float, float]]
    sums: list[tuple[float, float]]

    @property
    def typical_latency(self) -> float:
        """The median pair's: a busy host makes single pairs look slow."""
        pairs = self.latency[~np.eye(len(self.latency), dtype=bool)]
        return float(np.median(pairs)) if len(pairs) else 0.0

    @property
    def worst_bandwidth(self) -> float:
        """Bytes a second of the slowest pair."""
        return float(self.bandwidth.min())


def probe_network(transport: Transport) -> Network:
    """Measure every pair in turn, so that measurements share no link, and then all ranks at once."""
    size = transport.size
    transport.phase = "the exchange of addresses"
    hosts = transport.gather_texts(socket.gethostname())
    addresses = transport.gather_texts(resolve_host())
    interfaces = transport.gather_texts(os.environ.get("GLOO_SOCKET_IFNAME", ""))
    latency, bandwidth = np.zeros((size, size)), np.zeros((size, size))
    for first in range(size):
        for second in range(first + 1, size):
            transport.phase = f"the test of ranks {first} and {second}"
            if transport.rank in (first, second):
                peer = second if transport.rank == first else first
                latency[transport.rank, peer], bandwidth[transport.rank, peer] = _probe_pair(
                    transport, peer, transport.rank == first
                )
            transport.barrier()
    both = transport.sum(torch.from_numpy(np.stack([latency, bandwidth])))
    latency, bandwidth = both.numpy()
    np.fill_diagonal(bandwidth, np.inf)
    crowd, sums = _probe_crowd(transport), _probe_sums(transport)
    return Network(hosts, addresses, interfaces, latency, bandwidth, crowd, sums)


def _probe_pair(transport: Transport, peer: int, leads: bool) -> tuple[float, float]:
    """(latency, bandwidth) by ping-pong; both ranks first agree on the number of rounds."""
    _bounce(transport, peer, leads, _SMALL, 3)  # opens the connection
    latency = _bounce(transport, peer, leads, _SMALL, 3 * _ROUNDS)
    _bounce(transport, peer, leads, _LARGE, 1)  # uses up the burst of a rate limiter
    trial = _bounce(transport, peer, leads, _LARGE, 1)
    said = torch.tensor([trial], dtype=torch.float64)
    heard = torch.zeros(1, dtype=torch.float64)
    _swap(transport, peer, said, heard)
    rounds = int(max(1, min(_ROUNDS, _MAX_SECONDS / max(float(torch.maximum(said, heard)), 1e-9))))
    seconds = _bounce(transport, peer, leads, _LARGE, rounds)
    return latency, _LARGE / max(seconds - latency, seconds / 2)


def _probe_crowd(transport: Transport) -> list[tuple[float, float]]:
    """(bytes, seconds) of a message while every rank sends to every other, as in a halo exchange.

    This does not follow from a pair's latency and bandwidth: a rank's messages leave together, and long messages queue
    at shared links, which short ones hardly do. Hence several sizes are measured. Medians give the expected time.
    """
    others = transport.size - 1
    if others == 0:
        return []
    transport.phase = "the test of all ranks at once"
    found = []
    for number, size in enumerate(_CROWD_SIZES):
        if number > 1 and size * others > _CROWD_BYTES:
            break
        found.append((float(size), _time_together(transport, _make_exchange(transport, size)) / others))
    return found


def _probe_sums(transport: Transport) -> list[tuple[float, float]]:
    """(bytes, seconds) of an all-reduce; its steps wait for each other, so that busy hosts add more than to an exchange."""
    if transport.size == 1:
        return []
    transport.phase = "the test of sums"
    tensors = [torch.zeros(size // 4) for size in _SUM_SIZES]
    return [
        (float(size), _time_together(transport, partial(transport.sum, tensor)))
        for size, tensor in zip(_SUM_SIZES, tensors)
    ]


def _make_exchange(transport: Transport, num_bytes: int) -> Callable[[], None]:
    """An all-to-all exchange of `num_bytes` messages."""
    size, rank = transport.size, transport.rank
    peers = [(rank + step) % size for step in range(1, size)]
    out = torch.zeros(num_bytes, dtype=torch.uint8)
    back = torch.zeros(size, num_bytes, dtype=torch.uint8)

    def work() -> None:
        exchange = transport.start({q: back[q] for q in peers})
        for q in peers:
            exchange.send(q, out)
        for _ in exchange.arrivals():
            pass
        exchange.finish()

    return work


def _time_together(transport: Transport, work: Callable[[], object]) -> float:
    """Median seconds of the slowest rank, several times in a row; the same result on every rank."""

    def time_once() -> float:
        transport.barrier()
        started = time.perf_counter()
        for _ in range(_IN_A_ROW):
            work()
        spent = transport.gather(np.array([time.perf_counter() - started]))
        return float(spent.max()) / _IN_A_ROW

    rounds = int(max(1, min(_CROWD_ROUNDS, _CROWD_SECONDS / time_once() / _IN_A_ROW)))
    return statistics.median(time_once() for _ in range(rounds))


def _bounce(transport: Transport, peer: int, leads: bool, num_bytes: int, rounds: int) -> float:
    """Seconds of a message one way, in the best round: other work on the host only adds time."""
    out, back = torch.zeros(num_bytes, dtype=torch.uint8), torch.zeros(num_bytes, dtype=torch.uint8)
    best = float("inf")
    for _ in range(rounds):
        started = time.perf_counter()
        for sends in (leads, not leads):
            exchange = transport.start({} if sends else {peer: back})
            if sends:
                exchange.send(peer, out)
            for _ in exchange.arrivals():
                pass
            exchange.finish()
        best = min(best, (time.perf_counter() - started) / 2)
    return best


def _swap(transport: Transport, peer: int, out: torch.Tensor, back: torch.Tensor) -> None:
    exchange = transport.start({peer: back})
    exchange.send(peer, out)
    for _ in exchange.arrivals():
        pass
    exchange.finish()


def resolve_host() -> str:
    """The address that this host's name resolves to, or why it does not resolve."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError as error:
        return f"not resolved ({error.strerror or error})"


def list_interfaces() -> list[tuple[str, str]]:
    """(name, IPv4 address) of this host's network interfaces that are up."""
    is_up = {name: state.isup for name, state in psutil.net_if_stats().items()}
    return [
        (name, found.address)
        for name, addresses in psutil.net_if_addrs().items()
        for found in addresses
        if found.family == socket.AF_INET and is_up.get(name)
    ]


def advise(network: Network, interfaces: list[tuple[str, str]]) -> list[str]:
    """Advice on slow or unreachable ranks, one sentence each; empty if there is none."""
    advice = []
    outside = [(name, address) for name, address in interfaces if not address.startswith("127.")]
    several = len(set(network.hosts)) > 1
    for rank, address in enumerate(network.addresses):
        if several and address.startswith(("127.", "not")) and not network.interfaces[rank]:
            choice = outside[0][0] if outside else "the interface that reaches the others"
            advice.append(
                f"rank {rank} ({network.hosts[rank]}): its host name resolves to {address}, which no other host reaches: "
                f"export GLOO_SOCKET_IFNAME={choice} on every rank"
            )
    if len(network.latency) > 2:
        finite = network.bandwidth[np.isfinite(network.bandwidth)]
        typical = float(np.median(finite))
        for a, b in zip(*np.nonzero(network.bandwidth < typical / 4)):
            if a < b:
                advice.append(
                    f"ranks {a} and {b}: {network.bandwidth[a, b] / 1e6:,.1f} MB/s where pairs have {typical / 1e6:,.1f}: "
                    f"check the cable and the interface between {network.hosts[a]} and {network.hosts[b]}, or set GLOO_SOCKET_IFNAME"
                )
    return advice
