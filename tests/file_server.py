"""A real HTTP server for tests: serves bytes, and misbehaves in the ways real servers do."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FileServer:
    """`with FileServer({"/a.bin": data}) as server:` serves on 127.0.0.1 until the block ends.

    Attributes that change how it behaves:
        ranges: honour `Range`. etag: what it calls the current version. content_type.
        die_after: close the socket after so many bytes of a body, for the next `deaths` requests.
        stall_after: stop sending after so many bytes and wait until `resume` is set.
        extra_length: added to the true Content-Length. say_length: send Content-Length at all.
        failures: answer so many requests with 503 first.
    What it saw: `requests`, one (path, Range header, bytes sent) each.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.ranges = True
        self.etag: str | None = '"v1"'
        self.content_type = "application/octet-stream"
        self.die_after: int | None = None
        self.deaths = 1_000_000
        self.stall_after: int | None = None
        self.resume = threading.Event()
        self.extra_length = 0
        self.say_length = True
        self.failures = 0
        self.redirect: str | None = None
        self.requests: list[tuple[str, str | None, int]] = []

    def __enter__(self) -> FileServer:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self._no_proxy = os.environ.get("no_proxy")
        os.environ["no_proxy"] = "127.0.0.1"
        return self

    def __exit__(self, *_: object) -> None:
        self.resume.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
        if self._no_proxy is None:
            os.environ.pop("no_proxy", None)
        else:
            os.environ["no_proxy"] = self._no_proxy

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    @property
    def ranges_asked(self) -> list[str | None]:
        return [asked for _, asked, _ in self.requests]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        asked = request.headers.get("Range")
        body = self.files.get(request.path)
        if self.failures or body is None:
            code = 503 if self.failures else 404
            self.failures = max(self.failures - 1, 0)
            self.requests.append((request.path, asked, 0))
            request.send_error(code)
            return
        if self.redirect:
            request.send_response(302)
            request.send_header("Location", self.redirect)
            request.end_headers()
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and self.ranges else 0
        if request.headers.get("If-Range") not in (None, self.etag):
            start = 0
        if start >= len(body) > 0:
            self.requests.append((request.path, asked, 0))
            request.send_response(416)
            request.send_header("Content-Range", f"bytes */{len(body)}")
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        part = body[start:]
        request.send_response(206 if start else 200)
        request.send_header("Content-Type", self.content_type)
        if self.etag:
            request.send_header("ETag", self.etag)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        if self.say_length:
            request.send_header("Content-Length", str(len(part) + self.extra_length))
        request.end_headers()
        if self.die_after is not None and self.deaths > 0:
            self.deaths -= 1
            part = part[: self.die_after]
        self.requests.append((request.path, asked, len(part)))
        try:
            if self.stall_after is not None and not self.resume.is_set():
                request.wfile.write(part[: self.stall_after])
                request.wfile.flush()
                self.resume.wait(30)
                part = part[self.stall_after :]
            request.wfile.write(part)
        except OSError:
            pass  # the client went away: that is what some tests do
        request.close_connection = True
