"""Machine: communication and compute rates of the hosts that an epoch is predicted for, and their file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import ShoalError
from shoal.files import parse_json, replace_file


@dataclass(frozen=True)
class Machine:
    """Communication and compute rates; `shoal doctor --save FILE` on several ranks measures them all.

    Args:
        latency: α, seconds of the shortest message between two ranks.
        bandwidth: 1/β, bytes a second between two ranks.
        crowd: (bytes, seconds) of a message while every rank sends to every other, for growing messages; empty: no
            contention.
        dense_rate: multiply-adds a second of a rank in dense layers; None: only communication is predicted.
        sparse_rate: multiply-adds a second of a rank in products with the adjacency.
        sparse_rates: (bytes, rate) of the same, for growing dense operands; empty: `sparse_rate` for all.
        code_rate: values a second that a rank encodes and decodes as int8 or int4.
        layer_seconds: fixed seconds of a layer in a step, independent of its rows.
        sums: (bytes, seconds) of an all-reduce, for growing tensors; empty: a ring by latency and bandwidth.
        message_seconds: fixed seconds of a message in a training step: packing, sending, receiving and adding its rows.
        batch_seconds: fixed seconds of a step on a new pattern, such as a shared batch, besides drawing it.
        ranks: number of ranks it was measured with; None if unknown.
        cores, host_ranks: cores of the fullest host, and ranks on it; None if unknown.
    """

    latency: float
    bandwidth: float
    crowd: tuple[tuple[float, float], ...] = ()
    dense_rate: float | None = None
    sparse_rate: float | None = None
    sparse_rates: tuple[tuple[float, float], ...] = ()
    code_rate: float | None = None
    layer_seconds: float | None = None
    sums: tuple[tuple[float, float], ...] = ()
    message_seconds: float | None = None
    batch_seconds: float | None = None
    ranks: int | None = None
    cores: int | None = None
    host_ranks: int | None = None

    @property
    def sharing(self) -> float:
        """Ranks that share a core, at least 1. Rates were measured with all ranks computing, so they include it."""
        if self.cores is None or self.host_ranks is None:
            return 1.0
        return max(self.host_ranks / self.cores, 1.0)

    def find_slowest(self, seconds: np.ndarray) -> float:
        """Seconds until all ranks have computed, from the `seconds` (P,) of each while all compute.

        Ranks with a core of their own wait for the slowest. Where ranks share cores, one that has finished leaves its share
        to the others: the mean, unless a single rank takes longer with a core to itself.
        """
        slowest = float(seconds.max(initial=0.0))
        return slowest if self.sharing == 1 else max(float(seconds.mean()), slowest / self.sharing)

    def time_product(
        self, entries: np.ndarray, num_rows: np.ndarray, width: int, item_bytes: int
    ) -> np.ndarray:
        """Seconds of sparse products with `entries`, whose dense operands have `num_rows`; 0 if no rate is known."""
        if self.sparse_rate is None:
            return np.zeros(len(entries))
        rate: float | np.ndarray = self.sparse_rate
        if self.sparse_rates:
            sizes, rates = np.array(self.sparse_rates).T
            size = np.maximum(num_rows * width * item_bytes, 1)
            rate = np.interp(np.log(size), np.log(sizes), rates)
        return entries * width / rate

    def time_message(self, num_bytes: np.ndarray) -> np.ndarray:
        """Seconds of each message while all ranks send to all; 0 for an empty one."""
        if len(self.crowd) < 2:
            seconds = self.latency + num_bytes / self.bandwidth
        else:
            seconds = interpolate(num_bytes, self.crowd)
        return np.where(num_bytes > 0, seconds, 0.0)

    def time_sum(self, num_bytes: int, num_ranks: int) -> float:
        """Seconds of an all-reduce: a ring of 2 (P - 1) steps, each with 1/P of the bytes.

        Measured ones are scaled to other numbers of ranks in the same way.
        """
        if num_ranks == 1:
            return 0.0
        steps, sent = 2 * (num_ranks - 1), 2 * (num_ranks - 1) / num_ranks
        if len(self.sums) < 2:
            return steps * self.latency + sent * num_bytes / self.bandwidth
        known = max(self.ranks or num_ranks, 2)
        shortest, whole = interpolate(np.array([self.sums[0][0], num_bytes]), self.sums).tolist()
        longer = whole - shortest
        return shortest * steps / (2 * (known - 1)) + longer * sent / (2 * (known - 1) / known)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        with replace_file(path) as scratch:
            scratch.write_text(json.dumps(asdict(self), indent=2) + "\n")


def interpolate(num_bytes: np.ndarray, measured: Sequence[tuple[float, float]]) -> np.ndarray:
    """Seconds of messages between the measured sizes, and beyond the largest with the slope of the last two.

    A message takes no longer than a longer one: where it was measured so, other work on the host delayed it.
    """
    sizes, times = np.array(measured).T
    times = np.minimum.accumulate(times[::-1])[::-1]
    slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
    beyond = np.maximum(num_bytes - sizes[-1], 0) * slope
    return np.asarray(np.interp(num_bytes, sizes, times) + beyond)


def read_machine(path: Path) -> Machine:
    """Read a machine file, written by `shoal doctor --save` or by hand."""
    names = [field.name for field in fields(Machine)]
    try:
        content = parse_json(path.read_bytes())
        pairs: Any = {
            name: tuple((float(size), float(found)) for size, found in content.pop(name, None) or ())
            for name in ("crowd", "sparse_rates", "sums")
        }
        numbers: Any = {name: None if value is None else float(value) for name, value in content.items()}
        counts = {name: numbers.pop(name, None) for name in ("ranks", "cores", "host_ranks")}
        whole: Any = {name: None if number is None else int(number) for name, number in counts.items()}
        machine = Machine(**numbers, **whole, **pairs)
        rates = [machine.bandwidth, machine.dense_rate, machine.sparse_rate, machine.code_rate]
        rates += [*whole.values(), *(number for pair in machine.sparse_rates for number in pair)]
        fixed = [machine.latency, machine.layer_seconds, machine.message_seconds, machine.batch_seconds]
        least = min(number or 0 for number in fixed)
        if least >= 0 and all(rate is None or rate > 0 for rate in rates):
            return machine
    except FileNotFoundError:
        raise ShoalError(
            f"{path} does not exist: `shoal doctor --workers 2 --save {path}` writes it"
        ) from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise ShoalError(f"{path} describes no machine: expected JSON with {', '.join(names)}")
