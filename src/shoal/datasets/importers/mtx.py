"""Matrix Market files (.mtx, .mtx.gz): the pattern of a square sparse matrix."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa

from shoal.datasets.formats import FORMATS, recognised
from shoal.datasets.importers.files import Progress, check_num_nodes, open_text, reading, silent
from shoal.datasets.importers.number_csv import stream_columns
from shoal.edge_weights import NO_WEIGHT, WEIGHT, Chunk, WeightedChunks
from shoal.errors import ShoalError
from shoal.graph import Graph
from shoal.settings import Choices, Null

EXPECTED = "a square matrix in Matrix Market coordinate format"
FIELDS = {"pattern": 0, "real": 1, "double": 1, "integer": 1, "unsigned-integer": 1, "complex": 2}
SYMMETRIES = ("general", "symmetric", "skew-symmetric", "hermitian")
LINES_AT_ONCE = 1 << 18


class Header(NamedTuple):
    """The header, which has `lines` lines. An entry has `width` numbers."""

    num_nodes: int
    num_entries: int
    field: str
    symmetry: str
    lines: int

    @property
    def width(self) -> int:
        """Numbers in a line: row, column and those of the field."""
        return 2 + FIELDS[self.field]


def matches(path: Path) -> bool:
    """Whether a path is a Matrix Market file."""
    return path.name.endswith((".mtx", ".mtx.gz"))


@FORMATS.named("mtx")
@recognised(matches, priority=60)
def read_mtx(
    path: Path,
    *,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress = silent,
    weight: Annotated[str | None, Choices((NO_WEIGHT,)), Null("the entries' values"), WEIGHT] = None,
) -> Graph:
    """Matrix Market: .mtx, .mtx.gz; entry (i, j) is the arc i → j, its value the weight.

    Entry (i, j) is the arc i → j, the convention of published graph matrices: node j aggregates from i.

    Every stored entry is an edge, even an explicit zero. Values are weights if all are above 0, and ignored otherwise.
    `symmetric` files are undirected; `general` ones are undirected if their pattern and weights are symmetric.
    """
    progress(f"reading {path.name}")
    with reading(path, EXPECTED):
        header = _read_header(path)
    notices = []
    weighs = FIELDS[header.field] == 1 and header.symmetry != "skew-symmetric" and weight != NO_WEIGHT
    if header.field != "pattern" and not weighs:
        notices.append(f"ignored the {header.field} weights of {path.name}")
    arcs = _list_arcs(path, header)
    if header.symmetry != "general":
        directed = True if directed else None  # both triangles are given below
    return Graph.from_edge_chunks(
        WeightedChunks(arcs, path.name, lenient=True) if weighs else (arc[:2] for arc in arcs),
        header.num_nodes,
        directed=directed,
        name=name or path.name.removesuffix(".gz").removesuffix(".mtx"),
        notices=notices,
        expected=header.num_entries,
    )


def _read_header(path: Path) -> Header:
    with open_text(path) as file:
        words = file.readline(1000).lower().split()
        if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
            raise ValueError("no banner %%MatrixMarket matrix …")
        layout, field, symmetry = words[2:]
        if layout != "coordinate":
            raise ShoalError(f"{path} is in {layout} format: expected {EXPECTED}")
        if field not in FIELDS or symmetry not in SYMMETRIES:
            raise ValueError(f"a matrix that is {field} and {symmetry}")
        lines, line = 1, "%"
        while not line.strip() or line.startswith("%"):
            lines, line = lines + 1, file.readline()
            if not line:
                raise ValueError("no line of sizes")
    sizes = [int(word) for word in line.split()]
    if len(sizes) != 3 or min(sizes) < 0:
        raise ValueError(f"sizes {line.strip()!r:.60}")
    if sizes[0] != sizes[1]:
        raise ShoalError(f"{path} is {sizes[0]:,} × {sizes[1]:,}: expected {EXPECTED}")
    return Header(check_num_nodes(path, sizes[0]), sizes[2], field, symmetry, lines)


def _list_arcs(path: Path, header: Header) -> Iterator[Chunk]:
    """(sources, targets, values) of all entries, and of those that symmetry implies."""
    count = 0
    with reading(path, EXPECTED):
        for rows, columns, values in _stream_entries(path, header):
            for ends in (rows, columns):
                if len(ends) and (int(ends.min()) < 1 or int(ends.max()) > header.num_nodes):
                    bad = int(ends.min()) if int(ends.min()) < 1 else int(ends.max())
                    raise ShoalError(
                        f"{path} names node {bad}: the matrix has rows and columns 1 to {header.num_nodes:,}"
                    )
            count += len(rows)
            if count > header.num_entries:
                break
            rows, columns = rows - 1, columns - 1
            yield rows, columns, values
            if header.symmetry != "general":
                off = rows != columns
                yield columns[off], rows[off], values[off]
    if count != header.num_entries:
        more = "or more" if count > header.num_entries else "of them"
        raise ShoalError(
            f"{path} holds {count:,} {more} where its header says {header.num_entries:,} entries: it is truncated or damaged"
        )


def _stream_entries(path: Path, header: Header) -> Iterator[Chunk]:
    """(rows, columns, values) as stored, values 1 if there are none. Arrow parses regular files; others are read by lines."""
    if header.num_entries == 0:
        return
    given = 0
    kinds = [np.int64] * 2 + [np.float64] * FIELDS[header.field]
    try:
        for rows, columns, *values in stream_columns(path, kinds, delimiter=" ", skip_lines=header.lines):
            given += len(rows)
            yield rows, columns, values[0] if values else np.ones(len(rows))
    except pa.ArrowInvalid:
        yield from _stream_lines(path, header, given)


def _stream_lines(path: Path, header: Header, skip: int) -> Iterator[Chunk]:
    """The slow reader, after the first `skip` entries: accepts any white space and names the number of a bad line."""
    pairs: list[tuple[int, int]] = []
    values: list[float] = []
    with open_text(path) as file:
        for number, line in enumerate(file, 1):
            cells = line.split()
            if number <= header.lines or not cells or line.startswith("%"):
                continue
            if skip:
                skip -= 1
                continue
            try:
                pair = int(cells[0]), int(cells[1])
                numbers = [float(cell) for cell in cells[2:]]
                if len(cells) != header.width or max(map(abs, pair)) >= 2**63:
                    raise ValueError
            except (ValueError, IndexError):
                raise ShoalError(
                    f"{path}: line {number} is {line.strip()!r:.60}: expected {header.width} numbers"
                ) from None
            pairs.append(pair)
            values.append(numbers[0] if numbers else 1.0)
            if len(pairs) == LINES_AT_ONCE:
                yield _as_chunk(pairs, values)
                pairs, values = [], []
    if pairs:
        yield _as_chunk(pairs, values)


def _as_chunk(pairs: list[tuple[int, int]], values: list[float]) -> Chunk:
    ends = np.array(pairs, np.int64)
    return ends[:, 0], ends[:, 1], np.array(values)
