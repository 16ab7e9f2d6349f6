"""A loopback TCP proxy that can swallow answers: what a lost connection after a commit looks like to a client."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class AnswerEatingProxy:
    """Forwards each connection to `endpoint`; drops the connection instead of the next `drop` answers to a PUT."""

    def __init__(self, endpoint: str, drop: int) -> None:
        parts = urlsplit(endpoint)
        self._target = (parts.hostname or "", parts.port or 0)
        self._lock = threading.Lock()
        self._drop = drop
        self.dropped = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        # A server that is killed, or a client that leaves, ends a connection and is nobody's fault here.
        with suppress(OSError), client, socket.create_connection(self._target) as server:
            asked = bytearray()
            threading.Thread(target=self._forward, args=(client, server, asked), daemon=True).start()
            while answer := server.recv(65536):
                if asked.startswith(b"PUT") and b" 100 " not in answer[:20] and self._takes_one():
                    # Closing alone would wait for the thread that reads from it.
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(answer)

    def _forward(self, client: socket.socket, server: socket.socket, asked: bytearray) -> None:
        try:
            while data := client.recv(65536):
                if data.startswith((b"PUT", b"GET", b"HEAD", b"DELETE")):
                    asked[:] = data[:4]
                server.sendall(data)
        except OSError:
            return

    def _takes_one(self) -> bool:
        with self._lock:
            if self.dropped >= self._drop:
                return False
            self.dropped += 1
            return True
