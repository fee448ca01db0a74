"""Stored parts: a folder with one folder of .npy files per rank and a manifest.json; each rank opens only its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event, Lock
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from shoal.array_files import find_odd_entries, hash_file, map_array, write_array
from shoal.checks import check_whole
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import flush_tree
from shoal.graph import MASKS, Graph
from shoal.kernels.csr import index_dtype
from shoal.lock import building, writing
from shoal.partitioning.cut import find_halo, list_members
from shoal.partitioning.estimate import count_part_threads
from shoal.partitioning.manifest import (
    AGAIN,
    KINDS,
    MANIFEST,
    PART,
    name_folder,
    read_manifest,
    write_manifest,
)
from shoal.partitioning.part import Part, cut_part
from shoal.partitioning.partition import Partition
from shoal.partitioning.quality import Quality
from shoal.store import put_in_place
from shoal.verified import Verified

_SPARSE = ("x_data", "x_indices", "x_indptr")
_REQUIRED = (
    *("n_id", "halo_id", "halo_offsets", "send_rows", "send_offsets"),
    *("local_indptr", "local_indices", "halo_indptr", "halo_indices", "degree"),
)
_EITHER = ("has_loop", "keep", "local_weight", "halo_weight", "y", *MASKS)
_OPTIONAL = (*_EITHER, "x", *_SPARSE)


def store_parts(
    graph: Graph,
    partition: Partition,
    folder: str | Path,
    *,
    quality: Quality | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
    data: str | None = None,
    asked: dict[str, Any] | None = None,
) -> Path:
    """Write the parts of `graph` to `folder`, all or nothing; the files appear in one rename.

    Memory: a few integers per node, and as many parts at a time as cores and memory allow, at least one; the size of a
    memory-mapped graph does not matter. The halos are found first and written to a scratch file, from which each rank's
    send lists are read. Parts are cut and their covers computed in parallel.

    Args:
        graph: the graph that was partitioned.
        partition: which part each node belongs to.
        folder: folder to write; one subfolder per part.
        quality: figures for the manifest; None measures them.
        overwrite: replace parts that are in the folder.
        progress: called with (parts written, parts in all).
        data: the path or name that the graph was loaded by; training refuses parts of a stored graph
            that has changed since.
        asked: the options of the partition, which `shoal partition --refresh` compares.
    """
    folder = Path(folder)
    with building(folder) as scratch, explain_full_disk(folder):
        check_target(folder, overwrite)
        fresh = scratch / "new"
        fresh.mkdir()
        _write_parts(graph, partition, fresh, scratch / "halos", progress)
        write_manifest(graph, partition, quality or partition.quality(), fresh, data, asked)
        flush_tree(fresh)
        put_in_place(fresh, folder, old=scratch.with_suffix(".old"))
    return folder


def check_target(folder: Path, overwrite: bool = False) -> None:
    """Refuse a folder that parts cannot be written to, before any work is done."""
    if folder.exists() and not overwrite:
        with writing(folder):  # removes what a killed writer left beside it
            pass
        raise ShoalError(
            f"{folder} exists already: choose another name, or let it be overwritten (--overwrite; in Python overwrite=True)"
        )
    if folder.exists() and not (folder / MANIFEST).is_file():
        raise ShoalError(f"{folder} holds no stored parts: refusing to overwrite it")


class _Messages(NamedTuple):
    """Halo rows by (reader, owner), an entry for each pair that exchanges any: `size` rows from `start` in the file of halos.

    Entries are sorted by reader; `by_owner` sorts them by owner and then by reader.
    """

    reader: np.ndarray
    owner: np.ndarray
    start: np.ndarray
    size: np.ndarray
    by_owner: np.ndarray


def _write_parts(
    graph: Graph, partition: Partition, fresh: Path, halos: Path, progress: Callable[[int, int], None]
) -> None:
    assignment, num_parts = partition.assignment, partition.num_parts
    nodes, offsets = list_members(assignment, num_parts)
    members = [nodes[offsets[q] : offsets[q + 1]] for q in range(num_parts)]
    messages = _write_halos(graph, assignment, members, halos, progress)
    size = int(messages.size.sum())
    rows = np.asarray(np.memmap(halos, np.int64, "r", shape=(size,))) if size else np.empty(0, np.int64)
    ranks = np.arange(num_parts + 1)
    received = np.searchsorted(messages.reader, ranks)
    sent = np.searchsorted(messages.owner[messages.by_owner], ranks)
    done = iter(range(num_parts + 1, 2 * num_parts + 1))
    stop, telling = Event(), Lock()

    def write(share: range) -> None:
        place = np.empty(graph.num_nodes, index_dtype(graph.num_nodes))
        for q in share:
            if stop.is_set():
                return
            incoming = np.arange(received[q], received[q + 1])
            outgoing = messages.by_owner[sent[q] : sent[q + 1]]
            halo = _read_rows(rows, messages, incoming, messages.owner, num_parts)
            receivers = _read_rows(rows, messages, outgoing, messages.reader, num_parts)
            _write_part(cut_part(graph, assignment, num_parts, q, members[q], place, receivers, halo), fresh)
            with telling:
                progress(next(done), 2 * num_parts)

    threads = count_part_threads(graph, num_parts)
    with ThreadPoolExecutor(threads) as pool:
        try:
            shares = [pool.submit(write, range(first, num_parts, threads)) for first in range(threads)]
            wait(shares, return_when=FIRST_EXCEPTION)
        finally:  # a thread failed, or this one was interrupted: the others stop after their current part
            stop.set()
    for share in shares:
        share.result()
    write_array(fresh, "assignment", assignment, flushed=False)


def _write_halos(
    graph: Graph,
    assignment: np.ndarray,
    members: list[np.ndarray],
    halos: Path,
    progress: Callable[[int, int], None],
) -> _Messages:
    """Write every rank's halo to a file, one after the other; returns the positions of each owner's rows."""
    num_parts = len(members)
    owners, starts, sizes = [], [], []
    done = 0
    with open(halos, "wb") as file:
        for r in range(num_parts):
            halo_id, offsets = find_halo(graph.indptr, graph.indices, assignment, members[r], r, num_parts)
            halo_id.tofile(file)
            counts = np.diff(offsets)
            owners.append(np.flatnonzero(counts))
            starts.append(offsets[owners[-1]] + done)
            sizes.append(counts[owners[-1]])
            done += len(halo_id)
            progress(r + 1, 2 * num_parts)
    owner = np.concatenate(owners)
    reader = np.repeat(np.arange(num_parts), [len(one) for one in owners])
    by_owner = np.argsort(owner, kind="stable")
    return _Messages(reader, owner, np.concatenate(starts), np.concatenate(sizes), by_owner)


def _read_rows(
    rows: np.ndarray, messages: _Messages, chosen: np.ndarray, peers: np.ndarray, num_parts: int
) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the chosen messages, and the offsets of each peer's."""
    offsets = np.zeros(num_parts + 1, np.int64)
    offsets[peers[chosen] + 1] = messages.size[chosen]
    np.cumsum(offsets, out=offsets)
    pieces = [rows[messages.start[m] : messages.start[m] + messages.size[m]] for m in chosen]
    return np.concatenate(pieces) if pieces else np.empty(0, np.int64), offsets


def _write_part(part: Part, fresh: Path) -> None:
    folder = fresh / name_folder(part.rank)
    folder.mkdir()
    arrays = {name: getattr(part, name) for name in (*_REQUIRED, *_EITHER)}
    if part.x is not None and not isinstance(part.x, np.ndarray):
        arrays |= {"x_data": part.x.data, "x_indices": part.x.indices, "x_indptr": part.x.indptr}
    else:
        arrays["x"] = part.x
    entries = {
        name: write_array(folder, name, a, flushed=False) for name, a in arrays.items() if a is not None
    }
    about = {"rank": part.rank, "num_local": part.num_local, "num_halo": part.num_halo, "arrays": entries}
    (folder / PART).write_text(json.dumps(about, indent=1) + "\n")


def open_part(
    folder: str | Path, rank: int, *, verify: bool = False, manifest: dict[str, Any] | None = None
) -> Part:
    """One rank's part, memory-mapped; only its own subfolder is read.

    Args:
        folder: folder that `store_parts` or `shoal partition` wrote.
        rank: number of the part.
        verify: check every byte now; otherwise they are checked once on every machine.
        manifest: from `read_manifest`; None reads it.
    """
    folder = Path(folder)
    manifest = read_manifest(folder) if manifest is None else manifest
    check_whole("rank", rank, 0, manifest["num_parts"] - 1)
    own = folder / name_folder(rank)
    about = _read_about(own / PART, manifest, rank)
    entries = about["arrays"]
    arrays = {name: map_array(own, name, entry) for name, entry in entries.items()}
    known = Verified(
        {"part": about, **{key: manifest[key] for key in KINDS}},
        own,
        {entry["file"]: entry["sha256"] for entry in entries.values()},
    )
    known.check(AGAIN, everything=verify)
    x: Any = arrays.pop("x", None)
    try:
        if "x_indptr" in arrays:
            parts = tuple(arrays.pop(name) for name in _SPARSE)
            x = sp.csr_array(parts, shape=(len(arrays["n_id"]), manifest["num_features"]))
        part = Part(
            rank=rank,
            num_parts=manifest["num_parts"],
            num_global_nodes=manifest["num_nodes"],
            directed=manifest["directed"],
            num_classes=manifest["num_classes"],
            multi_label=manifest["multi_label"],
            name=manifest["name"],
            checksum=manifest["checksum"],
            x=x,
            **arrays,
            checked=known.sound,
        )
    except (ShoalError, ValueError, TypeError) as error:
        raise ShoalError(f"{own} is damaged: {error}; {AGAIN}") from None
    known.remember()
    return part


def _read_about(path: Path, manifest: dict[str, Any], rank: int) -> dict[str, Any]:
    """The part.json of a rank, checked against the manifest's checksum."""
    try:
        if not path.is_file() or hash_file(path) != manifest["parts"][rank]["sha256"]:
            raise ShoalError(f"{path} is missing or was changed: {AGAIN}")
        about: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        arrays = about["arrays"]
        missing = [name for name in _REQUIRED if name not in arrays]
        if any(name in arrays for name in _SPARSE):
            missing += [name for name in _SPARSE if name not in arrays]
        odd = find_odd_entries(arrays, (*_REQUIRED, *_OPTIONAL))
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise ShoalError(f"{path} is damaged: expected the arrays of a part; {AGAIN}") from None
    if missing or odd:
        said = f"it lacks {', '.join(missing)}" if missing else f"malformed {', '.join(odd)}"
        raise ShoalError(f"{path} is damaged: {said}; {AGAIN}")
    return about
