"""Hosts on one machine: network namespaces joined by a bridge, their links limited to a rate. Needs ip, tc and root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# What a link lets through at once, and the largest packet the kernel may hand it: a wire has no such reserve, so as small
# as the timers allow.
_BURST = {"100mbit": ("20kb", "16384"), "1gbit": ("80kb", "65536")}


def why_not() -> str | None:
    """What is missing to make hosts here; None if nothing is."""
    for tool in ("ip", "tc"):
        if _find(tool) is None:
            return f"{tool} is not installed (Debian's iproute2)"
    name = f"shoal{os.getpid()}try"
    made = subprocess.run(
        [_find("ip") or "ip", "netns", "add", name], capture_output=True, text=True, timeout=20
    )
    if made.returncode:
        return f"network namespaces may not be made here: {made.stderr.strip()}"
    _ip("netns", "delete", name)
    return None


@contextmanager
def network_hosts(count: int, rate: str) -> Iterator[list[str]]:
    """Names of `count` namespaces at 10.77.0.1, .2, …, each sending and receiving at most `rate` on `eth0`.

    They are removed however the block ends, by SIGTERM too.
    """
    tag = f"sh{os.getpid() % 100000}"
    bridge, names = f"{tag}b", [f"{tag}n{i}" for i in range(count)]
    burst, packet = _BURST.get(rate, ("80kb", "65536"))
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for i, name in enumerate(names):
            outer = f"{tag}v{i}"
            _ip("netns", "add", name)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", outer, "master", bridge)
            _ip("link", "set", outer, "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("link", "set", outer, "gso_max_size", packet)
            _ip("-n", name, "link", "set", "eth0", "gso_max_size", packet)
            limit = ("root", "tbf", "rate", rate, "burst", burst, "latency", "1000ms")
            _run("tc", "qdisc", "add", "dev", outer, *limit)
            _run("tc", "-n", name, "qdisc", "add", "dev", "eth0", *limit)
        yield names
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for i, name in enumerate(names):
            with suppress(subprocess.CalledProcessError):
                _ip("link", "delete", f"{tag}v{i}")
            with suppress(subprocess.CalledProcessError):
                _ip("netns", "delete", name)
        with suppress(subprocess.CalledProcessError):
            _ip("link", "delete", bridge)
        signal.signal(signal.SIGTERM, before)


def set_link(name: str, state: str) -> None:
    """Cut a host's link (`down`) at the other end of its cable, or join it again (`up`)."""
    tag, _, number = name.rpartition("n")
    _ip("link", "set", f"{tag}v{number}", state)


def run_inside(name: str, *command: str) -> list[str]:
    """The command line that runs `command` in a namespace."""
    return [_find("ip") or "ip", "netns", "exec", name, *command]


def _find(tool: str) -> str | None:
    return shutil.which(tool) or shutil.which(tool, path="/usr/sbin:/sbin")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(tool: str, *arguments: str) -> None:
    command = [_find(tool) or tool, *arguments]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
