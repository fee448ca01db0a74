"""Atomic writes: a file is written under a hidden name beside its target, then renamed."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from shoal.errors import ShoalError

if TYPE_CHECKING:
    import numpy as np

_FLUSHES_AT_ONCE = 32
_LONGEST = 40  # characters of a name that hidden ones repeat


@contextmanager
def replace_file(path: Path, before: Callable[[], None] | None = None) -> Iterator[Path]:
    """Yield an empty hidden file beside `path`; when the block ends, the file is fsynced and renamed to `path`.

    `before` is called between fsync and rename. If the block fails or the process is killed, `path` stays as it was. The
    permissions are those of any new file.
    """
    scratch = path.with_name(f".{shorten_name(path.name)}.{secrets.token_hex(4)}.partial")
    os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield scratch
        flush(scratch)
        if before is not None:
            before()
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    flush(path.parent)


def shorten_name(name: str) -> str:
    """A name as part of a hidden name: a long one is cut and made unique by a digest."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}.{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"


def check_place(folder: Path) -> None:
    """Raise if `folder` would be below a file."""
    parent = next((parent for parent in folder.parents if parent.exists()), None)
    if parent is not None and not parent.is_dir():
        raise ShoalError(f"{parent} is a file: {folder} cannot be made inside it")


def parse_json(text: str | bytes) -> Any:
    """Parse untrusted JSON; raises ValueError if it is malformed or nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def take_space(handle: int, size: int) -> None:
    """Allocate `size` bytes on the disk: a full disk is an error now, not a SIGBUS when a mapped page is written."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)


def create_array(path: Path, shape: tuple[int, ...], dtype: Any) -> np.memmap:
    """A new .npy file of zeros as a memory-mapped array to fill; its disk space is allocated."""
    import numpy as np

    array: np.memmap = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
    with open(path, "r+b") as file:
        take_space(file.fileno(), os.fstat(file.fileno()).st_size)
    return array


def write_array_header(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """Write the header of a .npy file. NumPy pads it, so that it can be overwritten with a larger first dimension."""
    import numpy as np

    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, described)


def flush(path: Path) -> None:
    """fsync a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_tree(folder: Path) -> None:
    """fsync everything below a folder, many files at once: the file system commits its journal once for all of them."""
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    folders = [Path(place) for place, _, _ in os.walk(folder)]
    with ThreadPoolExecutor(_FLUSHES_AT_ONCE) as pool:
        for _ in pool.map(flush, paths + folders):
            pass
