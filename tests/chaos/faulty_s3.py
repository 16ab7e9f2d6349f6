"""A proxy before a real S3 server that answers, loses and delays requests as it is told. Knows no store of ours."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, NamedTuple
from urllib.parse import urlsplit


class Fault(NamedTuple):
    """What becomes of one request in place of its answer."""

    kind: Literal["refuse", "lose", "slow"]
    """Answered here with an error; carried out and its answer lost; carried out after `seconds`."""
    status: int = 500
    code: str = "InternalError"
    seconds: float = 0.0


Decide = Callable[[str, str, str], Fault | None]
"""(method, path with query, access key) -> what goes wrong."""


class FaultyS3(ThreadingHTTPServer):
    """Listens on a free port of loopback. `decide` may be changed at any time; `faults` counts what it said."""

    daemon_threads = True

    def __init__(self, endpoint: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        parts = urlsplit(endpoint)
        self.target = (parts.hostname or "", parts.port or 0)
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"
        self.decide: Decide = lambda method, path, key: None
        self.faults: list[Fault] = []

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away, as a killed one does, is no news."""


class _Forward(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FaultyS3

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        key = self.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        fault = self.server.decide(self.command, self.path, key)
        if fault is not None:
            self.server.faults.append(fault)
            time.sleep(fault.seconds)
        if fault is not None and fault.kind == "refuse":
            text = f"<Error><Code>{fault.code}</Code><Message>on purpose</Message></Error>".encode()
            self._answer(fault.status, [("Content-Type", "application/xml")], text)
            return
        answer, data = self._ask(body)
        if fault is not None and fault.kind == "lose":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        kept = ("transfer-encoding", "connection", "content-length")
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in kept]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self._answer(answer.status, headers, data, length)

    def _ask(self, body: bytes) -> tuple[http.client.HTTPResponse, bytes]:
        """The request as it came, so that its signature stays true."""
        connection = http.client.HTTPConnection(*self.server.target, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in ("expect", "connection"):
                connection.putheader(name, value)
        connection.endheaders(body)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer, data

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: str | None = None) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", length or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _serve


@contextmanager
def faulty(endpoint: str) -> Iterator[FaultyS3]:
    """A running proxy before `endpoint`."""
    proxy = FaultyS3(endpoint)
    thread = threading.Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()
