"""The machine that `shoal simulate` predicts for: from a file, or this one, measured once and cached in Shoal's home."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.analysis.machine import Machine


RATE = "1Gbit, 100Mbit, or a number of MB a second"
_UNITS = {"": 1e6, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8}


def parse_rate(text: str, option: str) -> float:
    """Bytes a second from `1Gbit`, `100Mbit`, or a number of MB a second."""
    from shoal.errors import ShoalError

    found = re.fullmatch(r"([\d.]+(?:e\d+)?)\s*([a-z]*)(?:/s)?", text.strip().lower())
    rate = 0.0
    if found is not None and found[2] in _UNITS:
        with suppress(ValueError):
            rate = float(found[1]) * _UNITS[found[2]]
    if not 0 < rate < float("inf"):
        raise ShoalError(f"{option} is {text!r}: expected a rate such as {RATE}")
    return rate


def describe_machine(
    path: Path | None, latency: float | None, bandwidth: str | None, *, measure: bool
) -> tuple[Machine, str]:
    """The machine to predict for, and a sentence about its limits.

    Args:
        path: file of a machine; None for this machine.
        latency, bandwidth: microseconds and a rate that replace the measured ones.
        measure: measure this machine again.
    """
    from dataclasses import replace

    from shoal.analysis.machine import read_machine
    from shoal.errors import ShoalError
    from shoal.wording import count

    if latency is not None and not 0 < latency < float("inf"):
        raise ShoalError(f"--latency is {latency}: expected a number above 0")
    given = None if bandwidth is None else parse_rate(bandwidth, "--bandwidth")
    if path is not None and measure:
        raise ShoalError("--measure measures this machine and --machine names another one: leave out one")
    if path is not None:
        known, said = read_machine(path), ""
        if known.ranks is not None:
            said = f"the machine was measured with {count(known.ranks, 'rank')}: with other numbers of ranks, cores and network are shared differently than predicted here"
    else:
        has_wire = latency is not None and bandwidth is not None
        known = _measure_here(wire=not has_wire, again=measure)
        wire = (
            ""
            if has_wire
            else "; messages cost what they cost between two ranks here: --latency and --bandwidth describe a network"
        )
        said = f"every rank is assumed to compute as fast as this machine{wire}"
    if latency is None and bandwidth is None:
        return known, said
    alpha = known.latency if latency is None else latency * 1e-6
    rate = known.bandwidth if given is None else given
    return replace(known, latency=alpha, bandwidth=rate, crowd=(), sums=(), message_seconds=None), said


def _measure_here(*, wire: bool, again: bool) -> Machine:
    """This machine's cached calibration, or a new one."""
    from shoal.analysis.calibration import (
        find_calibration,
        join_calibration,
        measure_rates,
        read_calibration,
    )
    from shoal.commands.screen import open_console
    from shoal.distributed.workers import start_workers
    from shoal.errors import ShoalError

    shown = open_console(stderr=True)
    rates = None if again else read_calibration(wire=False)
    if rates is None:
        shown.say("measuring how fast this machine computes, once …", style="dim")
        rates = measure_rates()
    if not wire:
        return rates
    messages = None if again else read_calibration(wire=True)
    if messages is None:
        shown.say("measuring messages between two ranks, once …", style="dim")
        code = start_workers(2, {"task": "wire", "save": str(find_calibration(wire=True))})
        messages = read_calibration(wire=True)
        if code or messages is None:
            raise ShoalError("messages between ranks could not be measured: give --latency and --bandwidth")
    return join_calibration(rates, messages)
