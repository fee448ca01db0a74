"""Whether a partition method can run here: memory and packages it needs; the method that `auto` chooses."""

from __future__ import annotations

from importlib.util import find_spec

from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.memory import base_memory, given_budget, memory_budget, memory_left
from shoal.partitioning.work import PARTITION_METHODS, Method, find_method, name_method, traits_of
from shoal.threads import available_cores
from shoal.wording import format_bytes

_LEAST = "streaming"  # the method that takes the least memory
_MAX_PAIRS = 4096**2
_COVER_BYTES = 24  # of an entry or a node, patterns and their transposes while a part's cover is found


def estimate_memory(graph: Graph, num_parts: int, method: str | Method) -> int:
    """Bytes that partitioning takes in addition to the graph, an upper estimate."""
    told = traits_of(find_method(method))
    return (
        told.entry_bytes * graph.num_entries
        + told.node_bytes * graph.num_nodes
        + told.pair_bytes * min(num_parts**2, _MAX_PAIRS)
        + 64 * num_parts
    )


def check_method(graph: Graph, num_parts: int, method: str | Method) -> None:
    """Refuse a method that cannot run here, with what to do instead."""
    obstacle = find_obstacle(graph, num_parts, method)
    if obstacle is not None:
        raise ShoalError(f"method {name_method(method)!r} {obstacle}")


def find_obstacle(graph: Graph, num_parts: int, method: str | Method) -> str | None:
    """Why a method cannot run here; None if it can."""
    most = traits_of(find_method(method)).max_entries
    if most is not None and graph.num_entries > most:
        return f"numbers at most {most:,} entries and the graph has {graph.num_entries:,}: use another method"
    needed, budget = base_memory() + estimate_memory(graph, num_parts, method), memory_budget()
    if needed > budget:
        free = "are free" if given_budget() is None else "are allowed"
        others = "" if method == _LEAST else f"use method {_LEAST!r}, which holds one number per node, or "
        return (
            f"would take about {format_bytes(needed)} of memory, Python, torch and compiled kernels included, and "
            f"{format_bytes(budget)} {free}: {others}allow more with --memory, or use a machine with more memory"
        )
    for module, package in traits_of(find_method(method)).needs.items():
        if find_spec(module) is None:
            return f"needs {module}: pip install '{package}'"
    return None


def choose_method(graph: Graph, num_parts: int, *, covers: bool = True) -> tuple[str, str]:
    """The method that `auto` chooses, and why: the most preferred one that can run here, or else the least preferred.

    Without `covers`, which attention cannot use, methods that optimise for covers are left out.
    """
    methods = {name: traits_of(method) for name, method in PARTITION_METHODS.items()}
    preferences = {name: one.preference for name, one in methods.items() if covers or not one.for_covers}
    ranked = sorted((rank, name) for name, rank in preferences.items() if rank is not None)
    why = "it is the most preferred one, and fits in memory"
    for _, name in ranked:
        obstacle = find_obstacle(graph, num_parts, name)
        if obstacle is None:
            return name, why
        why = f"{name!r} {obstacle.partition(': ')[0]}"
    last = ranked[-1][1]
    if given_budget() is not None:
        check_method(graph, num_parts, last)
    return last, "nothing fits in memory"


def count_part_threads(graph: Graph, num_parts: int) -> int:
    """Threads that memory allows to cut parts; each holds the rows, cover and features of one part. At least one."""
    features = graph.num_nodes * graph.num_features * 4 // num_parts
    each = _COVER_BYTES * (graph.num_entries // num_parts + graph.num_nodes) + features
    fitting = memory_left() // 2 // max(each, 1)
    return int(max(min(fitting, available_cores(), num_parts), 1))


def count_cover_threads(graph: Graph, num_parts: int) -> int | None:
    """Threads that memory allows to count covers, each on one part; None if no part fits, or there are too many parts."""
    each = _COVER_BYTES * (graph.num_entries // num_parts + graph.num_nodes)
    fitting = memory_left() // 2 // max(each, 1)
    return None if fitting < 1 or num_parts**2 > _MAX_PAIRS else int(min(fitting, available_cores()))
