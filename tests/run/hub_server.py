"""A stand-in for the Hugging Face hub: takes a data set repository and one commit, and keeps what it was sent.

Knows the few requests that an upload of small files makes; nothing of Git or storage.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_right"


class Hub(ThreadingHTTPServer):
    """`held` before, `files` of the last commit by path, `made` and `tokens` of the requests that came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.files: dict[str, bytes] = {}
        self.held = ["data/train-00001-of-00002.parquet"]
        self.deleted: list[str] = []
        self.made: list[dict[str, Any]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Requests(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        held = [{"type": "file", "path": path, "size": 1, "oid": "0"} for path in self.server.held]
        if self._known():
            self._answer(200, held if "/tree/" in self.path else {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self._known():
            return
        if self.path == "/api/repos/create":
            self.server.made.append(json.loads(body))
            self._answer(200, {"url": f"{self.server.url}/datasets/me/kernels", "name": "me/kernels", "id": "1"})
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            self._answer(
                200, {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]}
            )
        elif "/commit/" in self.path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "deletedFile":
                    self.server.deleted.append(line["value"]["path"])
            self._answer(
                200, {"commitUrl": f"{self.server.url}/datasets/me/kernels/commit/c", "commitOid": "c", "success": True}
            )
        else:
            self._answer(200, {})

    def _known(self) -> bool:
        """Whether the request has the right token; answered where not."""
        known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if not known:
            self._answer(401, {"error": "Invalid username or password."})
        return known

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, status: int, content: Any) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def hub() -> Iterator[Hub]:
    """A running server; its `url` is what HF_ENDPOINT names."""
    server = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
