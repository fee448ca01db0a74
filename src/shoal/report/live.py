"""The live view: a local web server whose page is updated during training."""

from __future__ import annotations

import errno
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from shoal.errors import ShoalError
from shoal.report.facts import RunFacts, read_runs
from shoal.report.page import make_main, wrap_main
from shoal.runs.folder import CONFIG, MEASURED, METRICS, OUTCOMES, REPEAT, SUMMARY

HOST = "127.0.0.1"
_PATIENCE = 6.0  # seconds to wait for a browser's last request after a run has ended
_REST = 20  # a page drawn in t seconds is redrawn after 20 t at the earliest: at most 1/20 of a core
_WATCHED = (CONFIG, METRICS, OUTCOMES, MEASURED, SUMMARY)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; connect-src 'self'"


def open_door(port: int = 0, *, patience: float = 0.0) -> socket.socket:
    """A socket that listens on this machine only, on a free port for 0. A taken port is retried for `patience` seconds."""
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_server((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.2)
                continue
            said = (error.strerror or str(error)).lower()
            raise ShoalError(
                f"port {port} of {HOST} cannot be used ({said}): choose another --port"
            ) from None


def choose_port(port: int = 0) -> int:
    """A port to listen on: `port`, or a free one for 0. Raises if it is taken."""
    with open_door(port) as door:
        return int(door.getsockname()[1])


def address_of(door: socket.socket) -> str:
    """The URL of a listening socket."""
    return f"http://{HOST}:{door.getsockname()[1]}/"


def has_ended(folder: Path) -> bool:
    """Whether a run, or all of the repeated runs, have their final scores."""
    if (folder / REPEAT).is_file():
        return (folder / SUMMARY).is_file()
    try:
        runs = read_runs([folder])
    except ShoalError:
        return False
    return all(run.final is not None for run in runs)


@dataclass(frozen=True)
class Drawn:
    """The last page drawn: the stamp of the files it shows, its title and text, and the earliest time to redraw it."""

    stamp: str = ""
    title: str = ""
    text: str = ""
    next: float = 0.0


class LiveView:
    """The page of some folders, redrawn when a file has changed.

    A page that took t seconds to draw is served for at least 20 t, so that drawing hardly slows training. The end of
    the runs is drawn at once.

    Args:
        folders: run folders, or folders of repeated runs.
        closed: set when the training process has ended; None: the files alone show the end.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        closed: threading.Event | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.folders = list(folders)
        self.closed, self.clock = closed, clock
        self.asked = False  # whether a browser has requested the page
        self.shown_end = False  # whether a browser has received the page of the ended run
        self._lock = threading.Lock()
        self._made = Drawn()
        self._ended: tuple[str, bool] = (
            "",
            False,
        )  # stamp of the files, and whether all runs had ended by it

    def stamp(self) -> str:
        """A digest of the sizes and times of all files that the page shows."""
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
        """The facts so far, without runs that have not started."""
        begun = [one for one in self.folders if (one / CONFIG).is_file() or (one / REPEAT).is_file()]
        return read_runs(begun)

    def draw(self, *, at_once: bool = False) -> Drawn:
        """The part of the page that changes; redrawn if files have changed and the last one is old enough, or `at_once`."""
        with self._lock:
            stamp, made = self.stamp(), self._made
            if stamp != made.stamp and (at_once or self.clock() >= made.next):
                started = self.clock()
                try:
                    title, text = make_main(self.read())
                    made = Drawn(stamp, title, text)
                finally:  # after an error too: it is not retried at every request
                    now = self.clock()
                    self._made = replace(made, next=now + _REST * (now - started))
            return self._made

    def page(self) -> str:
        """The whole page."""
        drawn = self.draw()
        return wrap_main(drawn.title, drawn.text, live=True)

    @property
    def is_over(self) -> bool:
        """Whether all runs have ended. Files of a resumed run hold its former end until it starts."""
        if self.closed is not None and not self.closed.is_set():
            return False
        stamp = self.stamp()
        if self._ended[0] != stamp:
            self._ended = stamp, all(has_ended(folder) for folder in self.folders)
        return self._ended[1]


def make_server(view: LiveView, door: socket.socket) -> ThreadingHTTPServer:
    """An HTTP server of the view on a listening socket; it refuses requests for other hosts than this machine."""
    port = door.getsockname()[1]
    names = {f"{name}:{port}" for name in (HOST, "localhost")}

    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "shoal", ""

        def do_GET(self) -> None:
            if self.headers.get("Host") not in names:  # DNS rebinding
                self._answer(403, "only for this machine", kind="text/plain")
            elif self.path == "/":
                view.asked = True
                self._answer_safely(lambda: self._answer(200, view.page()))
            elif self.path == "/main":
                self._answer_safely(self._answer_main)
            else:
                self._answer(404, "there is / only", kind="text/plain")

        def _answer_main(self) -> None:
            over = view.is_over  # before drawing: a page drawn after the end is complete
            drawn = view.draw(at_once=over)
            tag, state = f'"{drawn.stamp}"', "ended" if over else "going"
            same = self.headers.get("If-None-Match") == tag
            self._answer(304 if same else 200, "" if same else drawn.text, {"ETag": tag, "X-Run": state})
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
            """Do not log requests."""

    server = ThreadingHTTPServer((HOST, port), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = door
    server.daemon_threads = True
    return server


def serve(view: LiveView, door: socket.socket) -> None:
    """Serve until the runs or the training process have ended, and an open browser has received their end."""
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
