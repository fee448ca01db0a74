"""The check that a resumed run has the graph it began with."""

from __future__ import annotations

from pathlib import Path

from shoal.errors import ShoalError
from shoal.files import parse_json
from shoal.graph import Graph
from shoal.runs.config import RunConfig
from shoal.runs.data import RunData
from shoal.runs.folder import GRAPH

_DIFFER = {
    "checksum": "its edges or its split differ",
    "content": "its features, its labels or its split differ",
}


def check_same_graph(folder: Path, config: RunConfig, data: RunData) -> None:
    """Raise if the graph is not the one that the run in `folder` began with."""
    found = data.identity
    try:
        began = parse_json((folder / GRAPH).read_bytes())
        if not found["content"] or not began.get("content"):
            began["content"] = found["content"]  # unknown for older runs and stored parts
        began = {key: type(value)(began[key]) for key, value in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise ShoalError(
            f"{folder / GRAPH} is damaged: expected JSON with {', '.join(found)}; without the file the graph is not checked"
        ) from None
    graph = data.graph if data.source is None else data.source
    if isinstance(graph, Graph) and graph.has_checksum(began["checksum"]):
        began["checksum"] = found["checksum"]
    for key in ("num_nodes", "num_features", "num_classes", *_DIFFER):
        if began[key] != found[key]:
            said = _DIFFER.get(key)
            if said is None:
                said = (
                    f"it has {found[key]:,} {key.removeprefix('num_')} and the run began with {began[key]:,}"
                )
            raise ShoalError(
                f"{folder} was trained on another graph than {config.data} is now: {said}; put the graph back, or start a new run"
            )
