"""How much memory a partitioner needs, before it starts; and the method that `auto` chooses."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

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


def available_memory(proc: str = "/proc", groups: str = "/sys/fs/cgroup") -> int:
    """Bytes this process may still take: what the system says is available, less where a control group's limit is nearer.

    Pages of files are given back when memory is wanted, so they count as available: MemAvailable has them, and what a
    control group uses is taken without them. A group's parents limit it too.
    """
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    known = _read_figures(Path(proc, "meminfo"))
    free = known.get("MemAvailable:", free // 1024) * 1024
    for group in _list_groups(Path(proc, "self/cgroup"), Path(groups)):
        try:
            limit = int((group / "memory.max").read_text())
            used = int((group / "memory.current").read_text())
        except (OSError, ValueError):  # no limit is the word "max"
            continue
        pages = _read_figures(group / "memory.stat")
        files = pages.get("inactive_file", 0) + pages.get("active_file", 0)
        free = min(free, limit - max(used - files, 0))
    return max(free, 0)


def _read_figures(path: Path) -> dict[str, int]:
    """The first number behind each name of a file of lines `name number …`."""
    try:
        rows = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _list_groups(own: Path, root: Path) -> list[Path]:
    """The control group of this process and all above it (version 2: the line `0::/path`)."""
    try:
        paths = [line[3:] for line in own.read_text().splitlines() if line.startswith("0::")]
    except OSError:
        paths = []
    group = root / paths[0].strip("/") if paths else root
    return [group, *(above for above in group.parents if above.is_relative_to(root))]


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
    if estimate_memory(graph, num_parts, "hypergraph") <= free:
        return "hypergraph", "it sends the fewest rows and fits in memory"
    if estimate_memory(graph, num_parts, "metis") <= free:
        return "metis", "hypergraph partitioning would not fit in memory"
    return "streaming", f"nothing else fits in {free / _GIB:.1f} GiB"
