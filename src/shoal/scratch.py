"""Scratch: matrices with a row per node, in memory while they fit, else in temporary files."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from shoal.errors import FORBIDDEN, ShoalError, explain_full_disk
from shoal.files import flush, replace_file, take_space

STAMP = "activations.json"
_LOCK = "lock"
_ENDINGS = (".rows", ".done")


class Matrix:
    """An (n, width) matrix in memory that is written once, by rows, and then read.

    Attributes:
        tensor: its content, read-only.
    """

    def __init__(self, scratch: Scratch, num_rows: int, width: int, dtype: torch.dtype) -> None:
        self.scratch = scratch
        self.shape = (num_rows, width)
        self.size = num_rows * width * dtype.itemsize
        self.is_closed = False
        self.tensor: Tensor = self._make(dtype)

    def _make(self, dtype: torch.dtype) -> Tensor:
        self.scratch.held += self.size
        return torch.empty(self.shape, dtype=dtype)

    def write(self, rows: slice | Tensor, values: Tensor) -> None:
        """Write rows. The caller must not change `values` afterwards: they may be written later."""
        self.tensor[rows] = values

    def settle(self) -> None:
        """Wait for pending writes."""

    def close(self) -> None:
        """Free its memory or disk space. A second call does nothing."""
        if not self.is_closed:
            self.is_closed = True
            self._free()

    def _free(self) -> None:
        self.scratch.held -= self.size
        del self.tensor


class FileMatrix(Matrix):
    """A Matrix in a file. Consecutive rows are written by a background thread while the next ones are computed.

    Its pages are page cache, not anonymous memory: the system keeps as many of them as fit. Without a `path` the file has
    no name, so that it is gone when the process ends.
    """

    def __init__(
        self, scratch: Scratch, num_rows: int, width: int, dtype: torch.dtype, path: Path | None = None
    ) -> None:
        self.path = path
        self._pending: Future[None] | None = None
        super().__init__(scratch, num_rows, width, dtype)

    def _make(self, dtype: torch.dtype) -> Tensor:
        with explain_full_disk(self.scratch.folder, size=self.size):
            if self.path is None:
                handle, name = tempfile.mkstemp(prefix=".shoal-", suffix=".rows", dir=self.scratch.folder)
                os.unlink(name)
            else:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            self._handle = handle
            try:
                if os.fstat(handle).st_size != self.size:
                    os.ftruncate(handle, self.size)
                    take_space(handle, self.size)
            except OSError:
                os.close(handle)
                if self.path is not None:
                    self.path.unlink(missing_ok=True)
                raise
        self.scratch.filed += self.size
        with open(os.dup(handle), "r+b") as file:
            array = np.memmap(file, np.uint8, "r+", shape=(self.size,))
        return torch.from_numpy(array).view(dtype).view(self.shape)

    def write(self, rows: slice | Tensor, values: Tensor) -> None:
        if not isinstance(rows, slice):
            self.tensor[rows] = values
            return
        self.settle()
        start = rows.start * self.shape[1] * self.tensor.element_size()
        content = values.contiguous().to(self.tensor.dtype)
        self._pending = self.scratch.writer.submit(_write, self._handle, content, start)

    def settle(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            with explain_full_disk(self.scratch.folder):
                pending.result()

    def _free(self) -> None:
        if self._pending is not None:
            with suppress(Exception):
                self._pending.result()
            self._pending = None
        os.close(self._handle)
        self.scratch.filed -= self.size
        del self.tensor
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path.with_suffix(_ENDINGS[1]).unlink(missing_ok=True)


def _write(handle: int, values: Tensor, place: int) -> None:
    content = memoryview(values.detach().view(-1).view(torch.uint8).numpy().data)
    while content:
        done = os.pwrite(handle, content, place)
        content, place = content[done:], place + done


class Scratch:
    """Makes matrices: in memory up to a limit, beyond it in files. A context manager that frees all of them on exit.

    Args:
        limit: bytes of matrices to hold in memory. None: no limit.
        folder: folder of the files. None: the system's temporary folder.
        near: bytes up to which a matrix may be read in random order, because the page cache holds that much. Larger
            matrices are made in slices of columns. None: no limit.

    Attributes:
        held, filed: bytes in memory and in files now.
    """

    def __init__(
        self, limit: int | None = None, folder: Path | None = None, *, near: int | None = None
    ) -> None:
        self.limit, self.near = limit, near
        self.folder = Path(tempfile.gettempdir()) if folder is None else folder
        self.held = self.filed = self.most_filed = 0
        self._matrices: list[Matrix] = []
        self._writer: ThreadPoolExecutor | None = None

    @property
    def writer(self) -> ThreadPoolExecutor:
        """The thread that writes files, started on first use."""
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "shoal-scratch")
        return self._writer

    def fits(self, size: int) -> bool:
        """Whether `size` more bytes fit in memory."""
        return self.limit is None or self.held + size <= self.limit

    def claim(self, size: int) -> bool:
        """Reserve `size` bytes of memory for something else; returns whether they fit."""
        fits = self.fits(size)
        self.held += size if fits else 0
        return fits

    def make(
        self, num_rows: int, width: int, dtype: torch.dtype = torch.float32, name: str | None = None
    ) -> Matrix:
        """A matrix to fill. `find` finds it by `name` in a later process, if scratch is kept (KeptScratch)."""
        size = num_rows * width * dtype.itemsize
        if size == 0 or self.fits(size):
            matrix = Matrix(self, num_rows, width, dtype)
        else:
            matrix = self._make_file(num_rows, width, dtype, name)
        self.most_filed = max(self.most_filed, self.filed)
        self._matrices = [one for one in self._matrices if not one.is_closed] + [matrix]
        return matrix

    def _make_file(self, num_rows: int, width: int, dtype: torch.dtype, name: str | None) -> FileMatrix:
        return FileMatrix(self, num_rows, width, dtype)

    def find(self, num_rows: int, width: int, dtype: torch.dtype, name: str) -> Matrix | None:
        """The finished matrix of that name, if an earlier process left it."""
        return None

    def keep(self, matrix: Matrix) -> None:
        """Mark a named matrix as finished."""
        matrix.settle()

    def close(self) -> None:
        """Free all matrices and remove their files."""
        for matrix in self._matrices:
            matrix.close()
        self._matrices.clear()
        if self._writer is not None:
            self._writer.shutdown()
            self._writer = None

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class KeptScratch(Scratch):
    """Scratch whose finished matrices survive a killed process, for the next process that does the same work.

    Args:
        folder: folder of the files, made with the first of them and removed when all work is done.
        stamp: what determines the matrices' content (weights, graph). Files with another stamp are removed.

    If another process uses the folder, or it is not writable, nothing is kept: files have no name and go beside the
    folder, or to the system's temporary folder.
    """

    def __init__(
        self, limit: int | None, folder: Path, stamp: dict[str, Any], *, near: int | None = None
    ) -> None:
        super().__init__(limit, folder, near=near)
        self._stamp = stamp
        self._lock: int | None = None  # held while the folder is this process's
        self._is_claimed = folder.is_dir()  # or claiming it failed
        if self._is_claimed:
            self._claim()

    def _claim(self) -> None:
        """Make the folder this process's own, unless another one has it or it cannot be written."""
        folder = self.folder
        try:
            self._lock = _lock_folder(folder)
            if self._lock is not None:
                self._begin()
        except OSError as error:
            self._release()
            if error.errno not in FORBIDDEN:
                with explain_full_disk(folder):
                    raise
        if self._lock is None:
            near = folder.parent
            self.folder = near if os.access(near, os.W_OK) else Path(tempfile.gettempdir())

    def _begin(self) -> None:
        try:
            same = json.loads((self.folder / STAMP).read_text()) == self._stamp
        except (OSError, ValueError):
            same = False
        if not same:
            self._clear()
            with replace_file(self.folder / STAMP) as file:
                file.write_text(json.dumps(self._stamp, indent=1) + "\n")

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _make_file(self, num_rows: int, width: int, dtype: torch.dtype, name: str | None) -> FileMatrix:
        if not self._is_claimed:
            self._is_claimed = True
            self._claim()
        path = None if name is None or self._lock is None else self.folder / f"{name}{_ENDINGS[0]}"
        return FileMatrix(self, num_rows, width, dtype, path)

    def find(self, num_rows: int, width: int, dtype: torch.dtype, name: str) -> Matrix | None:
        path = self.folder / f"{name}{_ENDINGS[0]}"
        size = num_rows * width * dtype.itemsize
        if self._lock is None or not path.with_suffix(_ENDINGS[1]).is_file():
            return None
        if not path.is_file() or path.stat().st_size != size:
            return None
        matrix = FileMatrix(self, num_rows, width, dtype, path)
        self._matrices.append(matrix)
        return matrix

    def keep(self, matrix: Matrix) -> None:
        matrix.settle()
        if isinstance(matrix, FileMatrix) and matrix.path is not None:
            with explain_full_disk(self.folder):
                flush(matrix.path)
                with replace_file(matrix.path.with_suffix(_ENDINGS[1])):
                    pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt) or (error is not None and not isinstance(error, ShoalError)):
            for matrix in self._matrices:  # the next process continues from the finished ones
                if isinstance(matrix, FileMatrix) and matrix.path is not None:
                    done = matrix.path.with_suffix(_ENDINGS[1]).is_file()
                    matrix.path = None if done else matrix.path
        super().__exit__(kind, error, trace)
        if error is None and self._lock is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        self._release()  # last: the next holder of the lock finds all files or none

    def _clear(self) -> None:
        for path in self.folder.iterdir():
            if path.suffix in _ENDINGS or path.suffix == ".partial":
                path.unlink(missing_ok=True)


def _lock_folder(folder: Path) -> int | None:
    """The handle of a folder's lock, the folder made if need be; None where another process holds it."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:  # its last owner has just removed it
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(folder / _LOCK)):
                return handle
        os.close(handle)


def split_columns(width: int, most: int) -> Iterable[tuple[int, int]]:
    """(start, end) of slices of at most `most` columns, as even as can be."""
    count = -(-width // max(most, 1))
    for number in range(count):
        yield number * width // count, (number + 1) * width // count
