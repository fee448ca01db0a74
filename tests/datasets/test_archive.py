"""Unpacking: sound archives come out whole, unsafe or damaged ones leave nothing behind."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.datasets.archive import ArchiveError, is_archive, unpack_archive
from shoal.errors import ShoalError

FILES = {"g/raw/edge.csv": b"0,1\n1,2\n" * 1000, "g/readme": b"hello"}


def make_zip(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(name, content)
    return path


def make_tar(
    path: Path, files: dict[str, bytes], change: Callable[[tarfile.TarInfo], None] | None = None
) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            if change:
                change(member)
            packed.addfile(member, io.BytesIO(content if member.isreg() else b""))
    return path


def found(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def refuse(archive: Path, tmp_path: Path, match: str, **settings: int) -> None:
    """The archive is refused, and neither the folder nor a scratch folder stays."""
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ArchiveError, match=match):
        unpack_archive(archive, tmp_path / "out", **settings)
    assert set(tmp_path.rglob("*")) == before


def test_zip_and_tar_come_out_whole(tmp_path: Path) -> None:
    assert found(unpack_archive(make_zip(tmp_path / "a.zip", FILES), tmp_path / "zip")) == FILES
    assert found(unpack_archive(make_tar(tmp_path / "a.tar.gz", FILES), tmp_path / "tar")) == FILES
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_tar_of_a_folder_from_inside_it_comes_out_whole(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    for name, content in FILES.items():
        (inside / name).parent.mkdir(parents=True, exist_ok=True)
        (inside / name).write_bytes(content)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed:
        packed.add(inside, ".")
        assert packed.getnames()[0] == "."
    assert found(unpack_archive(tmp_path / "a.tar.gz", tmp_path / "out")) == FILES


@pytest.mark.parametrize("name", [".", "/"])
def test_a_file_without_a_name_is_refused(tmp_path: Path, name: str) -> None:
    refuse(make_tar(tmp_path / "a.tar.gz", {name: b"x"}), tmp_path, "is not a file name")


def test_single_gz_becomes_the_file_without_its_ending(tmp_path: Path) -> None:
    (tmp_path / "edges.txt.gz").write_bytes(gzip.compress(b"0 1\n"))
    assert found(unpack_archive(tmp_path / "edges.txt.gz", tmp_path / "out")) == {"edges.txt": b"0 1\n"}


def test_folder_entries_are_made(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.mkdir("empty")
        packed.writestr("kept", b"1")
    assert (unpack_archive(tmp_path / "a.zip", tmp_path / "out") / "empty").is_dir()


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/tmp/evil", "..\\evil", "C:/evil"])
def test_paths_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    refuse(make_zip(tmp_path / "a.zip", {name: b"x"}), tmp_path, "points outside")
    refuse(make_tar(tmp_path / "a.tar.gz", {name: b"x"}), tmp_path, "points outside")


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_in_a_tar_are_refused(tmp_path: Path, kind: bytes) -> None:
    def change(member: tarfile.TarInfo) -> None:
        member.type, member.linkname, member.size = kind, "/etc/passwd", 0

    refuse(make_tar(tmp_path / "a.tar.gz", {"link": b""}, change), tmp_path, "is a link or a device")


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.writestr(link, "/etc/passwd")
    refuse(tmp_path / "a.zip", tmp_path, "is a link or a device")


def test_bomb_is_refused_by_its_ratio(tmp_path: Path) -> None:
    zeros = {"zeros": bytes(20_000_000)}
    refuse(make_zip(tmp_path / "a.zip", zeros), tmp_path, "unpacks to 20,000,000 bytes or more")
    refuse(make_tar(tmp_path / "a.tar.gz", zeros), tmp_path, "unpacks to 20,000,000 bytes or more")
    (tmp_path / "zeros.gz").write_bytes(gzip.compress(bytes(20_000_000)))
    refuse(tmp_path / "zeros.gz", tmp_path, "refusing to unpack")


def test_given_limit_is_kept(tmp_path: Path) -> None:
    refuse(make_zip(tmp_path / "a.zip", FILES), tmp_path, "at most 100 are allowed", limit=100)
    refuse(make_tar(tmp_path / "a.tar.gz", FILES), tmp_path, "at most 100 are allowed", limit=100)


def test_zip_whose_listing_understates_a_size_is_refused(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"big": bytes(range(256)) * 400})
    true, lie = (102_400).to_bytes(4, "little"), (1000).to_bytes(4, "little")
    archive.write_bytes(archive.read_bytes().replace(true, lie))
    refuse(archive, tmp_path, "damaged or incomplete")


@pytest.mark.parametrize("make", [make_zip, make_tar])
@pytest.mark.parametrize("keep", [0.3, 0.7, 0.99])
def test_truncated_archives_are_refused(tmp_path: Path, make: Callable[..., Path], keep: float) -> None:
    name = "a.zip" if make is make_zip else "a.tar.gz"
    archive = make(tmp_path / name, {"random": os.urandom(50_000)})
    archive.write_bytes(archive.read_bytes()[: int(archive.stat().st_size * keep)])
    refuse(archive, tmp_path, "damaged or incomplete")


def test_flipped_byte_is_noticed(tmp_path: Path) -> None:
    for archive in (
        make_zip(tmp_path / "a.zip", {"r": os.urandom(9000)}),
        make_tar(tmp_path / "a.tar.gz", {"r": os.urandom(9000)}),
    ):
        content = bytearray(archive.read_bytes())
        content[len(content) // 2] ^= 0x55
        archive.write_bytes(content)
        refuse(archive, tmp_path, "damaged or incomplete")


def test_same_name_twice_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed:
        for _ in range(2):
            packed.addfile(tarfile.TarInfo("twice"), io.BytesIO())
    refuse(tmp_path / "a.tar.gz", tmp_path, "appears twice")


@pytest.mark.parametrize("make", [make_zip, make_tar])
def test_a_file_that_is_a_folder_too_is_refused(tmp_path: Path, make: Callable[..., Path]) -> None:
    archive = make(tmp_path / ("a.zip" if make is make_zip else "a.tar.gz"), {"a": b"1", "a/b": b"2"})
    refuse(archive, tmp_path, "damaged")


def test_empty_and_foreign_files_are_refused(tmp_path: Path) -> None:
    refuse(make_zip(tmp_path / "empty.zip", {}), tmp_path, "holds no file")
    (tmp_path / "page.zip").write_bytes(b"<html>not a zip</html>")
    refuse(tmp_path / "page.zip", tmp_path, "damaged or incomplete")
    (tmp_path / "a.rar").write_bytes(b"x")
    assert not is_archive("a.rar")
    with pytest.raises(ShoalError, match="not an archive"):
        unpack_archive(tmp_path / "a.rar", tmp_path / "out")


def test_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ShoalError, match="exists already"):
        unpack_archive(make_zip(tmp_path / "a.zip", FILES), tmp_path / "out")
