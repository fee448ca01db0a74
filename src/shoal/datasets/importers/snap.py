"""SNAP edge lists (.txt, .txt.gz): `#` comments, then one arc of two integer ids per line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, open_text, reading, silent
from shoal.datasets.importers.node_ids import NodeIds, collect_ids
from shoal.datasets.importers.number_csv import stream_columns
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.wording import count

EXPECTED = "an edge list: # comments, then two integer node ids per line, separated by a tab or spaces"
LINES_AT_ONCE = 1 << 18
KIND = re.compile(r"\b(un)?directed\b", re.IGNORECASE)


def matches(path: Path) -> bool:
    """Whether a path is a SNAP edge list."""
    return path.is_file() and path.name.endswith((".txt", ".txt.gz"))


@FORMATS.named("snap")
@recognised(matches, priority=70)
def read_snap(
    path: Path, *, directed: bool | None = None, name: str | None = None, progress: Progress = silent
) -> Graph:
    """SNAP edge list: .txt, .txt.gz; directed as its header says.

    A line `u v` is the arc u → v: node v aggregates from u. Nodes are numbered in the order of their ids.

    The file is read twice, once for the ids and once for the edges, so that only int32 numbers are held.
    """
    notices: list[str] = []
    with reading(path, EXPECTED):
        comments, first = _read_header(path)
        width = len(first.split())
        if width > 2:
            notices.append(f"ignored {count(width - 2, 'column')} after the two node ids of {path.name}")
        regular = "\t" if first.count("\t") == width - 1 else " "
        progress(f"reading the node ids of {path.name}")
        try:
            (ids, expected), read = _collect(_stream_fast(path, regular, len(comments))), True
        except pa.ArrowInvalid:  # comments between the edges, uneven spacing, or an error to name
            (ids, expected), read = _collect(_stream_lines(path)), False
    pa.default_memory_pool().release_unused()

    def number_edges() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        progress(f"reading the edges of {path.name}")
        with reading(path, EXPECTED):
            for pair in _stream_fast(path, regular, len(comments)) if read else _stream_lines(path):
                sources, targets = ids.number([pa.array(end) for end in pair])
                yield sources, targets

    values = ids.values.to_numpy()
    if not len(values):
        raise ShoalError(f"{path} holds no edge: expected {EXPECTED}")
    if int(values[-1]) - int(values[0]) + 1 != len(ids):
        notices.append(
            f"renumbered {len(ids):,} node ids between {values[0]} and {values[-1]} to 0 … {len(ids) - 1}"
        )
    elif values[0] != 0:
        notices.append(f"renumbered node ids {values[0]} … {values[-1]} to 0 … {len(ids) - 1}")
    said = KIND.search(" ".join(comments))
    unsaid = directed is None and said is None
    if directed is None and said is not None:
        directed = said.group(1) is None
    graph = Graph.from_edge_chunks(
        number_edges(),
        len(ids),
        directed=directed,
        expected=expected,
        name=name or path.name.removesuffix(".gz").removesuffix(".txt"),
        node_ids=ids.as_names(),
        notices=notices,
    )
    if unsaid and graph.directed:
        graph.notices = (
            *graph.notices,
            "the file does not say whether it is directed and some edges lack their reverse: read as directed; directed=False adds the reverses",
        )
    return graph


def _read_header(path: Path) -> tuple[list[str], str]:
    """The comment lines at the top, and the first line after them."""
    comments: list[str] = []
    with open_text(path) as file:
        for line in file:
            if not line.startswith("#") and line.strip():
                return comments, line.strip("\r\n ")
            comments.append(line)
    raise ShoalError(f"{path} holds no edge: expected {EXPECTED}")


def _collect(edges: Iterator[tuple[np.ndarray, np.ndarray]]) -> tuple[NodeIds, int]:
    """The ids of all edges, and how many edges there are."""
    count = 0

    def columns() -> Iterator[pa.ChunkedArray]:
        nonlocal count
        for pair in edges:
            count += len(pair[0])
            yield pa.chunked_array([pa.array(end) for end in pair])

    return NodeIds(collect_ids(columns(), pa.int64())), count


def _stream_fast(path: Path, delimiter: str, skip_lines: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for columns in stream_columns(path, [np.int64] * 2, delimiter=delimiter, skip_lines=skip_lines):
        yield columns[0], columns[1]


def _stream_lines(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The slow reader: accepts any white space and comments anywhere, and names the number of a bad line."""
    pairs: list[tuple[int, int]] = []
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            cells = line.split()
            if not cells or cells[0].startswith("#"):
                continue
            try:
                pairs.append((int(cells[0]), int(cells[1])))
            except (ValueError, IndexError):
                raise ShoalError(
                    f"{path}: line {number} is {line.strip()!r:.60}: expected two integer ids"
                ) from None
            if len(pairs) == LINES_AT_ONCE:
                yield _as_ends(path, pairs)
                pairs = []
    if pairs:
        yield _as_ends(path, pairs)


def _as_ends(path: Path, pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    try:
        ends = np.array(pairs, np.int64)
    except OverflowError:
        raise ShoalError(f"{path} holds a node id beyond 64 bits: expected smaller integers") from None
    return ends[:, 0], ends[:, 1]
