"""From a registered name to a stored graph: download, unpack, import, check, store."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from shoal.datasets.archive import ArchiveError, is_archive, unpack_archive
from shoal.datasets.dataset import Dataset, RemoteFile
from shoal.datasets.download import download_file
from shoal.datasets.places import download_folder, graph_folder, resolve_address
from shoal.errors import ShoalError, explain_full_disk
from shoal.files import replace_file
from shoal.home import home_folder

if TYPE_CHECKING:
    from shoal.graph import Graph


class Watcher(Protocol):
    """Receives the progress of a fetch."""

    def on_bytes(self, file: str, done: int, total: int | None) -> None:
        """`done` of `total` bytes of `file` are here."""

    def on_step(self, sentence: str) -> None:
        """Something other than a download begins."""

    def on_count(self, what: str, done: int, total: int) -> None:
        """`done` of `total` nodes or edges are converted."""


class Silence:
    """A Watcher that ignores everything."""

    def on_bytes(self, file: str, done: int, total: int | None) -> None:
        """Ignore arrived bytes."""

    def on_step(self, sentence: str) -> None:
        """Ignore a step."""

    def on_count(self, what: str, done: int, total: int) -> None:
        """Ignore a count."""


def fetch_dataset(
    dataset: Dataset,
    folder: str | Path | None = None,
    *,
    overwrite: bool = False,
    keep: bool = False,
    watcher: Watcher | None = None,
    **download_settings: Any,
) -> Path:
    """Fetch `dataset` and store it in `folder` (by default where `shoal.load` finds it by name).

    The publisher's files are removed once the graph is stored, unless `keep`. An interrupted call leaves them, and
    the next call continues from there.
    """
    watcher = watcher or Silence()
    target = Path(folder) if folder is not None else graph_folder(dataset.name)
    if dataset.by_hand:
        raise ShoalError(
            f"{dataset.name} has no direct address: fetch its folder by hand from {dataset.page}, then run `{dataset.import_line}`"
        )
    if target.exists() and not overwrite:
        raise ShoalError(
            f"{target} exists already: choose another name, or allow overwriting it (overwrite=True)"
        )
    downloads = download_folder(dataset.name)
    with _alone_in(downloads):
        paths = [_download(file, downloads, watcher, download_settings) for file in dataset.files]
        pins = [_check_digest(file, path, watcher) for file, path in zip(dataset.files, paths)]
        unpacked = downloads / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)  # of a call that was killed
        from shoal.workspace import open_workspace

        try:
            source = _choose_source(_unpack(paths, unpacked, watcher), dataset.folder)
            with open_workspace(target, watcher.on_count):
                graph = _import(dataset, source, watcher)
                _check_sizes(dataset, graph)
                watcher.on_step(f"storing {target}")
                _store(graph, target, overwrite)
                for pin, digest in pins:
                    _write_pin(pin, digest)
        finally:
            shutil.rmtree(unpacked, ignore_errors=True)
        if not keep:
            shutil.rmtree(downloads, ignore_errors=True)
    return target


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Lock `folder` against a second fetch of the same dataset while the block runs."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ShoalError(f"{folder} is in use by another process: wait for it to end") from None
        yield
    finally:
        os.close(handle)


def _store(graph: Graph, target: Path, overwrite: bool) -> None:
    from shoal.store import save_graph

    with explain_full_disk(target):
        save_graph(graph, target, overwrite=overwrite)


def _download(file: RemoteFile, folder: Path, watcher: Watcher, settings: dict[str, Any]) -> Path:
    path = folder / file.name
    if path.is_file() and file.size in (None, path.stat().st_size):
        return path  # fetched whole by an earlier call
    return download_file(
        resolve_address(file.url),
        path,
        size=file.size,
        progress=lambda done, total: watcher.on_bytes(file.name, done, total),
        **settings,
    )


def _check_digest(file: RemoteFile, path: Path, watcher: Watcher) -> tuple[Path, str]:
    """Raise if a file's SHA-256 differs from the registered one, or from that of the first download of its address.

    Returns the path of the record of the latter, and the file's SHA-256.
    """
    from shoal.array_files import hash_file

    watcher.on_step(f"checking {path.name}")
    pin = home_folder() / "pins" / hashlib.sha256(file.url.encode()).hexdigest()
    kept = pin.read_text().strip() if pin.is_file() else None
    found, expected = hash_file(path), file.sha256 or kept
    if expected is not None and found != expected:
        path.unlink()
        whose = "the registered one" if file.sha256 else f"that of the first download ({pin})"
        raise ShoalError(
            f"{file.url} came with SHA-256 {found[:16]}…, expected {expected[:16]}…, {whose}: the file was changed at the server or in transit; "
            + (
                "ask the publisher"
                if file.sha256
                else "remove that file if the publisher confirms the change"
            )
        )
    return pin, found


def _write_pin(pin: Path, digest: str) -> None:
    pin.parent.mkdir(parents=True, exist_ok=True)
    with replace_file(pin) as scratch:
        scratch.write_text(f"{digest}\n")


def _unpack(paths: list[Path], folder: Path, watcher: Watcher) -> Path:
    """Unpack the archives among `paths`; without archives, the folder of `paths` is the source."""
    archives = [path for path in paths if is_archive(path)]
    for archive in archives:
        watcher.on_step(f"unpacking {archive.name}")
        # One archive is the source itself; several become folders side by side.
        place = folder if len(archives) == 1 else folder / archive.name.split(".")[0]
        try:
            with explain_full_disk(place):
                unpack_archive(archive, place)
        except ArchiveError as error:
            archive.unlink()
            raise ShoalError(f"{error} (it was removed: the same command fetches it again)") from None
    return folder if archives else paths[0].parent


def _choose_source(folder: Path, inner: str) -> Path:
    """The part of the unpacked files to import; a single wrapping folder is skipped."""
    source = folder / inner
    if source.exists() and inner != ".":
        return source
    inside = [path for path in folder.iterdir() if path.name not in ("__MACOSX", ".DS_Store")]
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _import(dataset: Dataset, source: Path, watcher: Watcher) -> Graph:
    from shoal.datasets.importers import import_graph

    return import_graph(
        source,
        format=dataset.format,
        directed=dataset.directed,
        name=dataset.name,
        progress=watcher.on_step,
        **dataset.options,
    )


def _check_sizes(dataset: Dataset, graph: Graph) -> None:
    """Raise if the graph has other sizes than published. Edges are not compared: publications count them differently."""
    for what in ("num_nodes", "num_features", "num_classes"):
        found, expected = getattr(graph, what), getattr(dataset, what)
        if found != expected:
            raise ShoalError(
                f"{dataset.name} came with {found:,} {what[4:]}, expected {expected:,}: the publisher changed the files; import them by hand with `{dataset.import_line}`"
            )
