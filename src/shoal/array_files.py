"""Arrays in .npy files: written with their checksums, mapped with their sizes checked."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from shoal.errors import ShoalError
from shoal.files import flush
from shoal.progress import follow_work
from shoal.workspace import find_workspace

_HASHED_AT_ONCE = 1 << 22
_LONG_TO_HASH = 1 << 28
_FILE_ID = "file_id"  # of a mapped array: device and inode


def write_array(folder: Path, name: str, array: np.ndarray, *, flushed: bool = True) -> dict[str, Any]:
    """Write an array, unless it lies there already, and describe it; not `flushed`, the caller sees to it that the disk
    holds the file. One that was built in a file of the open workspace moves here.
    """
    path = folder / f"{name}.npy"
    place = find_workspace()
    there = Path(str(getattr(array, "filename", None))) == path.resolve()
    moved, digest = place.move_file(array, path) if place is not None and not there else (False, None)
    if not (there or moved):
        np.save(path, array, allow_pickle=False)
    if flushed:
        flush(path)
    return {
        "file": path.name,
        "dtype": str(array.dtype),
        "shape": list(array.shape),
        "bytes": path.stat().st_size,
        "sha256": digest or hash_file(path),
    }


def map_array(folder: Path, name: str, entry: dict[str, Any]) -> np.ndarray:
    path = folder / entry["file"]
    if not path.is_file():
        raise ShoalError(f"{path} is missing: the stored graph is incomplete, import it again")
    status = path.stat()
    size = status.st_size
    if size != entry["bytes"]:
        raise ShoalError(
            f"{path} has {size:,} bytes, expected {entry['bytes']:,}: the file is truncated or was replaced, import the graph again"
        )
    try:
        if 0 in entry["shape"]:  # nothing to map
            with open(path, "rb") as file:
                array: np.ndarray = np.lib.format.read_array(file, allow_pickle=False)
        else:
            array = np.lib.format.open_memmap(path, mode="r")
    except (ValueError, TypeError, EOFError, OverflowError):
        raise ShoalError(f"{path} is not a readable .npy file: import the graph again") from None
    if str(array.dtype) != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise ShoalError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected {entry['dtype']} of shape {tuple(entry['shape'])}"
        )
    if isinstance(array, np.memmap):
        vars(array)[_FILE_ID] = (status.st_dev, status.st_ino)
    return array


def check_same_file(array: np.memmap, handle: int, path: Path) -> None:
    """Refuse a file, opened again by its name, that is not the one `map_array` mapped."""
    status = os.fstat(handle)
    if vars(array).get(_FILE_ID, (status.st_dev, status.st_ino)) != (status.st_dev, status.st_ino):
        raise ShoalError(
            f"{path} was replaced since the graph was opened: open the graph again, so that all its files belong together"
        )


def hash_file(path: Path) -> str:
    """The SHA-256 of a file; who watches is told how far that of a large one is."""
    size, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_HASHED_AT_ONCE):
            digest.update(block)
            done += len(block)
            if size >= _LONG_TO_HASH:
                follow_work(f"checksum of {path.name}", done, size)
    return digest.hexdigest()
