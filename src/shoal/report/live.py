"""The live view: a server on this machine only, whose page grows with a run."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from shoal.errors import ShoalError
from shoal.report.facts import RunFacts, read_runs
from shoal.report.page import make_main, make_page
from shoal.runs.folder import CONFIG, MEASURED, METRICS, OUTCOMES, REPEAT, SUMMARY

HOST = "127.0.0.1"
_PATIENCE = 6.0  # seconds that an ended run's page waits for the last look of a browser
_WATCHED = (CONFIG, METRICS, OUTCOMES, MEASURED, SUMMARY)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'"


def open_door(port: int = 0) -> socket.socket:
    """A socket that listens on this machine only, on a free port for 0."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise ShoalError(
            f"port {port} of {HOST} cannot be used ({(error.strerror or str(error)).lower()}): choose another --port"
        ) from None


def address_of(door: socket.socket) -> str:
    """Where a browser finds what is served on a door."""
    return f"http://{HOST}:{door.getsockname()[1]}/"


def has_ended(folder: Path) -> bool:
    """Whether a run, or all of repeated ones, have their final scores."""
    if (folder / REPEAT).is_file():
        return (folder / SUMMARY).is_file()
    try:
        runs = read_runs([folder])
    except ShoalError:
        return False
    return all(run.final is not None for run in runs)


class LiveView:
    """What the server answers: the page of some folders as they are now, made again only where a file has changed.

    Args:
        closed: set when the process that trains has ended; without it the files tell.
    """

    def __init__(self, folders: Sequence[Path], closed: threading.Event | None = None) -> None:
        self.folders = list(folders)
        self.closed = closed
        self.asked = False  # whether any browser has
        self.shown_end = False  # whether one has got the page of the ended run
        self._lock = threading.Lock()
        self._made: tuple[str, str] = ("", "")

    def stamp(self) -> str:
        """Names the state of all files that the page is made of."""
        digest = hashlib.sha256()
        for folder in self.folders:
            for path in sorted([folder, *folder.glob("seed-*")]):
                for name in _WATCHED:
                    try:
                        found = (path / name).stat()
                    except OSError:
                        continue
                    digest.update(f"{path / name} {found.st_size} {found.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:20]

    def read(self) -> list[RunFacts]:
        """The facts so far; none of a run that has not begun."""
        begun = [one for one in self.folders if (one / CONFIG).is_file() or (one / REPEAT).is_file()]
        return read_runs(begun)

    def main(self) -> tuple[str, str]:
        """(stamp, the part of the page that changes)."""
        with self._lock:
            stamp = self.stamp()
            if self._made[0] != stamp:
                self._made = stamp, make_main(self.read())
            return self._made

    def page(self) -> str:
        """The whole page."""
        with self._lock:
            return make_page(self.read(), live=True)

    @property
    def is_over(self) -> bool:
        """Whether all runs have ended; a resumed one has its former end in its files until it begins."""
        if self.closed is not None and not self.closed.is_set():
            return False
        return all(has_ended(folder) for folder in self.folders)


def make_server(view: LiveView, door: socket.socket) -> ThreadingHTTPServer:
    """A server of the view on an open door; requests under other names than this machine's are refused."""
    port = door.getsockname()[1]
    names = {f"{name}:{port}" for name in (HOST, "localhost")}

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "shoal", ""

        def do_GET(self) -> None:
            if self.headers.get("Host") not in names:  # another site's name that points here
                self._answer(403, "only for this machine", kind="text/plain")
            elif self.path == "/":
                view.asked = True
                self._answer_safely(lambda: self._answer(200, view.page()))
            elif self.path == "/main":
                self._answer_safely(self._answer_main)
            else:
                self._answer(404, "there is / only", kind="text/plain")

        def _answer_main(self) -> None:
            over = view.is_over  # before it is made: what is made later has all of it
            stamp, text = view.main()
            same = self.headers.get("If-None-Match") == f'"{stamp}"'
            state = "ended" if over else "going"
            self._answer(304 if same else 200, "" if same else text, {"ETag": f'"{stamp}"', "X-Run": state})
            view.shown_end |= over

        def _answer_safely(self, answer: Callable[[], None]) -> None:
            try:
                answer()
            except (BrokenPipeError, ConnectionResetError):
                pass
            except Exception as error:
                self._answer(500, f"{type(error).__name__}: {error}", kind="text/plain")

        def _answer(
            self, code: int, text: str, headers: dict[str, str] | None = None, kind: str = "text/html"
        ) -> None:
            content = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("Content-Security-Policy", _POLICY)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not worth a line."""

    server = ThreadingHTTPServer((HOST, port), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = door
    server.daemon_threads = True
    return server


def serve(view: LiveView, door: socket.socket) -> None:
    """Serve until the runs have ended, or what trains them is closed, and a browser that looks has seen their end."""
    server = make_server(view, door)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        while not ((view.closed is not None and view.closed.is_set()) or view.is_over):
            time.sleep(0.3)
        deadline = time.monotonic() + (_PATIENCE if view.asked and view.is_over else 0)
        while not view.shown_end and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
