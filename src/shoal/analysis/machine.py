"""Machine: communication and compute rates of the hosts that an epoch is predicted for, and their file."""

from __future__ import annotations

import json
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
        ranks: number of ranks it was measured with; None if unknown.
    """

    latency: float
    bandwidth: float
    crowd: tuple[tuple[float, float], ...] = ()
    dense_rate: float | None = None
    sparse_rate: float | None = None
    sparse_rates: tuple[tuple[float, float], ...] = ()
    code_rate: float | None = None
    layer_seconds: float | None = None
    ranks: int | None = None

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
            sizes, times = np.array(self.crowd).T
            slope = (times[-1] - times[-2]) / (sizes[-1] - sizes[-2])
            beyond = np.maximum(num_bytes - sizes[-1], 0) * max(slope, 0.0)
            seconds = np.interp(num_bytes, sizes, times) + beyond
        return np.where(num_bytes > 0, seconds, 0.0)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        with replace_file(path) as scratch:
            scratch.write_text(json.dumps(asdict(self), indent=2) + "\n")


def read_machine(path: Path) -> Machine:
    """Read a machine file, written by `shoal doctor --save` or by hand."""
    names = [field.name for field in fields(Machine)]
    try:
        content = parse_json(path.read_bytes())
        crowd, products = (
            tuple((float(size), float(found)) for size, found in content.pop(name, None) or ())
            for name in ("crowd", "sparse_rates")
        )
        numbers: Any = {name: None if value is None else float(value) for name, value in content.items()}
        ranks = None if numbers.get("ranks") is None else int(numbers["ranks"])
        machine = Machine(**numbers | {"ranks": ranks}, crowd=crowd, sparse_rates=products)
        rates = [machine.bandwidth, machine.dense_rate, machine.sparse_rate, machine.code_rate, ranks]
        rates += [number for pair in products for number in pair]
        least = min(machine.latency, machine.layer_seconds or 0)
        if least >= 0 and all(rate is None or rate > 0 for rate in rates):
            return machine
    except FileNotFoundError:
        raise ShoalError(
            f"{path} does not exist: `shoal doctor --workers 2 --save {path}` writes it"
        ) from None
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    raise ShoalError(f"{path} describes no machine: expected JSON with {', '.join(names)}")
