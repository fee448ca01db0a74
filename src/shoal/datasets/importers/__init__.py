"""Graph files of other programs, read into a Graph: one reader per format, and import_graph, which calls them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.datasets.formats import FORMATS as FORMATS
from shoal.datasets.formats import Progress, recognise
from shoal.datasets.importers.files import silent
from shoal.datasets.places import is_run, is_stored
from shoal.errors import ShoalError, is_full_disk, unknown_name
from shoal.graph import Graph
from shoal.settings import Setting, list_settings


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
        progress: called with a short sentence at every step.
        options: settings of the format's reader, which `list_settings(FORMATS[format])` lists.

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
    options = _check_options(format, options)
    try:
        return FORMATS[format](path, directed=directed, name=name, progress=progress or silent, **options)
    except ShoalError as error:
        named = (path, options.get("nodes"))  # a node table elsewhere is named already
        if any(str(place) in str(error) for place in named if place):
            raise
        raise ShoalError(f"{error} (read from {path})") from None
    except OSError as error:
        if is_full_disk(error):  # of the workspace, not of the source
            raise
        raise ShoalError(f"{error.filename or path} cannot be read: {error.strerror or error}") from None


def _check_options(format: str, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a format, checked; a column or file may be named by a number."""
    declared = list_settings(FORMATS[format])
    checked = {}
    for option, value in options.items():
        if option not in declared:
            raise unknown_name(f"option of format {format}", option, declared)
        setting: Setting = declared[option]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        checked[option] = setting.check(str(value) if is_number and str in setting.accepted else value)
    return checked


def detect_format(path: Path) -> str:
    """The name of the format of a file or folder."""
    format = recognise(path)
    if format is not None:
        return format
    if is_run(path):
        raise ShoalError(
            f"{path} is a run, not a graph: `shoal train --resume {path}` continues it, `shoal predict {path} -o FILE` predicts with it"
        )
    if path.is_dir():
        from shoal.datasets.importers.table import suggest_import

        held = sorted(child.name for child in path.iterdir())
        found = f"a folder with {', '.join(held[:5]) or 'nothing'}{' …' if len(held) > 5 else ''}"
        if (command := suggest_import(path)) is not None:
            raise ShoalError(f"{path} is {found} and has no table called edges: name the tables, {command}")
    else:
        found = f"a file ending in {''.join(path.suffixes) or 'nothing'}"
    raise ShoalError(
        f"{path} is {found}, which is no known format: name it with --format (format= in Python), with `shoal train` --set data.format=NAME, one of {', '.join(FORMATS)}"
    )
