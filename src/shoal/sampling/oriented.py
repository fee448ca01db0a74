"""The oriented form of large stored graphs, made once and kept in Shoal's home."""

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

LEAST_KEPT = 1 << 24  # entries: a smaller graph is oriented faster than its file is found
LEAST_TRUSTED = (
    1 << 28
)  # bytes of both files, from which on they are read only if they have changed since they were made
SHARE = 0.25  # of the memory that is left, which the form may take
_PIECE = 1 << 24  # bytes held while the files are written
_SUMS = "sums.json"  # of the bytes of both arrays, and what the files were when they had them
_FORMAT = "shoal-oriented-3"
_NAMES = ("indptr", "indices")


def orient_graph(graph: Graph) -> OrientedGraph | None:
    """Every edge of an undirected graph once (`OrientedGraph`), read from the cache where it is kept; None where neither
    the cache nor memory has room for it."""
    folder, room = find_folder(graph), SHARE * memory_left()
    if folder is not None:
        kept = _read(folder, graph)
        if kept is None and 4 * graph.num_nodes + _PIECE <= room and _write(folder, graph):
            kept = _read(folder, graph)  # mapped, it is nobody's memory
        if kept is not None:
            return kept
    if 2 * graph.num_entries + 12 * graph.num_nodes > room:
        return None
    return OrientedGraph(graph.indptr, graph.indices)


def find_folder(graph: Graph) -> Path | None:
    """Where the oriented form of a graph is kept; None for graphs that are small or whose files' digests are not known."""
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
        return None  # wrong numbers would be read beyond the arrays
    ask_large_pages(indptr, indices, graph.indptr, graph.indices)
    return OrientedGraph(graph.indptr, graph.indices, (indptr, indices))


def _describe_files(folder: Path) -> list[list[int]]:
    """What tells whether the files were written to since."""
    stats = [os.stat(folder / f"{name}.npy") for name in _NAMES]
    return [[stat.st_size, stat.st_mtime_ns] for stat in stats]


def _write(folder: Path, graph: Graph) -> bool:
    """Write beside, piece by piece, then rename; what is there is damaged. False on a full disk, which costs only the cache.

    What a killed writer left is removed; one that is still at it is waited for.
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
