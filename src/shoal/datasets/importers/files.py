"""Opening source files: whatever goes wrong while one is read becomes a ShoalError that names it."""

from __future__ import annotations

import gzip
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from shoal.datasets.formats import Progress as Progress
from shoal.errors import ShoalError, is_full_disk
from shoal.workspace import Rows

_BYTES_AT_ONCE = 1 << 24
_EDGES_AT_ONCE = 1 << 22


def silent(message: str) -> None:
    """The progress callback of a caller that gave none."""


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """While `path` is read: a missing, empty, damaged or foreign file is refused, saying what was `expected`."""
    if not path.exists():
        raise ShoalError(f"{path} does not exist: expected {expected}")
    if path.is_dir():
        raise ShoalError(f"{path} is a folder: expected {expected}")
    if path.stat().st_size == 0:
        raise ShoalError(f"{path} is empty: expected {expected}")
    try:
        yield
    except PermissionError:
        raise ShoalError(f"{path} may not be read: check its permissions") from None
    except (EOFError, zlib.error, zipfile.BadZipFile, OSError) as error:
        if isinstance(error, OSError) and is_full_disk(error):  # what is unpacked is written elsewhere
            raise
        raise ShoalError(
            f"{path} is truncated or damaged ({_first_line(error)}): expected {expected}"
        ) from None
    except (ValueError, KeyError, RecursionError) as error:
        raise ShoalError(f"{path} cannot be read ({_first_line(error)}): expected {expected}") from None


def open_text(path: Path) -> IO[str]:
    """A text file, plain or gzipped by its name."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def read_json(path: Path, expected: str) -> Any:
    with reading(path, expected), open(path, encoding="utf-8") as file:
        return json.load(file)


def read_json_object(path: Path, expected: str) -> dict[str, Any]:
    found = read_json(path, expected)
    if not isinstance(found, dict):
        raise ShoalError(f"{path} holds a {type(found).__name__}: expected {expected}")
    return found


def read_npy(path: Path, expected: str) -> np.ndarray:
    """One array of a .npy file, memory-mapped so that it can be converted in pieces; never a pickled one."""
    with reading(path, expected):
        array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(array, np.ndarray):
            raise ValueError("an archive, not one array")
        return array


def read_npz(path: Path, expected: str, *, required: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Every array of a .npz file; never a pickled one.

    Where a workspace is open, an array too large for its memory budget is unpacked into it and mapped.
    """
    with reading(path, expected), open(path, "rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("one array, not an archive")
        with archive:
            arrays = {key: _unpack(archive, key) for key in archive.files}
    missing = [key for key in required if key not in arrays]
    if missing:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise ShoalError(f"{path} holds {found} but not {', '.join(missing)}: expected {expected}")
    return arrays


def _unpack(archive: np.lib.npyio.NpzFile, key: str) -> np.ndarray:
    """One array of an archive, block by block."""
    assert archive.zip is not None
    member = next(name for name in (f"{key}.npy", key) if name in archive.zip.namelist())
    with archive.zip.open(member) as file:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }
        if version not in read_header:
            return np.asarray(archive[key])
        shape, fortran, dtype = read_header[version](file)
        if fortran or dtype.hasobject or not shape or 0 in shape:
            return np.asarray(archive[key])
        rows = Rows(f"{key}.unpacked", dtype, shape[1:], shape[0])
        size = max(_BYTES_AT_ONCE // max(rows.row_bytes, 1), 1)
        for start in range(0, shape[0], size):
            count = min(size, shape[0] - start)
            content = file.read(count * rows.row_bytes)
            if len(content) < count * rows.row_bytes:
                raise EOFError(f"{member} ends early")
            rows.append(np.frombuffer(content, dtype).reshape(count, *shape[1:]))
        return rows.finish()


def cut_edges(sources: np.ndarray, targets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Long, maybe mapped, rows of edge ends in chunks."""
    for start in range(0, max(len(sources), len(targets)), _EDGES_AT_ONCE):
        yield sources[start : start + _EDGES_AT_ONCE], targets[start : start + _EDGES_AT_ONCE]


def _first_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if "pickle" in text:  # NumPy's advice to allow it is not ours
        return "no plain NumPy array"
    return (text.strip().splitlines() or [type(error).__name__])[0].rstrip(".")
