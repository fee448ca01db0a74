"""How much memory a partitioner needs, before it starts; and the method that `auto` chooses."""

from __future__ import annotations

from importlib.util import find_spec

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import available_memory

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
