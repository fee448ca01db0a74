"""Arrays in .npy files: written with their checksums, mapped with their sizes checked."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import tokenize
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from shoal.errors import ShoalError
from shoal.files import flush
from shoal.memory import available_memory
from shoal.progress import follow_work
from shoal.workspace import find_workspace

_HASHED_AT_ONCE = 1 << 22
_LONG_TO_HASH = 1 << 28
_LONGEST_HEADER = (
    512  # bytes; a numeric array's header has 128, and NumPy takes minutes to parse 8 KB of blanks
)
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
# What NumPy raises for malformed headers. A deeply nested one may exhaust the parser's memory.
_ODD_HEADERS = (
    *(ValueError, TypeError, EOFError, OverflowError, SyntaxError, MemoryError, RecursionError, KeyError),
    *(IndexError, AttributeError, tokenize.TokenError),
)
_ENTRY_KINDS: dict[str, type] = {"file": str, "dtype": str, "shape": list, "bytes": int, "sha256": str}
_WORTH_LARGE_PAGES = 1 << 24  # bytes
_FILE_ID = "file_id"  # of a mapped array: device and inode


def write_array(folder: Path, name: str, array: np.ndarray, *, flushed: bool = True) -> dict[str, Any]:
    """Write an array to `folder/name.npy`, unless it is that file already; returns its entry for meta.json.

    An array that was built in a file of the open workspace is moved. With `flushed=False` the caller must fsync the file.
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


def is_kind(value: object, kind: type | tuple[type, ...]) -> bool:
    """Whether a value in meta.json has type `kind`. A bool is not an int, and ints must not be negative."""
    if kind is int:
        return type(value) is int and value >= 0
    return isinstance(value, kind)


def find_odd_entries(entries: dict[str, Any], known: Collection[str]) -> list[str]:
    """Paths of the malformed fields in the entries of arrays, which `write_array` made."""
    odd = []
    for name, entry in entries.items():
        if name not in known or not isinstance(entry, dict):
            odd.append(f"arrays/{name}")
            continue
        odd += [
            f"arrays/{name}/{key}"
            for key, kind in _ENTRY_KINDS.items()
            if not is_kind(entry.get(key), kind)
            or (key == "file" and entry[key] != f"{name}.npy")
            or (key == "shape" and not all(is_kind(size, int) for size in entry[key]))
        ]
    return odd


def read_header(file: IO[bytes], size: int | None = None) -> tuple[tuple[int, ...], bool, np.dtype]:
    """(shape, Fortran order, dtype) from the .npy header at the file's position; raises ValueError for anything else.

    Only numeric, boolean and string dtypes are accepted. `size` is the number of bytes from here to the end of the file,
    if known; the array must fill them.
    """
    start = file.tell() if size is not None else 0
    try:
        version = np.lib.format.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"version {version} of the .npy format")
        shape, by_column, dtype = _HEADERS[version](file, max_header_size=_LONGEST_HEADER)
        shape = tuple(int(length) for length in shape)  # NumPy accepts True as a length
    except _ODD_HEADERS as error:
        raise ValueError(str(error).partition("\n")[0] or "not a .npy header") from None
    if dtype.kind not in "biufcSU" or dtype.subdtype is not None:
        raise ValueError(f"an array of {dtype}" if not dtype.hasobject else "a pickled array")
    if any(length < 0 for length in shape):
        raise ValueError(f"an array of shape {shape}")
    if size is not None:
        held, needed = size - (file.tell() - start), math.prod(shape) * dtype.itemsize
        if held != needed:
            raise ValueError(f"{held:,} bytes for an array of shape {shape}, which has {needed:,}")
    return shape, by_column, dtype


def map_file(path: Path) -> np.ndarray:
    """The array of a .npy file, memory-mapped unless it is empty; raises ValueError if the file is anything else."""
    with open(path, "rb") as file:
        shape, by_column, dtype = read_header(file, os.fstat(file.fileno()).st_size)
        place = file.tell()
    order: Any = "F" if by_column else "C"
    if math.prod(shape) * dtype.itemsize == 0:  # nothing to map
        return np.empty(shape, dtype, order)
    return np.memmap(path, dtype, "r", place, shape, order)


def map_array(folder: Path, name: str, entry: dict[str, Any]) -> np.ndarray:
    """Memory-map a stored array after checking its size, type and shape against its entry."""
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
        array = map_file(path)
    except ValueError:
        raise ShoalError(f"{path} is not a readable .npy file: import the graph again") from None
    if str(array.dtype) != entry["dtype"] or list(array.shape) != entry["shape"]:
        raise ShoalError(
            f"{path} holds {array.dtype} of shape {array.shape}, expected {entry['dtype']} of shape {tuple(entry['shape'])}"
        )
    if isinstance(array, np.memmap):
        vars(array)[_FILE_ID] = (status.st_dev, status.st_ino)
    return array


def check_same_file(array: np.memmap, handle: int, path: Path) -> None:
    """Raise if a file that was opened again is not the one that `map_array` mapped."""
    status = os.fstat(handle)
    if vars(array).get(_FILE_ID, (status.st_dev, status.st_ino)) != (status.st_dev, status.st_ino):
        raise ShoalError(
            f"{path} was replaced since the graph was opened: open the graph again, so that all its files belong together"
        )


def ask_large_pages(*arrays: np.ndarray | None) -> bool:
    """Ask for huge pages (2 MB) for memory-mapped arrays, if all of them fit in half of the free memory.

    Random reads then cause fewer TLB misses. A huge page is read as a whole, so files that do not fit keep small pages.
    """
    maps = [found for array in arrays if (found := _find_map(array)) is not None]
    large = [one for one in maps if len(one) >= _WORTH_LARGE_PAGES]
    if not large or not hasattr(mmap, "MADV_HUGEPAGE") or sum(map(len, large)) > available_memory() // 2:
        return False
    with suppress(OSError):  # a system without them
        for one in large:
            one.madvise(mmap.MADV_HUGEPAGE)
        return True
    return False


def _find_map(array: Any) -> mmap.mmap | None:
    while array is not None and not isinstance(array, mmap.mmap):
        array = getattr(array, "base", None)
    return array


def hash_file(path: Path) -> str:
    """The SHA-256 of a file; reports progress on a large one."""
    size, done, digest = path.stat().st_size, 0, hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while block := file.read(_HASHED_AT_ONCE):
            digest.update(block)
            done += len(block)
            if size >= _LONG_TO_HASH:
                follow_work(f"checksum of {path.name}", done, size)
    return digest.hexdigest()
