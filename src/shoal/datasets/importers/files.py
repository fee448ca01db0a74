"""Opening source files: every error while one is read becomes a ShoalError that names the file."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from shoal.array_files import map_file, read_header
from shoal.datasets.archive import check_directory
from shoal.datasets.formats import Progress as Progress
from shoal.errors import ShoalError, is_full_disk
from shoal.workspace import Rows

_BYTES_AT_ONCE = 1 << 24
_EDGES_AT_ONCE = 1 << 22
_MOST_DEFLATED = 1100  # largest compression ratio of deflate
_FEW_NODES = 1 << 22  # allowed for any file: nodes may be isolated
_NODES_PER_BYTE = 16


def silent(message: str) -> None:
    """The progress callback of a caller that gave none."""


@contextmanager
def reading(path: Path, expected: str) -> Iterator[None]:
    """Turn errors of the block, which reads `path`, into ShoalError that says what was `expected`."""
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
    except (EOFError, zlib.error, zipfile.BadZipFile, OSError, struct.error) as error:
        if isinstance(error, OSError) and is_full_disk(error):  # what is unpacked is written elsewhere
            raise
        raise ShoalError(
            f"{path} is truncated or damaged ({_first_line(error)}): expected {expected}"
        ) from None
    except (ValueError, LookupError, RecursionError, OverflowError, NotImplementedError, csv.Error) as error:
        raise ShoalError(f"{path} cannot be read ({_first_line(error)}): expected {expected}") from None
    except MemoryError:
        raise ShoalError(
            f"{path} asks for more memory than there is: it is damaged, or needs a machine with more"
        ) from None


def compression_of(path: Path) -> str | None:
    """The compression of a file by its name, as Arrow calls it."""
    return {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)


def open_text(path: Path) -> IO[str]:
    """Open a text file, plain or compressed according to its name."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", errors="replace")
    if path.suffix == ".zst":
        stream = pa.input_stream(str(path), compression="zstd")
        return io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
    return open(path, encoding="utf-8", errors="replace")


def read_json(path: Path, expected: str) -> Any:
    """The content of a JSON file; raises ShoalError that says what was `expected`."""
    with reading(path, expected), open(path, encoding="utf-8") as file:
        return json.load(file)


def read_json_object(path: Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file; raises ShoalError that says what was `expected`."""
    found = read_json(path, expected)
    if not isinstance(found, dict):
        raise ShoalError(f"{path} holds a {type(found).__name__}: expected {expected}")
    return found


def read_npy(path: Path, expected: str) -> np.ndarray:
    """One array of a .npy file, memory-mapped so that it can be converted in pieces; never a pickled one."""
    with reading(path, expected):
        return map_file(path)


def read_npz(path: Path, expected: str, *, required: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    """Every array of a .npz file; never a pickled one.

    If a workspace is open, an array too large for the memory budget is unpacked into it and memory-mapped.
    """
    arrays: dict[str, np.ndarray] = {}
    with reading(path, expected), open(path, "rb") as file:
        if file.read(2) != b"PK":
            raise ValueError("not a plain NumPy array")
        size = os.fstat(file.fileno()).st_size
        with zipfile.ZipFile(file) as archive:
            check_directory(path, len(archive.infolist()))
            for member in archive.infolist():
                key = member.filename.removesuffix(".npy")
                if key in arrays:
                    raise ValueError(f"two arrays {key!r}")
                _check_member(member, size)
                arrays[key] = _unpack(archive, member, key)
    missing = [key for key in required if key not in arrays]
    if missing:
        found = ", ".join(sorted(arrays)) or "nothing"
        raise ShoalError(f"{path} holds {found} but not {', '.join(missing)}: expected {expected}")
    return arrays


def _check_member(member: zipfile.ZipInfo, size: int) -> None:
    """Raise if a member is encrypted, has an unknown compression, or declares an impossible size."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 0x1:
        raise ValueError(f"{member.filename} is encrypted or packed in an unknown way")
    if member.compress_size > size or member.file_size > _MOST_DEFLATED * (member.compress_size + 64):
        raise ValueError(f"{member.filename} declares a size it cannot have")


def _unpack(archive: zipfile.ZipFile, member: zipfile.ZipInfo, key: str) -> np.ndarray:
    """One array of an archive, block by block; its checksum is checked after the last one."""
    with archive.open(member) as file:
        shape, by_column, dtype = read_header(file, member.file_size)
        if by_column or not shape:
            content = file.read(member.file_size)
            if len(content) < math.prod(shape) * dtype.itemsize:
                raise EOFError(f"{member.filename} ends early")
            return np.frombuffer(content, dtype).reshape(shape, order="F" if by_column else "C")
        if math.prod(shape) * dtype.itemsize == 0:
            return np.empty(shape, dtype)
        rows = Rows(f"{key}.unpacked", dtype, shape[1:], shape[0])
        size = max(_BYTES_AT_ONCE // max(rows.row_bytes, 1), 1)
        for start in range(0, shape[0], size):
            count = min(size, shape[0] - start)
            content = file.read(count * rows.row_bytes)
            if len(content) < count * rows.row_bytes:
                raise EOFError(f"{member.filename} ends early")
            rows.append(np.frombuffer(content, dtype).reshape(count, *shape[1:]))
        return rows.finish()


def check_num_nodes(path: Path, num_nodes: int) -> int:
    """`num_nodes`; raises ShoalError if it is implausible for the files' size, before arrays of that length are made."""
    if num_nodes < 0:
        raise ShoalError(f"{path} counts {num_nodes:,} nodes: expected 0 or more")
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files)
    if num_nodes > max(_FEW_NODES, _NODES_PER_BYTE * size):
        raise ShoalError(
            f"{path} has {size:,} bytes but {num_nodes:,} nodes: it is damaged, or its nodes need to be numbered 0, 1, 2, …"
        )
    return num_nodes


def read_scalar(path: Path, name: str, value: np.ndarray) -> int:
    """The whole number in an array of one element."""
    if value.size != 1 or value.dtype.kind not in "iub":
        raise ShoalError(f"{path}: {name} is {value.dtype} of shape {value.shape}: expected one whole number")
    return int(value.reshape(())[()])


def cut_edges(sources: np.ndarray, targets: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks of long arrays of sources and targets, which may be memory-mapped."""
    for start in range(0, max(len(sources), len(targets)), _EDGES_AT_ONCE):
        yield sources[start : start + _EDGES_AT_ONCE], targets[start : start + _EDGES_AT_ONCE]


def _first_line(error: BaseException) -> str:
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if "pickle" in text:  # NumPy's advice to allow it is not ours
        return "not a plain NumPy array"
    return (text.strip().splitlines() or [type(error).__name__])[0].rstrip(".")
