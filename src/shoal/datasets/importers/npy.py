"""Edge arrays: one .npy file of integers, (2, edges) or (edges, 2)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, check_num_nodes, cut_edges, read_npy, silent
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.settings import AtLeast, Null

EXPECTED = "integers of shape (2, edges) or (edges, 2)"


def matches(path: Path) -> bool:
    """Whether a path is a .npy file."""
    return path.is_file() and path.suffix == ".npy"


@FORMATS.named("npy")
@recognised(matches, priority=80)
def read_edge_array(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    num_nodes: Annotated[
        int | None, AtLeast(1), Null("one more than the largest number"), "nodes of the graph"
    ] = None,
) -> Graph:
    """One .npy of node numbers, (2, edges) or (edges, 2); an arc source → target unless --undirected."""
    ends = read_npy(path, EXPECTED)
    if ends.ndim != 2 or 2 not in ends.shape or ends.dtype.kind not in "iu":
        raise ShoalError(f"{path} holds {ends.dtype} of shape {ends.shape}: expected {EXPECTED}")
    sources, targets = ends if len(ends) == 2 else ends.T
    if num_nodes is None:
        progress(f"looking for the largest node number in {path.name}")
        largest = (max(int(s.max()), int(t.max())) for s, t in cut_edges(sources, targets))
        num_nodes = check_num_nodes(path, max(largest, default=-1) + 1)
    progress(f"reading the edges of {path.name}")
    return Graph.from_edge_chunks(
        cut_edges(sources, targets),
        num_nodes,
        directed=directed,
        name=name or path.stem,
        expected=len(sources),
    )
