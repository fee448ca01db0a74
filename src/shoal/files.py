"""Files under names that users chose: written under a hidden name beside them and renamed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.errors import ShoalError

if TYPE_CHECKING:
    import numpy as np

_FLUSHES_AT_ONCE = 32


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Yields an empty hidden file beside `path` to write; afterwards it is on the disk under `path`.

    A block that fails, or a killed process, leaves what was under `path` before. The permissions are those of
    any new file.
    """
    scratch = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.partial")
    os.close(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
    try:
        yield scratch
        flush(scratch)
        os.replace(scratch, path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    flush(path.parent)


def check_place(folder: Path) -> None:
    """Refuse to make `folder` below something that is a file."""
    parent = next((parent for parent in folder.parents if parent.exists()), None)
    if parent is not None and not parent.is_dir():
        raise ShoalError(f"{parent} is a file: {folder} cannot be made inside it")


def take_space(handle: int, size: int) -> None:
    """Have the disk set `size` bytes aside: a full one says so now, and not by a signal when a mapped page is touched."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)


def create_array(path: Path, shape: tuple[int, ...], dtype: Any) -> np.memmap:
    """A new .npy file of zeros as a mapped array to fill; its space on the disk is taken."""
    import numpy as np

    array: np.memmap = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), shape)
    with open(path, "r+b") as file:
        take_space(file.fileno(), os.fstat(file.fileno()).st_size)
    return array


def flush(path: Path) -> None:
    """Have the disk hold what was written to a file or folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def flush_tree(folder: Path) -> None:
    """Have the disk hold everything below a folder. Many at once: a file system writes its journal once for all that wait."""
    paths = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    folders = [Path(place) for place, _, _ in os.walk(folder)]
    with ThreadPoolExecutor(_FLUSHES_AT_ONCE) as pool:
        for _ in pool.map(flush, paths + folders):
            pass
