"""Records of verified folders: files are hashed once per machine, then recognised by inode, size and times.

Records are in Shoal's home, never beside the files: whoever can change the files must not be able to change the record.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.array_files import hash_file
from shoal.errors import ShoalError
from shoal.files import replace_file
from shoal.home import home_folder

LEAST_KEPT = 1 << 22  # bytes of a folder below which hashing is too fast to need a record
SEAL = "seal"
_FINE, _COARSE = 50_000_000, 2_000_000_000  # ns within which two changes can have the same timestamp


def seal(about: Mapping[str, Any]) -> str:
    """The SHA-256 of a folder's description, independent of the order of its keys."""
    kept = {key: value for key, value in about.items() if key != SEAL}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


def check_seal(path: Path, about: Mapping[str, Any], remedy: str) -> None:
    """Raise if a description does not match its seal; one without a seal is accepted."""
    if about.get(SEAL, found := seal(about)) != found:
        raise ShoalError(f"{path} has changed since it was written: its seal does not match; {remedy}")


class Verified:
    """The verification record of a stored folder.

    A file is hashed unless the record has its present inode, size and times. `sound` is whether the arrays passed
    validation; since their digests are part of the description, that stays true.

    Args:
        about: the folder's description, with the SHA-256 of every file.
        digests: SHA-256 by file.
    """

    def __init__(self, about: Mapping[str, Any], folder: Path, digests: Mapping[str, str]) -> None:
        self.folder = folder
        self.digests = digests
        self.sound = False
        place = {"about": seal(about), "host": socket.gethostname(), "folder": str(folder.resolve())}
        self._record = home_folder() / "verified" / f"{seal(place)}.json"
        self._stamps = {name: _stamp(folder / name) for name in digests}
        self._known: dict[str, list[int]] = {}
        self._is_kept = sum(stamp[1] for stamp in self._stamps.values()) >= LEAST_KEPT
        if self._is_kept:
            self._read()

    def check(self, remedy: str, *, everything: bool = False) -> None:
        """Hash the files that are not in the record, or `everything`; raises ShoalError naming a changed file."""
        if everything:
            self._known, self.sound = {}, False
        for name, stamp in self._stamps.items():
            if self._known.get(name) != stamp and hash_file(self.folder / name) != self.digests[name]:
                raise ShoalError(
                    f"{self.folder / name} has changed since it was written: its checksum does not match; {remedy}"
                )

    def remember(self) -> None:
        """Record that the files were hashed and the arrays validated. If the home is not writable, nothing is recorded."""
        if not self._is_kept or (self.sound and self._known == self._stamps):
            return
        now = time.time_ns()
        files = {name: stamp for name, stamp in self._stamps.items() if _is_settled(stamp, now)}
        with contextlib.suppress(OSError):
            self._record.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(self._record) as scratch:
                scratch.write_text(json.dumps({"sound": True, "files": files}))
        self.sound = True

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
            record = json.loads(self._record.read_text())
            self._known, self.sound = dict(record.get("files", {})), record.get("sound") is True


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _is_settled(stamp: list[int], now: int) -> bool:
    """Whether a later change would alter the file's times, which some file systems count in seconds."""
    tick = _FINE if stamp[3] % 1_000_000_000 else _COARSE
    return now - stamp[3] > tick
