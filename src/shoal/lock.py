"""One writer at a time: a lock file beside the target, released when its process ends."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from shoal.errors import FORBIDDEN, ShoalError, explain_full_disk
from shoal.files import shorten_name

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)  # errors of file systems without locks
_UNNAMED = "[a-z0-9_]{8}"  # the random part of hidden names
_held: dict[Path, int] = {}  # nesting depth of each lock that this process holds


@contextmanager
def writing(target: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the write lock of `target`, a folder or file. If another process holds it: wait, or raise and name that process.

    Leftovers of killed writers are removed first. The lock is an flock on `.NAME.lock`, which the system releases when the
    process ends. On file systems without locks, and in folders that are not writable, nothing is locked.
    """
    place = Path(os.path.abspath(target))
    if _held.get(place):
        _held[place] += 1
        try:
            yield
        finally:
            _held[place] -= 1
        return
    path = place.with_name(f".{shorten_name(place.name)}.lock")
    handle = _take(path, target, wait=wait)
    _held[place] = 1
    try:
        if handle is not None:
            clear_leftovers(place)
        yield
    finally:
        del _held[place]
        if handle is not None:
            path.unlink(missing_ok=True)  # before the release: a waiting process then finds it gone
            os.close(handle)


@contextmanager
def building(target: Path, *, wait: bool = False) -> Iterator[Path]:
    """Yield a hidden folder beside `target` to build it in, with the write lock held; it is removed when the block ends."""
    with writing(target, wait=wait):
        with explain_full_disk(target):  # names what was asked for, not the hidden folder
            target.parent.mkdir(parents=True, exist_ok=True)
            prefix = f".{shorten_name(os.path.basename(os.path.abspath(target)))}."
            scratch = Path(tempfile.mkdtemp(prefix=prefix, suffix=".partial", dir=target.parent))
        try:
            yield scratch
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _take(path: Path, target: Path, *, wait: bool) -> int | None:
    """The locked file, which names this process; None where there are no locks."""
    while True:
        with explain_full_disk(target):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            except OSError as error:
                if error.errno in FORBIDDEN:
                    return None
                raise
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_there(path, handle):  # its holder has just removed it
                os.close(handle)
                continue
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
            return handle
        except BlockingIOError:
            who = os.pread(handle, 300, 0).decode(errors="replace").strip() or "another process"
            os.close(handle)
            raise ShoalError(
                f"{target} is being written by {who}: wait until it has ended, or choose another name"
            ) from None
        except OSError as error:
            os.close(handle)
            if error.errno in _NO_LOCKS:
                path.unlink(missing_ok=True)
                return None
            raise


def _is_there(path: Path, handle: int) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(handle))
    except FileNotFoundError:
        return False


def clear_leftovers(place: Path) -> None:
    """Remove the hidden files and folders that killed writers of `place` left beside it. The caller holds its lock.

    If a writer was killed between the two renames that replace a folder, the old folder is restored.
    """
    with suppress(OSError):
        for old in _list_leftovers(place, "old"):
            if place.exists():
                shutil.rmtree(old, ignore_errors=True)
            else:
                os.rename(old, place)
        for left in _list_leftovers(place, "partial"):
            _remove(left)


def _list_leftovers(place: Path, ending: str) -> list[Path]:
    pattern = re.compile(rf"\.{re.escape(shorten_name(place.name))}\.{_UNNAMED}\.{ending}")
    return [place.with_name(name) for name in os.listdir(place.parent) if pattern.fullmatch(name)]


def clear_folder(folder: Path) -> None:
    """Remove the hidden files that killed writers left inside a folder that nobody else writes in."""
    for path in folder.glob(".*.partial"):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
