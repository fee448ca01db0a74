"""The degree-oriented form of large stored graphs, made once and cached in Shoal's home."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from pathlib import Path

import numpy as np

from shoal.array_files import ask_large_pages
from shoal.errors import ShoalError
from shoal.files import create_array, flush, flush_tree, write_array_header
from shoal.graph import Graph
from shoal.home import home_folder
from shoal.kernels.orient import OrientedGraph, keep_lower
from shoal.lock import building
from shoal.memory import memory_left

LEAST_KEPT = 1 << 24  # entries: orienting a smaller graph is faster than reading a file
LEAST_TRUSTED = (
    1 << 28
)  # bytes of both files: larger ones are verified only if they have changed since they were written
SHARE = 0.25  # of the memory left, which the oriented form may take
_PIECE = 1 << 24  # bytes held while the files are written
_SUMS = "sums.json"  # checksums of both arrays, with the sizes and times of their files
_FORMAT = "shoal-oriented-3"
_NAMES = ("indptr", "indices")


def orient_graph(graph: Graph) -> OrientedGraph | None:
    """The degree-oriented form of an undirected graph, from the cache if it is there; None if it fits neither the cache
    nor memory."""
    folder, room = find_folder(graph), SHARE * memory_left()
    if folder is not None:
        kept = _read(folder, graph)
        if kept is None and 4 * graph.num_nodes + _PIECE <= room and _write(folder, graph):
            kept = _read(folder, graph)  # memory-mapped: it takes no anonymous memory
        if kept is not None:
            return kept
    if 2 * graph.num_entries + 12 * graph.num_nodes > room:
        return None
    return OrientedGraph(graph.indptr, graph.indices)


def find_folder(graph: Graph) -> Path | None:
    """The cache folder of a graph's oriented form; None for graphs that are small or whose digests are not known."""
    arrays = {"indptr": graph.indptr, "indices": graph.indices}
    known = [graph._digests.get(name, (None, "")) for name in arrays]
    if graph.num_entries < LEAST_KEPT or any(
        found is not array for (found, _), array in zip(known, arrays.values())
    ):
        return None
    text = " ".join([_FORMAT, *(digest for _, digest in known)])
    return home_folder() / "oriented" / hashlib.sha256(text.encode()).hexdigest()[:32]


def _read(folder: Path, graph: Graph) -> OrientedGraph | None:
    try:
        known = json.loads((folder / _SUMS).read_text())
        indptr, indices = (np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in _NAMES)
        same = known["files"] == _describe_files(folder)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    fits = indptr.shape == graph.indptr.shape and indices.dtype == graph.indices.dtype and indices.ndim == 1
    if not fits or indptr[0] != 0 or indptr[-1] != len(indices):
        return None
    is_trusted = same and indptr.nbytes + indices.nbytes >= LEAST_TRUSTED
    if not is_trusted and known["sums"] != [zlib.crc32(array.data) for array in (indptr, indices)]:
        return None  # wrong indices would be out of range in kernels
    ask_large_pages(indptr, indices, graph.indptr, graph.indices)
    return OrientedGraph(graph.indptr, graph.indices, (indptr, indices))


def _describe_files(folder: Path) -> list[list[int]]:
    """Size and modification time of the files, which show whether they were changed."""
    stats = [os.stat(folder / f"{name}.npy") for name in _NAMES]
    return [[stat.st_size, stat.st_mtime_ns] for stat in stats]


def _write(folder: Path, graph: Graph) -> bool:
    """Write the files piece by piece under another name, then rename; a damaged form is replaced. False on a full disk.

    Leftovers of a killed writer are removed; a running one is waited for.
    """
    try:
        with building(folder, wait=True) as scratch:
            if _read(folder, graph) is None:
                fresh = scratch / "new"
                fresh.mkdir()
                _fill(fresh, graph)
                shutil.rmtree(folder, ignore_errors=True)
                fresh.rename(folder)
                flush(folder.parent)
    except (OSError, ShoalError):
        return False
    return True


def _fill(folder: Path, graph: Graph) -> None:
    indptr = create_array(folder / "indptr.npy", graph.indptr.shape, np.int64)
    with open(folder / "indices.npy", "w+b") as file:
        write_array_header(file, graph.indices.dtype, (0,))
        total = size = 0
        for piece in keep_lower(graph.indptr, graph.indices, indptr):
            file.write(piece.data)
            total, size = zlib.crc32(piece.data, total), size + len(piece)
        file.seek(0)
        write_array_header(file, graph.indices.dtype, (size,))
    sums = [zlib.crc32(indptr.data), total]
    flush_tree(folder)
    (folder / _SUMS).write_text(json.dumps({"sums": sums, "files": _describe_files(folder)}))
    flush(folder / _SUMS)
