"""Cache of propagated features: one folder in Shoal's home for each (graph, hops, operator)."""

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
_WORTH_KEEPING = 10**9  # multiply-adds, about a second
_ARRAY, _META = "x.npy", "meta.json"
_places: list[Path] = []  # folders that replace the one in Shoal's home


def hops_folder() -> Path:
    """`hops` in Shoal's home."""
    return home_folder() / "hops"


@contextmanager
def keeping_hops_in(folder: Path) -> Iterator[None]:
    """Write hops computed inside the `with` block to another folder. Hops in Shoal's home are still read."""
    _places.append(folder)
    try:
        yield
    finally:
        _places.pop()


def keep_hops(
    graph: Graph, hops: int, operator: str, compute: Callable[[np.ndarray], None]
) -> np.ndarray | None:
    """The hops of a graph, memory-mapped from the cache; if they are missing there, they are computed into it.

    None if they are too cheap to cache, or if the disk is full. `compute` fills a matrix.
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
        except (OSError, ShoalError):  # the disk is full or not writable
            return None
    try:
        found = np.load(folder / _ARRAY, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ShoalError(f"{folder} holds damaged hops ({error}): delete the folder") from None
    if found.shape != (graph.num_nodes, width) or found.dtype != np.float32:
        raise ShoalError(f"{folder} holds {found.dtype} of shape {found.shape}: delete the folder")
    return found


def _describe(graph: Graph, hops: int, operator: str) -> dict[str, Any]:
    """The cache key: pattern, edge weights, features and settings. Labels and split do not change the hops.

    The features of a subgraph are rows of an ancestor's features, which are not read if their digest is known.
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
    """Write to a scratch folder, then rename it, so that nothing half-written has the final name.

    If several processes need the same hops, one of them computes.
    """
    with building(folder, wait=True) as scratch:
        if (folder / _META).is_file():  # another process has written it
            return
        fresh = scratch / "new"
        fresh.mkdir()  # has the usual permissions; only the owner can read a temporary folder
        made: np.memmap = np.lib.format.open_memmap(fresh / _ARRAY, "w+", np.float32, shape)
        with open(fresh / _ARRAY, "r+b") as file:
            take_space(file.fileno(), (fresh / _ARRAY).stat().st_size)
        compute(made)
        made.flush()
        (fresh / _META).write_text(json.dumps(about, indent=1))
        try:
            fresh.rename(folder)
        except OSError:  # on a file system without locks another process may have been faster
            if not (folder / _META).is_file():
                raise
