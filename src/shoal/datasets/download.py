"""Streaming download over http(s): resumes, retries, checks sizes, and renames only a complete file."""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeAlias
from urllib.parse import urlsplit

from shoal import __version__
from shoal.errors import ShoalError, is_full_disk
from shoal.files import parse_json

Progress: TypeAlias = Callable[
    [int, int | None], None
]  # bytes so far, bytes in all (None: the server does not say)

CHUNK = 1 << 18
WORTHWHILE = 1 << 18  # bytes an attempt must gain to count as progress
LONGEST_PAUSE = 30.0
RETRYABLE = {408, 425, 429, 500, 502, 503, 504}


class DownloadInterrupted(KeyboardInterrupt):
    """Ctrl-C during a download; its message says how to continue."""


class _Broken(Exception):
    """The connection failed in a way that a retry may fix."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, but never from https to plain http, where content could be changed unnoticed."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(req.full_url).scheme == "https" and urlsplit(newurl).scheme != "https":
            raise ShoalError(f"{req.full_url} redirects to the unprotected {newurl}: refusing to follow it")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def download_file(
    url: str,
    target: str | Path,
    *,
    size: int | None = None,
    progress: Progress | None = None,
    retries: int = 4,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """Fetch `url` to `target`. A download that was interrupted earlier is resumed from `target.partial`.

    Args:
        size: bytes the file must have, if known.
        retries: attempts in a row that may fail without progress.
        timeout: seconds that connecting, or one read, may take.
        pause: seconds before the first retry; doubles up to 30.
    """
    target = Path(target)
    if urlsplit(url).scheme not in ("http", "https"):
        raise ShoalError(f"{url} is not an http or https address: only those are fetched")
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    with open(partial, "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ShoalError(f"{partial} is being written by another process: wait for it to end") from None
        try:
            _fetch_with_retries(url, file, _Record(partial), size, progress, retries, timeout, pause)
            os.fsync(file.fileno())
        except KeyboardInterrupt:
            kept = partial.stat().st_size
            raise DownloadInterrupted(
                f"interrupted: {kept:,} bytes are kept in {partial}, the same command resumes there"
            ) from None
        except OSError as error:
            if not is_full_disk(error):
                raise
            raise ShoalError(
                f"no space left for {partial}: free some, the same command resumes where it stopped"
            ) from None
        os.rename(partial, target)
        _Record(partial).forget()
    return target


class _Record:
    """What the server said about the file when the partial download began (`NAME.partial.json`)."""

    def __init__(self, partial: Path) -> None:
        self.partial = partial
        self.path = partial.with_name(partial.name + ".json")

    def read(self, url: str) -> dict[str, Any]:
        try:
            record = parse_json(self.path.read_bytes())
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) and record.get("url") == url else {}

    def write(self, url: str, validator: str | None, total: int | None) -> None:
        self.path.write_text(json.dumps({"url": url, "validator": validator, "total": total}) + "\n")

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)


def _fetch_with_retries(url: str, file: IO[bytes], record: _Record, size: int | None, progress: Progress | None, retries: int, timeout: float, pause: float) -> None:  # fmt: skip
    furthest, failures = os.fstat(file.fileno()).st_size, 0
    while True:
        try:
            _fetch_once(url, file, record, size, progress, timeout)
            return
        except (_Broken, OSError, http.client.HTTPException) as error:
            if isinstance(error, OSError) and is_full_disk(error):
                raise
            here = os.fstat(file.fileno()).st_size
            failures = 0 if here >= furthest + WORTHWHILE else failures + 1
            furthest = max(furthest, here)
            if failures > retries:
                raise ShoalError(
                    f"{url} could not be fetched ({_reason(error)}): {here:,} bytes are kept in {record.partial}, the same command resumes there"
                ) from None
        time.sleep(min(pause * 2 ** max(failures - 1, 0), LONGEST_PAUSE))


def _fetch_once(
    url: str, file: IO[bytes], record: _Record, size: int | None, progress: Progress | None, timeout: float
) -> None:
    """One request for the missing bytes; returns when the file is complete."""
    known = record.read(url)
    validator, total = known.get("validator"), known.get("total")
    start = os.fstat(file.fileno()).st_size
    if start and validator is None and total is None:
        start = _restart(file)
    headers = {"User-Agent": f"shoal/{__version__}", "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
        if validator:
            headers["If-Range"] = validator
    try:
        response = _opener().open(urllib.request.Request(url, headers=headers), timeout=timeout)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and _total_of(error.headers) == start:
                return  # every byte is here already: only the rename was missing
            if error.code == 416:
                _restart(file)
                raise _Broken("the file changed at the server") from None
            if error.code in RETRYABLE:
                raise _Broken(f"the server answered {error.code} {error.reason}") from None
            raise ShoalError(
                f"{url} answered {error.code} {error.reason}: the address has moved or is closed"
            ) from None
    with response:
        if response.headers.get_content_type() == "text/html":
            raise ShoalError(f"{url} answered with a web page instead of the file: fetch it by hand")
        if response.status == 206:
            whole = _total_of(response.headers)
            if _start_of(response.headers) != start or (total is not None and whole not in (None, total)):
                _restart(file)
                raise _Broken("the server sent another part than the one asked for")
        else:
            start = _restart(file)
            whole = int(length) if (length := response.headers.get("Content-Length", "")).isdigit() else None
        if size is not None and whole is not None and whole != size:
            raise ShoalError(f"{url} has {whole:,} bytes, expected {size:,}: the publisher changed the file")
        _check_room(record.partial, None if whole is None else whole - start)
        record.write(url, _validator_of(response.headers), whole)
        _copy(response, file, start, whole, progress)
    have = os.fstat(file.fileno()).st_size
    if size is not None and have != size:
        raise _Broken(f"{have:,} of {size:,} bytes arrived")


def _copy(response: Any, file: IO[bytes], done: int, total: int | None, progress: Progress | None) -> None:
    if progress:
        progress(done, total)
    while chunk := response.read1(CHUNK):  # what has arrived, so that an interruption loses nothing
        file.write(chunk)
        file.flush()
        done += len(chunk)
        if progress:
            progress(done, total)
    if total is not None and done != total:
        raise _Broken(f"the connection ended after {done:,} of {total:,} bytes")


def _restart(file: IO[bytes]) -> int:
    file.truncate(0)
    return 0


def _check_room(partial: Path, missing: int | None) -> None:
    free = shutil.disk_usage(partial.parent).free
    if missing is not None and missing > free:
        raise ShoalError(
            f"{partial.parent} has {free:,} bytes free but {missing:,} are still to come: free some, or set SHOAL_HOME to a larger disk"
        )


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        urllib.request.UnknownHandler,
        _Redirects,
    ):
        opener.add_handler(handler())
    return opener


def _validator_of(headers: Any) -> str | None:
    """A strong ETag, else the date of the last change: what `If-Range` may carry."""
    etag = headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")


def _start_of(headers: Any) -> int | None:
    found = re.match(r"bytes (\d+)-", headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _total_of(headers: Any) -> int | None:
    found = re.search(r"/(\d+)$", headers.get("Content-Range", ""))
    return int(found[1]) if found else None


def _reason(error: BaseException) -> str:
    cause = getattr(error, "reason", None) or error
    return "no answer in time" if isinstance(cause, TimeoutError) else str(cause) or type(cause).__name__
