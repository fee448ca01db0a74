"""Named graphs, generators, importers and downloads: `load` finds a graph by path or by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.datasets.generators import GENERATORS
from shoal.datasets.places import find_graph, find_path, is_plain_name, local_names
from shoal.datasets.registry import registered
from shoal.errors import ShoalError, unknown_name
from shoal.settings import check_options, list_settings

if TYPE_CHECKING:
    from shoal.graph import Graph

__all__ = ["known_names", "load"]


def load(name_or_path: str | Path, **settings: Any) -> Graph:
    """The graph at a path, or the graph of that name.

    Looked for in this order: an existing file or folder (a stored graph is opened, anything else imported with
    `settings` as the importer's); a generator, such as `digits`, with its settings; a name in the folder
    `$SHOAL_DATA`; a name that `shoal data get` has fetched.

        shoal.load("digits")
        shoal.load("kronecker", scale=18, degree=16, seed=1)
        shoal.load("my-graph/")

    Args:
        name_or_path: a file, a folder, a generator's name or a data set's name.
        settings: settings of the importer or generator.
    """
    check_known(name_or_path)
    path = find_path(name_or_path)
    if path is not None:
        return _load_path(path, settings)
    name = str(name_or_path)
    if name in GENERATORS:
        generator = GENERATORS[name]
        return generator(**check_options(list_settings(generator), settings, what=name))
    found = find_graph(name)
    assert found is not None
    return _load_path(found, settings, name=name)


def check_known(name_or_path: str | Path) -> None:
    """Raise if `load` does not find a path or name; the message has the nearest name or what to do."""
    name = str(name_or_path)
    if find_path(name) is not None:
        return
    if not is_plain_name(name):
        raise ShoalError(
            f"{name} does not exist: expected a graph's folder or file, or a name from `shoal data list`"
        )
    if name in GENERATORS or find_graph(name) is not None:
        return
    if name in registered():
        raise ShoalError(f"{name} is not here yet: run `shoal data get {name}`")
    unknown = unknown_name("graph", name, known_names())
    raise ShoalError(f"{unknown}; no file or folder has that name, here or in $SHOAL_DATA")


def known_names() -> list[str]:
    """Every name that `load` knows: generated, on this machine, or registered."""
    return sorted({*GENERATORS, *local_names(), *registered()})


def _load_path(path: Path, settings: dict[str, Any], name: str | None = None) -> Graph:
    from shoal.store import is_stored_graph, open_graph

    if is_stored_graph(path):
        if settings:
            raise ShoalError(
                f"{path} is a stored graph: it takes no setting such as {next(iter(settings))!r}"
            )
        return open_graph(path)
    from shoal.datasets.importers import import_graph

    return import_graph(path, **{"name": name, **settings})
