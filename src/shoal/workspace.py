"""Workspace: arrays that are built on disk, in a hidden folder beside their target.

    with open_workspace(Path("my-graph"), follow=show) as place:
        graph = read(...)              # arrays that exceed the memory budget are built in files of `place`
        save_graph(graph, "my-graph")  # moves these files

Code that builds arrays calls `find_workspace`, so that importers need not know where their arrays go.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numpy as np

from shoal.errors import ShoalError
from shoal.files import create_array, write_array_header
from shoal.kernels.encoding import EncodedRows, RowEncoder, describe_type
from shoal.lock import building
from shoal.memory import BUILDING, base_memory, memory_budget, memory_left, require_memory
from shoal.progress import Follow, watching
from shoal.wording import format_bytes

_LARGE = 1 << 26  # bytes from which an array is written to a file directly, since it ends up there anyway
_BYTES_A_NODE = 24  # of memory while a graph is generated: permutations of the nodes, masks
_ENCODED_AT_ONCE = 1 << 14  # rows
_MARGIN = 1 << 26  # bytes of disk to leave free
_open: list[Workspace] = []


class Workspace:
    """A hidden folder beside `target`, removed when the block that opened it ends."""

    def __init__(self, target: Path, folder: Path, features: str = "float32") -> None:
        self.target = target
        self.folder = folder
        self.features = features
        self.opened = ExitStack()  # files that are closed with the workspace, if not before
        self._files: dict[int, tuple[np.ndarray, Path, str | None]] = {}  # by the address of the mapped data

    def new_array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """A memory-mapped array of zeros to fill."""
        path = self._new_path(name)
        return self._keep(create_array(path, shape, dtype), path)

    def new_writer(self, name: str, dtype: Any, row: tuple[int, ...] = (), rows: int | None = None) -> Writer:
        """An array to append rows to; `rows` is their number, if known."""
        return Writer(self, self._new_path(name), np.dtype(dtype), row, rows)

    def move_file(self, array: np.ndarray, path: Path) -> tuple[bool, str | None]:
        """Rename the file of `array` to `path`; returns (whether there is such a file, its SHA-256 if known)."""
        kept, built, digest = self._files.get(_address(array), (None, Path(), None))
        if (
            kept is None
            or kept.dtype != array.dtype
            or kept.shape != array.shape
            or not array.flags.c_contiguous
        ):
            return False, None
        os.rename(built, path)
        del self._files[_address(array)]
        return True, digest

    def require(self, size: int, what: str) -> None:
        """Raise if the disk has less than `size` bytes free for `what`."""
        free = shutil.disk_usage(self.folder).free - _MARGIN
        if size > free:
            raise ShoalError(
                f"{what} takes {format_bytes(size)} beside {self.target}, where {format_bytes(max(free, 0))} are free: "
                f"free {format_bytes(size - free)}, or choose another disk; nothing was left there"
            )

    def _new_path(self, name: str) -> Path:
        """A file for an array of that name; an earlier one of the same name may still be mapped."""
        paths = (self.folder / f"{name}{number}.npy" for number in ("", *range(1, 100)))
        return next(path for path in paths if not path.exists())

    def _keep(self, array: np.ndarray, path: Path, digest: str | None = None) -> np.ndarray:
        self._files[_address(array)] = (array, path, digest)
        return array


class Writer:
    """A .npy file that grows by blocks of rows; `finish` maps it. It is hashed while written if its length is known."""

    def __init__(
        self, place: Workspace, path: Path, dtype: np.dtype, row: tuple[int, ...], rows: int | None
    ) -> None:
        self.place, self.path, self.dtype, self.row, self.rows = place, path, dtype, row, rows
        self.written = 0
        self._file: IO[bytes] = place.opened.enter_context(open(path, "w+b"))  # noqa: SIM115
        write_array_header(self._file, dtype, (rows or 0, *row))
        self._digest = None
        if rows is not None:
            self._file.seek(0)
            self._digest = hashlib.sha256(self._file.read())

    def append(self, block: np.ndarray) -> None:
        """Append rows to the file."""
        block = np.ascontiguousarray(block, self.dtype)
        if block.size:
            content = block.reshape(-1).view(np.uint8).data
            self._file.write(content)
            if self._digest is not None:
                self._digest.update(content)
        self.written += len(block)

    def finish(self) -> np.ndarray:
        """The appended rows as a memory-mapped array."""
        assert self.rows in (None, self.written)
        if self.rows is None:
            self._file.seek(0)
            write_array_header(self._file, self.dtype, (self.written, *self.row))
        self._file.close()
        if not self.written or 0 in self.row:
            return np.empty((self.written, *self.row), self.dtype)
        array: np.ndarray = np.lib.format.open_memmap(self.path, "r")
        digest = None if self._digest is None else self._digest.hexdigest()
        return self.place._keep(array, self.path, digest)


class Rows:
    """Blocks of rows, concatenated: in memory, or in a file of the workspace once they are large.

    `rows` is their total number, if known; then each row is copied only once.
    """

    def __init__(self, name: str, dtype: Any, row: tuple[int, ...], rows: int | None = None) -> None:
        self.name, self.dtype, self.row, self.rows = name, np.dtype(dtype), row, rows
        self.place = find_workspace()
        self.row_bytes = self.dtype.itemsize * int(np.prod(row, dtype=np.int64))
        self.limit = min(_LARGE, memory_left() // 8)
        self._blocks: list[np.ndarray] = []
        self._filled = 0
        self._whole: np.ndarray | None = None
        self._writer: Writer | None = None
        if rows is not None and not self._spill(rows):
            self._whole = np.empty((rows, *row), self.dtype)

    def append(self, block: np.ndarray) -> None:
        """Append rows: in memory, or in a file beyond the budget."""
        if self._writer is None and self.rows is None:
            self._spill(self._filled + len(block))
        if self._writer is not None:
            self._writer.append(block)
        elif self._whole is not None:
            self._whole[self._filled : self._filled + len(block)] = block
        else:
            self._blocks.append(block)
        self._filled += len(block)

    def finish(self) -> np.ndarray:
        """All rows as one array."""
        if self._writer is not None:
            return self._writer.finish()
        if self._whole is None:
            self._whole = np.empty((self._filled, *self.row), self.dtype)
            end = self._filled
            while self._blocks:  # each is freed once it is copied
                block = self._blocks.pop()
                self._whole[end - len(block) : end] = block
                end -= len(block)
        return self._whole

    def _spill(self, rows: int) -> bool:
        """Switch to a file if `rows` rows are too large for memory; returns whether it did."""
        if self.place is None or rows * self.row_bytes <= self.limit:
            return False
        if self.rows is not None:
            self.place.require(self.rows * self.row_bytes, f"storing {self.name}")
        self._writer = self.place.new_writer(self.name, self.dtype, self.row, self.rows)
        for block in self._blocks:
            self._writer.append(block)
        self._blocks.clear()
        return True


class FeatureRows(Rows):
    """Rows of features, encoded in the workspace's type as they are appended: no float32 copy is kept."""

    def __init__(self, num_features: int, rows: int | None = None) -> None:
        place = find_workspace()
        self.num_features = num_features
        self.encoder = RowEncoder(place.features if place is not None else "float32")
        dtype, width = describe_type(self.encoder.type, num_features)
        super().__init__("x", dtype, (width,), rows)

    def append(self, block: np.ndarray) -> None:
        """Encode feature rows and append them."""
        for start in range(0, len(block), _ENCODED_AT_ONCE):
            some = np.asarray(block[start : start + _ENCODED_AT_ONCE], np.float32)
            super().append(self.encoder.encode(some))

    def finish(self) -> Any:
        """The rows: an array of float32, or EncodedRows."""
        codes = super().finish()
        if self.encoder.type == "float32":
            return codes
        return EncodedRows(codes, self.encoder.type, self.encoder.describe())


@contextmanager
def open_workspace(
    target: Path, follow: Follow | None = None, features: str | None = None
) -> Iterator[Workspace]:
    """Open a workspace beside `target` for the block. Its files are removed however the block ends, SIGTERM included.

    Dense features that are read or generated in the block are stored as `features`; None: float32.
    """
    with building(target) as folder:
        place = Workspace(target, folder, features or "float32")
        _open.append(place)
        try:
            with _end_on_sigterm(), watching(follow):
                yield place
        finally:
            _open.remove(place)
            place.opened.close()


def find_workspace() -> Workspace | None:
    """The workspace that was opened last, if one is open."""
    return _open[-1] if _open else None


def check_sizes(num_nodes: int, num_entries: int, num_features: int) -> None:
    """Raise if a graph, temporary files included, exceeds the memory or the open workspace's disk."""
    what = f"a graph of {num_nodes:,} nodes and up to {num_entries:,} entries"
    if not _open:
        size, free = num_nodes * (_BYTES_A_NODE + 4 * num_features) + num_entries * 8, memory_left()
        if size > free:
            raise ShoalError(
                f"{what} takes {format_bytes(size)} of memory, and {format_bytes(free)} are free: generate it on disk with "
                "`shoal data generate`, or generate fewer nodes"
            )
        return
    dtype, width = describe_type(_open[-1].features, num_features)
    row = dtype.itemsize * width if num_features else 0
    size = num_nodes * (8 + 8 + 3 + row) + num_entries * (8 + 4)
    _open[-1].require(size, what)
    require_memory(_BYTES_A_NODE * num_nodes + BUILDING, f"generating {what}", "generate fewer nodes")
    held, budget = base_memory() + _BYTES_A_NODE * num_nodes, memory_budget()
    if held > budget:
        raise ShoalError(
            f"{what} takes {format_bytes(held)} of memory to generate, and {format_bytes(budget)} are free: "
            "generate fewer nodes, or use a machine with more memory"
        )


@contextmanager
def _end_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that temporary files are removed."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
