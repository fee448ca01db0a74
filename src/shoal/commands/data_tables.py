"""The tables of `shoal data list` and `shoal data info`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from shoal.commands.screen import format_bytes, plain_table
from shoal.datasets.dataset import Dataset
from shoal.datasets.generators import GENERATORS
from shoal.datasets.places import find_graph, local_names
from shoal.datasets.registry import registered
from shoal.errors import ShoalError
from shoal.registry import summarize

if TYPE_CHECKING:
    from shoal.graph import Graph

NUMBERS = ("nodes", "edges", "features", "classes")


def list_table() -> Table:
    """Every known name with its sizes (published, or of what is here), licence and whereabouts."""
    table = plain_table("name", *NUMBERS, "licence", "where", "what", right=NUMBERS)
    for name, generator in GENERATORS.items():
        table.add_row(name, "", "", "", "", "", "embedded", summarize(generator))
    here = set(local_names())
    for name, dataset in registered().items():
        path = find_graph(name) if name in here else None
        published = [_count(getattr(dataset, f"num_{number}")) for number in NUMBERS]
        sizes = published if path is None else _stored_sizes(path)
        table.add_row(name, *sizes, dataset.licence, _where(dataset, name in here), dataset.title)
    for name in sorted(here - set(registered()) - set(GENERATORS)):
        path = find_graph(name)
        assert path is not None
        table.add_row(name, *_stored_sizes(path), "", "here", str(path))
    return table


def dataset_table(dataset: Dataset) -> Table:
    """What is known of a registered graph that is not on this machine."""
    score = dataset.score
    how = (
        f"by hand from {dataset.page}, then: {dataset.import_line}"
        if dataset.by_hand
        else f"shoal data get {dataset.name}"
    )
    return _two_columns(
        {
            "name": dataset.name,
            "what": dataset.title,
            "where": f"not here yet; {how}",
            "nodes": f"{dataset.num_nodes:,}",
            "edges": f"{dataset.num_edges:,} {'arcs, directed' if dataset.directed else 'undirected'}",
            "features": _count(dataset.num_features) or "none",
            "classes": f"{_count(dataset.num_classes) or 'none'}{' (many a node)' if dataset.multi_label else ''}",
            "split": dataset.split,
            "task": dataset.task,
            "published": f"{score.metric} {score.value} by {score.model} ({score.source})" if score else None,
            "licence": dataset.licence,
            "page": dataset.page,
            "reference": dataset.reference,
        }
    )


def graph_table(graph: Graph) -> Table:
    """What is measured of a graph on this machine."""
    from shoal.datasets.describe import describe_graph

    seen = describe_graph(graph)
    loops = seen.num_self_loops
    edges = graph.num_entries if graph.directed else (graph.num_entries - loops) // 2 + loops
    total = sum(seen.bytes.values())
    return _two_columns(
        {
            "name": graph.name,
            "nodes": f"{graph.num_nodes:,}",
            "edges": f"{edges:,} {'arcs, directed' if graph.directed else 'undirected'}",
            "degree": ", ".join(f"{name} {value:,.4g}" if name == "mean" else f"{name} {value:,.0f}" for name, value in seen.degrees.items()),
            "isolated nodes": f"{seen.num_isolated:,}",
            "self loops": f"{loops:,}",
            "features": seen.features,
            "labels": seen.labels,
            "split": " / ".join(f"{name} {size:,}" for name, size in seen.split.items()) or "none",
            "memory": f"{format_bytes(total)} ({', '.join(f'{part} {format_bytes(size)}' for part, size in seen.bytes.items() if size)})",
        }
    )  # fmt: skip


def _two_columns(rows: dict[str, str | None]) -> Table:
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in rows.items():
        if value:
            table.add_row(key, Text(value))
    return table


def _where(dataset: Dataset, here: bool) -> str:
    if here:
        return "here"
    return "by hand" if dataset.by_hand else "fetchable"


def _count(number: int) -> str:
    return f"{number:,}" if number else ""


def _stored_sizes(path: Path) -> list[str]:
    """Sizes of a stored graph from its meta.json; blanks for a file that would have to be read."""
    from shoal.store import read_meta

    meta: dict[str, Any] = {}
    if path.is_dir():
        try:
            meta = read_meta(path)
        except ShoalError:
            return ["damaged", "", "", ""]
    return [_count(meta.get(f"num_{number}", 0)) for number in NUMBERS]
