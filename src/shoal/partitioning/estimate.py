"""How much memory a partitioner needs, before it starts; and the method that `auto` chooses."""

from __future__ import annotations

import os
from importlib.util import find_spec

from shoal.errors import ShoalError
from shoal.graph import Graph

_GIB = 2**30
# Bytes for each stored entry and each node, from the arrays each method holds and what METIS and Mt-KaHyPar take.
_PER_ENTRY = {
    "random": 0,
    "block": 0,
    "streaming": 0,
    "metis": 60,
    "metis-volume": 90,
    "hypergraph": 150,
    "stochastic": 1000,
}
_PER_NODE = {
    "random": 24,
    "block": 24,
    "streaming": 24,
    "metis": 150,
    "metis-volume": 200,
    "hypergraph": 300,
    "stochastic": 400,
}


def estimate_memory(graph: Graph, num_parts: int, method: str) -> int:
    """Bytes that partitioning takes beside the graph, an upper estimate."""
    messages = 4 * min(num_parts, 4096) ** 2 if method == "hypergraph" else 0
    return (
        _PER_ENTRY[method] * graph.num_entries
        + _PER_NODE[method] * graph.num_nodes
        + 64 * num_parts
        + messages
    )


def available_memory() -> int:
    """Bytes this process may still take: what the system says is available, or the control group's limit."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        with open("/sys/fs/cgroup/memory.max") as limit, open("/sys/fs/cgroup/memory.current") as current:
            free = min(free, int(limit.read()) - int(current.read()))
    except (OSError, ValueError):  # no limit is the word "max"
        pass
    return free


def check_memory(graph: Graph, num_parts: int, method: str) -> None:
    """Refuse a method that will not fit, with what to do instead."""
    needed, free = estimate_memory(graph, num_parts, method), available_memory()
    if needed > free:
        raise ShoalError(
            f"method {method!r} would take about {needed / _GIB:.1f} GiB and {free / _GIB:.1f} GiB are free: use method 'streaming', which holds one number per node, or a machine with more memory"
        )


def choose_method(graph: Graph, num_parts: int) -> tuple[str, str]:
    """The best method that can run here, and why."""
    if find_spec("pymetis") is None:
        return "streaming", "pymetis is missing (pip install 'shoal[partition]' brings it)"
    free = available_memory()
    if estimate_memory(graph, num_parts, "hypergraph") <= free and find_spec("mtkahypar") is not None:
        return "hypergraph", "it sends the fewest rows and fits in memory"
    if estimate_memory(graph, num_parts, "metis") <= free:
        return "metis", "hypergraph partitioning would not fit in memory"
    return "streaming", f"nothing else fits in {free / _GIB:.1f} GiB"
