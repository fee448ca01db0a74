"""Files under names that users chose: written under a hidden name beside them and renamed."""

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
    """Yields an empty hidden file beside `path` to write; afterwards it is on the disk under `path`.

    `before` is called when it is on the disk and not yet renamed.

    A block that fails, or a killed process, leaves what was under `path` before. The permissions are those of
    any new file.
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
    """A name as hidden ones beside it repeat it: longer ones are cut and told apart by a digest."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[:_LONGEST]}.{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"


def check_place(folder: Path) -> None:
    """Refuse to make `folder` below something that is a file."""
    parent = next((parent for parent in folder.parents if parent.exists()), None)
    if parent is not None and not parent.is_dir():
        raise ShoalError(f"{parent} is a file: {folder} cannot be made inside it")


def parse_json(text: str | bytes) -> Any:
    """A JSON text of a stranger; raises ValueError for anything else, nesting too deep for the parser too."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


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


def write_array_header(file: IO[bytes], dtype: np.dtype, shape: tuple[int, ...]) -> None:
    """The header of a .npy file; NumPy leaves room in it for a longer first dimension, to be written over it later."""
    import numpy as np

    described = {
        "descr": np.lib.format.dtype_to_descr(dtype),
        "fortran_order": False,
        "shape": shape,
    }
    np.lib.format.write_array_header_1_0(file, described)


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
