"""`--live`: the page on loopback, made again when the store has changed since it was made.

Serves two things, the page and a mark that changes with the store; the page asks for the mark and loads itself
again. Answers only who asks for this machine by a loopback name, so that a foreign site cannot read traces by a
name that it points here.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from kb_ray.errors import ConfigError, KbRayError
from kb_ray.reporting.page import waiting_page
from kb_ray.traces.layout import sources
from kb_ray.traces.store import Store

MARK_PATH = "/mark"
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1"})
_MARK_AGE_S = 2.0


class LivePage:
    """The newest page of a store. `make` builds it from scratch, with the mark that it is of, one at a time."""

    def __init__(self, store: Store, make: Callable[[str], str]) -> None:
        self._store, self._make = store, make
        self._lock = threading.Lock()
        self._page, self._of = "", ""
        self._mark, self._looked = "", float("-inf")

    def mark(self) -> str:
        """Changes when the store's files do. StoreError where the store fails."""
        if time.monotonic() - self._looked > _MARK_AGE_S:
            self._mark = hashlib.sha256("\n".join(sources(self._store)).encode()).hexdigest()[:16]
            self._looked = time.monotonic()
        return self._mark

    def page(self) -> str:
        """The page; one that waits where the store holds no episode yet or fails."""
        with self._lock:
            try:
                mark = self.mark()
                if mark != self._of:
                    self._page, self._of = self._make(mark), mark
            except KbRayError as error:
                return waiting_page(f"kb_ray report: {self._store.uri}", str(error))
            return self._page


def live_server(live: LivePage, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1, not yet serving; port 0 takes a free one. ConfigError where the port is taken."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            # Browsers leave port 80 out.
            host = (self.headers.get("Host") or "").partition(":")[0]
            if host not in _LOCAL_NAMES:
                self._send(403, "text/plain", "ask by the name localhost")
            elif self.path == "/":
                self._send(200, "text/html", live.page())
            elif self.path == MARK_PATH:
                self._send_mark()
            else:
                self._send(404, "text/plain", "only / is here")

        def _send_mark(self) -> None:
            try:
                self._send(200, "text/plain", live.mark())
            except KbRayError as error:
                self._send(503, "text/plain", str(error))

        def _send(self, status: int, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A request a few seconds is nothing to tell."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Answer)
    except OSError as error:
        raise ConfigError(f"--port: {port} on 127.0.0.1: {error.strerror}, choose another") from error
