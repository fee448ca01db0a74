"""Whether a partition method can run here: what it needs installed and in memory; the method that `auto` chooses."""

from __future__ import annotations

from importlib.util import find_spec

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import anonymous_memory, available_memory, memory_budget
from shoal.partitioning.work import PARTITION_METHODS, traits_of

_GIB = 2**30
_MAX_PAIRS = 4096**2


def estimate_memory(graph: Graph, num_parts: int, method: str) -> int:
    """Bytes that partitioning takes beside the graph, an upper estimate."""
    told = traits_of(PARTITION_METHODS[method])
    return (
        told.entry_bytes * graph.num_entries
        + told.node_bytes * graph.num_nodes
        + told.pair_bytes * min(num_parts**2, _MAX_PAIRS)
        + 64 * num_parts
    )


def check_method(graph: Graph, num_parts: int, method: str) -> None:
    """Refuse a method that cannot run here, with what to do instead."""
    obstacle = find_obstacle(graph, num_parts, method)
    if obstacle is not None:
        raise ShoalError(f"method {method!r} {obstacle}")


def find_obstacle(graph: Graph, num_parts: int, method: str) -> str | None:
    """Why a method cannot run here; None if it can."""
    needed, free = estimate_memory(graph, num_parts, method), available_memory()
    free = max(min(free, memory_budget() - anonymous_memory()), 0)
    if needed > free:
        return f"would take about {needed / _GIB:.1f} GiB and {free / _GIB:.1f} GiB are free: use method 'streaming', which holds one number per node, or a machine with more memory"
    for module, package in traits_of(PARTITION_METHODS[method]).needs.items():
        if find_spec(module) is None:
            return f"needs {module}: pip install '{package}'"
    return None


def choose_method(graph: Graph, num_parts: int) -> tuple[str, str]:
    """The method that `auto` stands for, and why: the most preferred one that can run here, else the least."""
    preferences = {name: traits_of(method).preference for name, method in PARTITION_METHODS.items()}
    ranked = sorted((rank, name) for name, rank in preferences.items() if rank is not None)
    why = "it is the most preferred one, and fits in memory"
    for _, name in ranked:
        obstacle = find_obstacle(graph, num_parts, name)
        if obstacle is None:
            return name, why
        why = f"{name!r} {obstacle.partition(': use')[0]}"
    return ranked[-1][1], "nothing fits in memory"
