"""Matrix Market files (.mtx, .mtx.gz): the pattern of a square sparse matrix."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import scipy.io

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, reading, silent
from shoal.errors import ShoalError
from shoal.graph import Graph

EXPECTED = "a square matrix in Matrix Market coordinate format"


def matches(path: Path) -> bool:
    return path.name.endswith((".mtx", ".mtx.gz"))


@FORMATS.named("mtx")
@recognised(matches, priority=60)
def read_mtx(
    path: Path, *, directed: bool | None = None, name: str | None = None, progress: Progress = silent
) -> Graph:
    """Matrix Market: .mtx, .mtx.gz; entry (i, j) is the arc i → j, weights are left out.

    Entry (i, j) is the arc i → j, the convention of published graph matrices: node j aggregates from i.

    Every stored entry is an edge, an explicit zero too; weights are dropped. `symmetric` files are
    undirected, `general` ones undirected exactly if their pattern is symmetric.
    """
    progress(f"reading {path.name}")
    with reading(path, EXPECTED):
        rows, columns, _, layout, field, symmetry = scipy.io.mminfo(str(path))
        if layout != "coordinate":
            raise ShoalError(f"{path} is in {layout} format: expected {EXPECTED}")
        if rows != columns:
            raise ShoalError(f"{path} is {rows:,} × {columns:,}: expected {EXPECTED}")
        if path.suffix == ".gz":
            _check_gzip(path)
        matrix = scipy.io.mmread(str(path))
    notices = []
    if field != "pattern":
        notices.append(f"ignored the {field} weights of {path.name}")
    sources, targets = (np.asarray(ends) for ends in (matrix.row, matrix.col))
    del matrix
    wanted = directed
    if symmetry != "general":
        directed = True if directed else None  # both triangles are there already
    graph = Graph.from_edge_chunks(
        [(sources, targets)],
        rows,
        directed=directed,
        name=name or path.name.removesuffix(".gz").removesuffix(".mtx"),
        notices=notices,
    )
    assert wanted is not False or not graph.directed
    return graph


def _check_gzip(path: Path) -> None:
    """Read the file through once: the parser takes a cut-off stream for a short file."""
    with gzip.open(path) as file:
        while file.read(1 << 20):
            pass
