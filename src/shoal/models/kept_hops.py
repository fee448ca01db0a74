"""Hops of features that were computed before: one folder in Shoal's home for each (graph, hops, operator)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from shoal.digest import combine_digests, digest_array, name_features
from shoal.errors import ShoalError
from shoal.files import take_space
from shoal.graph import Graph
from shoal.home import home_folder
from shoal.lock import building

_FORMAT = 1
_WORTH_KEEPING = 10**9  # multiply-adds: from about a second on
_ARRAY, _META = "x.npy", "meta.json"
_places: list[Path] = []  # where hops are kept instead of in the home


def hops_folder() -> Path:
    """`hops` in Shoal's home."""
    return home_folder() / "hops"


@contextmanager
def keeping_hops_in(folder: Path) -> Iterator[None]:
    """Keep hops that are computed inside the block in another folder; those in Shoal's home are read."""
    _places.append(folder)
    try:
        yield
    finally:
        _places.pop()


def keep_hops(
    graph: Graph, hops: int, operator: str, compute: Callable[[np.ndarray], None]
) -> np.ndarray | None:
    """The hops of a graph, mapped from where they are kept; computed into a file there if they are not.

    None where computing them again takes less than keeping them, or the disk has no room. `compute` fills a matrix.
    """
    width = (hops + 1) * graph.num_features
    if hops * graph.num_entries * graph.num_features < _WORTH_KEEPING:
        return None
    about = _describe(graph, hops, operator)
    name = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:32]
    folder = hops_folder() / name
    if _places and not (folder / _META).is_file():
        folder = _places[-1] / name
    if not (folder / _META).is_file():
        try:
            _write(folder, about, (graph.num_nodes, width), compute)
        except (OSError, ShoalError):  # a full disk, or one that is not ours to write on
            return None
    try:
        found = np.load(folder / _ARRAY, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ShoalError(f"{folder} holds damaged hops ({error}): delete the folder") from None
    if found.shape != (graph.num_nodes, width) or found.dtype != np.float32:
        raise ShoalError(f"{folder} holds {found.dtype} of shape {found.shape}: delete the folder")
    return found


def _describe(graph: Graph, hops: int, operator: str) -> dict[str, Any]:
    """What decides the hops: pattern, weights, features and the settings. Labels and split do not.

    The features of a subgraph are rows of an ancestor's, which is not read if its digest is known.
    """
    pattern = {name: getattr(graph, name) for name in ("indptr", "indices", "edge_weight")}
    x, rows = graph.find_features(np.arange(graph.num_nodes))
    owner = graph
    while owner.parent is not None and owner._x is not x:
        owner = owner.parent
    return {
        "format": _FORMAT,
        "pattern": combine_digests(pattern, graph._digests),
        "features": combine_digests(name_features(x), owner._digests),
        "nodes": None if owner is graph else digest_array(rows),
        "hops": hops,
        "operator": operator,
    }


def _write(
    folder: Path, about: dict[str, Any], shape: tuple[int, int], compute: Callable[[np.ndarray], None]
) -> None:
    """Write beside, then rename: nothing half-written has the final name. Of several processes one computes."""
    with building(folder, wait=True) as scratch:
        if (folder / _META).is_file():  # written by another process meanwhile
            return
        fresh = scratch / "new"
        fresh.mkdir()  # with the usual permissions; a temporary folder is its owner's alone
        made: np.memmap = np.lib.format.open_memmap(fresh / _ARRAY, "w+", np.float32, shape)
        with open(fresh / _ARRAY, "r+b") as file:
            take_space(file.fileno(), (fresh / _ARRAY).stat().st_size)
        compute(made)
        made.flush()
        (fresh / _META).write_text(json.dumps(about, indent=1))
        try:
            fresh.rename(folder)
        except OSError:  # where a file system has no locks, another process may have been faster
            if not (folder / _META).is_file():
                raise
