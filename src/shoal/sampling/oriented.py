"""The oriented form of large stored graphs, made once and kept in Shoal's home."""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
import zlib
from pathlib import Path

import numpy as np

from shoal.files import flush, flush_tree
from shoal.graph import Graph
from shoal.home import home_folder
from shoal.kernels.orient import OrientedGraph
from shoal.memory import memory_left

LEAST_KEPT = 1 << 24  # entries: a smaller graph is oriented faster than its file is found
_SHARE = 0.25  # of the memory that is left
_SUMS = "sums.json"  # of the bytes of both arrays
_FORMAT = "shoal-oriented-2"


def orient_graph(graph: Graph) -> OrientedGraph | None:
    """Every edge of an undirected graph once (`OrientedGraph`), read from the cache where it is kept; None where it is in
    neither the cache nor has room in memory."""
    folder = find_folder(graph)
    if folder is not None and (kept := _read(folder, graph)) is not None:
        return kept
    if 2 * graph.num_entries + 12 * graph.num_nodes > _SHARE * memory_left():
        return None
    made = OrientedGraph(graph.indptr, graph.indices)
    if folder is None:
        return made
    _write(folder, made)
    return _read(folder, graph) or made  # mapped, it is nobody's memory


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
        sums = json.loads((folder / _SUMS).read_text())
        indptr, indices = (
            np.load(folder / f"{name}.npy", mmap_mode="r").view(np.ndarray) for name in ("indptr", "indices")
        )
    except (OSError, ValueError):
        return None
    fits = indptr.shape == graph.indptr.shape and indices.dtype == graph.indices.dtype and indices.ndim == 1
    if not fits or indptr[0] != 0 or indptr[-1] != len(indices) or (indptr[1:] < indptr[:-1]).any():
        return None
    if sums != _sum_bytes(indptr, indices):  # wrong numbers would be read beyond the arrays
        return None
    return OrientedGraph(graph.indptr, graph.indices, (indptr, indices))


def _sum_bytes(*arrays: np.ndarray) -> list[int]:
    return [zlib.crc32(array.data) for array in arrays]


def _write(folder: Path, made: OrientedGraph) -> None:
    """Write beside, then rename; what is there is damaged. A full disk costs only the cache."""
    beside = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    try:
        beside.mkdir(parents=True)
        np.save(beside / "indptr.npy", made.indptr, allow_pickle=False)
        np.save(beside / "indices.npy", made.indices, allow_pickle=False)
        (beside / _SUMS).write_text(json.dumps(_sum_bytes(made.indptr, made.indices)))
        flush_tree(beside)
        shutil.rmtree(folder, ignore_errors=True)
        beside.rename(folder)
        flush(folder.parent)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
