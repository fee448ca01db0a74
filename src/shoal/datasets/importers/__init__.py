"""Graph files of other programs, read into a Graph: one reader per format and the door to all of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.datasets.importers import graphsage, graphsaint, mtx, npz, ogb, planetoid, snap, table
from shoal.datasets.importers.files import Progress, silent
from shoal.datasets.places import is_stored
from shoal.errors import ShoalError, unknown_name
from shoal.graph import Graph

_ALWAYS = ("path", "directed", "name", "progress")


@dataclass(frozen=True)
class Format:
    """A file format: what it is, how to recognise it by its path, how to read it."""

    description: str
    matches: Callable[[Path], bool]
    read: Callable[..., Graph]

    @property
    def options(self) -> dict[str, Any]:
        """The reader's own options and their defaults."""
        parameters = inspect.signature(self.read).parameters
        return {name: known.default for name, known in parameters.items() if name not in _ALWAYS}


# In the order in which a path is tried.
FORMATS: dict[str, Format] = {
    "graphsaint": Format(
        "GraphSAINT folder: adj_full.npz, role.json, class_map.json, feats.npy",
        graphsaint.matches,
        graphsaint.read_graphsaint,
    ),
    "graphsage": Format(
        "GraphSAGE files: PREFIX-G.json, PREFIX-id_map.json, PREFIX-class_map.json, PREFIX-feats.npy",
        graphsage.matches,
        graphsage.read_graphsage,
    ),
    "ogb": Format("OGB node-property folder: raw/ and split/", ogb.matches, ogb.read_ogb),
    "planetoid": Format(
        "Planetoid files: ind.NAME.x, .tx, .allx, .y, .ty, .ally, .graph, .test.index",
        planetoid.matches,
        planetoid.read_planetoid,
    ),
    "table": Format(
        "CSV or Parquet: an edge table, or a folder with edges.csv|parquet and nodes.csv|parquet",
        table.matches,
        table.read_table,
    ),
    "mtx": Format("Matrix Market: .mtx, .mtx.gz", mtx.matches, mtx.read_mtx),
    "snap": Format("SNAP edge list: .txt, .txt.gz", snap.matches, snap.read_snap),
    "npz": Format("one .npz with indptr, indices, x, y and masks", npz.matches, npz.read_npz_graph),
}


def import_graph(
    source: str | Path,
    /,
    *,
    format: str | None = None,
    directed: bool | None = None,
    name: str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Graph:
    """Read the graph at `source`, a file or folder of another program.

    Args:
        format: one of `FORMATS`; recognised by the path if not given.
        directed: `False` adds the reverse of every edge, `True` keeps arcs as they are; by default what the
            format or the file says.
        name: the graph's name, by default after the source.
        progress: called with a short sentence now and then.
        options: what the format's reader takes, see `FORMATS[format].options`.

    Raises ShoalError, naming file and row, for anything that cannot be read.
    """
    path = Path(source)
    if format is not None and format not in FORMATS:
        raise unknown_name("format", format, FORMATS)
    if not path.exists():
        raise ShoalError(f"{path} does not exist: expected a graph file or folder")
    if format is None and is_stored(path):
        raise ShoalError(
            f"{path} is already a stored graph: it needs no import, `shoal train {path}` takes it as it is"
        )
    format = format or detect_format(path)
    chosen = FORMATS[format]
    for option, value in options.items():
        if option not in chosen.options:
            raise unknown_name(f"option of format {format}", option, chosen.options)
        default = chosen.options[option]
        if isinstance(default, bool | int) and type(value) is not type(default):
            raise ShoalError(f"option {option} is {value!r}: expected {type(default).__name__}")
        if default is None and isinstance(value, int | float):
            options[option] = str(value)  # a column or file whose name is a number
    try:
        return chosen.read(path, directed=directed, name=name, progress=progress or silent, **options)
    except ShoalError as error:
        if str(path) in str(error):
            raise
        raise ShoalError(f"{error} (read from {path})") from None
    except OSError as error:
        raise ShoalError(f"{error.filename or path} cannot be read: {error.strerror or error}") from None


def detect_format(path: Path) -> str:
    """The name of the format whose files `path` is or holds."""
    for name, known in FORMATS.items():
        if known.matches(path):
            return name
    if path.is_dir():
        held = sorted(child.name for child in path.iterdir())
        found = f"a folder with {', '.join(held[:5]) or 'nothing'}{' …' if len(held) > 5 else ''}"
    else:
        found = f"a file ending in {''.join(path.suffixes) or 'nothing'}"
    raise ShoalError(
        f"{path} is {found}, which is no known format: name it with --format (format= in Python), one of {', '.join(FORMATS)}"
    )
