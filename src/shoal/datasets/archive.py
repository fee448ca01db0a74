"""Safe unpacking of zip, tar(.gz) and gz: no path escapes, no links, bounded size, all or nothing."""

from __future__ import annotations

import errno
import gzip
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Generator
from contextlib import closing
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from typing import IO, TypeAlias

from shoal.errors import ShoalError
from shoal.lock import building

SUFFIXES = (".zip", ".tar.gz", ".tgz", ".tar", ".gz")
MAX_RATIO = 200  # unpacked bytes per packed byte; text and CSR arrays stay far below
MAX_MEMBERS = 100_000
CHUNK = 1 << 20
_LONGEST_END = (1 << 16) + 22  # bytes of a zip's end, with the longest comment
DAMAGE = (
    EOFError,
    zlib.error,
    gzip.BadGzipFile,
    tarfile.TarError,
    zipfile.BadZipFile,
    NotImplementedError,
    LZMAError,
    struct.error,
    ValueError,
    OverflowError,
)


Members: TypeAlias = Generator[Path, None, None]


class ArchiveError(ShoalError):
    """The archive is damaged or unsafe: fetching it again is the only remedy."""


def is_archive(path: str | Path) -> bool:
    """Whether a file's name is that of an archive."""
    return Path(path).name.lower().endswith(SUFFIXES)


def unpack_archive(archive: str | Path, folder: str | Path, *, limit: int | None = None) -> Path:
    """Unpack `archive` into the new folder `folder`; the folder appears only if the whole archive is valid.

    Args:
        limit: bytes the unpacked files may have together; by default 200 times the archive's size.
    """
    archive, folder = Path(archive), Path(folder)
    if folder.exists():
        raise ShoalError(f"{folder} exists already: choose another name")
    if not is_archive(archive):
        raise ShoalError(f"{archive} is not an archive: expected {', '.join(SUFFIXES)}")
    limit = MAX_RATIO * max(archive.stat().st_size, 4096) if limit is None else limit
    with building(folder) as scratch:
        fresh = scratch / "new"
        fresh.mkdir()
        try:
            _unpack_into(archive, fresh, limit)
        except (*DAMAGE, OSError) as error:
            if isinstance(error, OSError) and not is_damage(error):
                raise
            raise ArchiveError(
                f"{archive} is damaged or incomplete ({str(error) or type(error).__name__}): fetch it again"
            ) from None
        os.rename(fresh, folder)
    return folder


def is_damage(error: OSError) -> bool:
    """Whether an error while unpacking is due to the archive, such as a damaged stream, and not to the disk."""
    of_archives = (None, errno.EINVAL, errno.ENAMETOOLONG, errno.EEXIST, errno.ENOTDIR)
    return isinstance(error, gzip.BadGzipFile) or error.errno in of_archives


def _unpack_into(archive: Path, folder: Path, limit: int) -> None:
    name = archive.name.lower()
    if name.endswith(".zip"):
        writer = _unpack_zip
    elif name.endswith((".tar.gz", ".tgz", ".tar")):
        writer = _unpack_tar
    else:
        writer = _unpack_gzip
    room = _Room(archive, limit)
    with closing(writer(archive, folder, room)) as members:
        if sum(1 for _ in members) == 0:
            raise ArchiveError(f"{archive} holds no file: fetch it again")


def _unpack_zip(archive: Path, folder: Path, room: _Room) -> Members:
    with zipfile.ZipFile(archive) as packed:
        members = packed.infolist()
        check_directory(archive, len(members))
        room.check(sum(member.file_size for member in members), len(members))
        for member in members:
            path = _safe_path(archive, member.orig_filename)
            kind = stat.S_IFMT(member.external_attr >> 16)
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _unsafe(archive, member.filename, "is a link or a device")
            if member.flag_bits & 0x1:
                raise ArchiveError(f"{archive}: {member.filename} is encrypted: unpack the archive by hand")
            if member.is_dir():
                (folder / path).mkdir(parents=True, exist_ok=True)
                continue
            with packed.open(member) as source:
                yield _write(archive, source, folder / path, room, member.file_size)


def check_directory(archive: Path, num_members: int) -> None:
    """Raise if a zip's directory lists another number of members than its end record: it is damaged."""
    with open(archive, "rb") as file:
        file.seek(max(archive.stat().st_size - _LONGEST_END, 0))
        end = file.read()
    at = end.rfind(b"PK\x05\x06")
    said = int.from_bytes(end[at + 10 : at + 12], "little") if at >= 0 else 0
    if said not in (num_members, 0xFFFF):  # 0xFFFF: the count is in the zip64 record
        raise zipfile.BadZipFile(f"{num_members:,} of {said:,} members are listed")


def _unpack_tar(archive: Path, folder: Path, room: _Room) -> Members:
    plain = archive.name.lower().endswith(".tar")
    with open(archive, "rb") if plain else gzip.open(archive, "rb") as stream:
        with tarfile.open(fileobj=stream, mode="r|") as packed:
            declared = 0
            for number, member in enumerate(packed, 1):
                declared += member.size
                room.check(declared, number)
                if member.isdir() and PurePosixPath(member.name) == PurePosixPath("."):
                    continue  # the packed folder itself, which exists
                path = folder / _safe_path(archive, member.name)
                if not (member.isdir() or member.isreg()) or member.issparse():
                    raise _unsafe(archive, member.name, "is a link or a device")
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif source := packed.extractfile(member):
                    yield _write(archive, source, path, room, member.size)
        while rest := stream.read(CHUNK):  # the checksum of a .gz comes after its last byte
            room.take(len(rest))


def _unpack_gzip(archive: Path, folder: Path, room: _Room) -> Members:
    with gzip.open(archive, "rb") as source:
        yield _write(archive, source, folder / archive.name[:-3], room, None)


class _Room:
    """Limits the bytes and files that an archive may unpack to; raises before the disk is full."""

    def __init__(self, archive: Path, limit: int) -> None:
        self.archive, self.limit, self.taken = archive, limit, 0

    def check(self, declared: int, num_members: int) -> None:
        if num_members > MAX_MEMBERS:
            raise ArchiveError(f"{self.archive} holds more than {MAX_MEMBERS:,} files: refusing to unpack it")
        if declared > self.limit:
            raise self._refuse(declared)

    def take(self, size: int) -> None:
        self.taken += size
        if self.taken > self.limit:
            raise self._refuse(self.taken)

    def _refuse(self, size: int) -> ShoalError:
        return ArchiveError(
            f"{self.archive} unpacks to {size:,} bytes or more but at most {self.limit:,} are allowed: refusing to unpack it"
        )


def _write(
    archive: Path, source: IO[bytes] | gzip.GzipFile, path: Path, room: _Room, declared: int | None
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    try:
        with open(path, "xb") as target:
            while chunk := source.read(CHUNK):
                room.take(len(chunk))
                written += len(chunk)
                if declared is not None and written > declared:
                    raise _unsafe(archive, path.name, f"is longer than the {declared:,} bytes it declares")
                target.write(chunk)
    except FileExistsError:
        raise _unsafe(archive, path.name, "appears twice") from None
    if declared is not None and written < declared:
        raise EOFError(f"{path.name} has {written:,} of {declared:,} bytes")
    return path


def _safe_path(archive: Path, name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not path.name:
        raise _unsafe(archive, name, "is not a file name")
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or ":" in name.split("/")[0]:
        raise _unsafe(archive, name, "points outside the folder it is unpacked to")
    return path


def _unsafe(archive: Path, member: str, why: str) -> ArchiveError:
    return ArchiveError(f"{archive}: {member!r} {why}: refusing to unpack the archive")
