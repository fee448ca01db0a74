"""Where graphs and downloads live on this machine, and where registered files are fetched from."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from shoal.datasets.generators import GENERATORS
from shoal.errors import ShoalError
from shoal.home import home_folder

RUN_FILES = ("config.yaml", "repeat.yaml")  # files that mark a run, or repeated ones
META = "meta.json"  # the file that marks a stored graph; repeated here so that a look-up needs no NumPy


def graph_folder(name: str) -> Path:
    """Where `shoal data get NAME` stores the graph."""
    return home_folder() / "graphs" / name


def download_folder(name: str) -> Path:
    """The folder of a dataset's published files while they are fetched and read."""
    return home_folder() / "downloads" / name


def find_graph(name: str) -> Path | None:
    """The graph called `name` on this machine: in `$SHOAL_DATA` (a stored graph, or NAME.npz), then in the home."""
    if not is_plain_name(name):
        return None
    candidates = [graph_folder(name)]
    if shared := _shared_folder():
        candidates = [shared / name, shared / f"{name}.npz", *candidates]
    for path in candidates:
        if is_stored(path) or (path.suffix == ".npz" and os.path.isfile(path)):
            return path
    return None


def local_names() -> list[str]:
    """Every name that `find_graph` finds."""
    names = set()
    shared = _shared_folder()
    for folder in (shared, home_folder() / "graphs"):
        if folder is not None and folder.is_dir():
            for path in folder.iterdir():
                name = path.stem if path.suffix == ".npz" else path.name
                if not name.startswith(".") and find_graph(name) is not None:
                    names.add(name)
    return sorted(names)


def find_path(data: str | Path) -> Path | None:
    """The existing file or folder that `data` names; None if there is none."""
    path = os.path.expanduser(data)
    return Path(path) if os.path.exists(path) else None


def locate_data(data: str) -> Path | None:
    """The path where `shoal.load` finds the graph of a path or name; None if it is generated or missing."""
    return find_path(data) or (None if data in GENERATORS else find_graph(data))


def absolute_data(data: str) -> str:
    """An existing path in full; a name stays a name."""
    path = find_path(data)
    return data if path is None else os.path.abspath(path)


def is_data_stored(data: str) -> bool:
    """Whether a path or name refers to a stored graph."""
    path = locate_data(data)
    return path is not None and is_stored(path)


def explain_missing(data: str) -> str | None:
    """The places where missing data was searched; None if it exists or is generated."""
    if locate_data(data) is not None or data in GENERATORS:
        return None
    return f"{data} in $SHOAL_DATA and {home_folder() / 'graphs'}" if is_plain_name(data) else data


def is_stored(folder: Path) -> bool:
    """Whether `folder` is a stored graph; `shoal.store.is_stored_graph` without its imports."""
    return os.path.isfile(folder / META)


def is_run(folder: Path) -> bool:
    """Whether `folder` is that of a run: `shoal.runs.folder` without its imports."""
    return any(os.path.isfile(folder / name) for name in RUN_FILES) and not is_stored(folder)


def is_plain_name(name: str) -> bool:
    """Whether `name` is a name and not a path."""
    return bool(name) and not name.startswith(".") and Path(name).name == name and "\\" not in name


def resolve_address(url: str) -> str:
    """`url`, with scheme and host replaced by `$SHOAL_MIRROR` where that is set.

    The mirror serves the same paths: `SHOAL_MIRROR=http://mirror.local/graphs` turns
    `https://snap.stanford.edu/ogb/x.zip` into `http://mirror.local/graphs/ogb/x.zip`.
    """
    mirror = os.environ.get("SHOAL_MIRROR")
    if not mirror:
        return url
    base, original = urlsplit(mirror), urlsplit(url)
    if base.scheme not in ("http", "https") or not base.netloc:
        raise ShoalError(f"SHOAL_MIRROR is {mirror!r}: expected an address such as http://mirror.local")
    return urlunsplit((base.scheme, base.netloc, base.path.rstrip("/") + original.path, original.query, ""))


def _shared_folder() -> Path | None:
    folder = os.environ.get("SHOAL_DATA")
    return Path(folder).expanduser() if folder else None
