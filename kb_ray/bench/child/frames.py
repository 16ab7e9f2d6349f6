"""Length-prefixed frames with file descriptors over a Unix stream socket.

The only way processes of the evaluation side talk. A frame is a kind, a payload of bytes and a few
descriptors; what they mean is the caller's. Reading is bounded in size and, where asked, in time.
Needs the standard library only. Closes no descriptor that it hands out.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

MAGIC = 0x6B625231
HEADER = struct.Struct("<IBHQ")
MAX_FDS = 200
MAX_PAYLOAD = 64 << 20


class Kind(IntEnum):
    """What a frame says. Requests go down the tree of processes, answers come up."""

    # host <-> judge
    EVALUATE = 1
    VERDICT = 2
    UNFIT = 3
    CANCEL = 4
    # judge <-> zygote
    FORK = 10
    FORKED = 11
    EXITED = 12
    # judge <-> sandboxed child
    READY = 20
    LOAD = 21
    BUILD = 22
    PUT = 23
    DRAW = 24
    CALL = 25
    EXPORT = 26
    TIME = 27
    FREE = 28
    ORACLE = 29
    SIZES = 30
    REPEAT = 31
    DONE = 40
    RAISED = 41


class FrameError(OSError):
    """The other side closed the channel or broke the framing."""


class FrameTimeout(FrameError):
    """Nothing whole arrived in time."""


@dataclass(frozen=True)
class Frame:
    kind: int
    payload: bytes
    fds: tuple[int, ...] = ()


class Channel:
    """One end of a stream of frames. Sending is thread-safe; receiving belongs to one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._send_lock = threading.Lock()

    @classmethod
    def from_fd(cls, fd: int) -> Channel:
        return cls(socket.socket(fileno=fd))

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()

    def send(self, kind: int, payload: bytes = b"", fds: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Send one frame; FrameError when the other side is gone, FrameTimeout when it does not read in time.

        With `timeout_s` the channel must not be received from by another thread meanwhile.
        """
        if len(fds) > MAX_FDS or len(payload) > MAX_PAYLOAD:
            raise ValueError(f"frame too large: {len(payload)} bytes, {len(fds)} descriptors")
        header = HEADER.pack(MAGIC, kind, len(fds), len(payload))
        try:
            with self._send_lock, self._patience(timeout_s):
                # Descriptors ride on the first bytes; the rest is plain data.
                sent = socket.send_fds(self.sock, [header], list(fds)) if fds else self.sock.send(header)
                if sent < len(header):
                    self.sock.sendall(header[sent:])
                if payload:
                    self.sock.sendall(payload)
        except TimeoutError:
            raise FrameTimeout("timed out waiting for the other side to read") from None
        except (BrokenPipeError, ConnectionError) as error:
            raise FrameError(f"the other side of the channel is gone ({error})") from error

    @contextmanager
    def _patience(self, timeout_s: float | None) -> Iterator[None]:
        if timeout_s is None:
            yield
            return
        self.sock.settimeout(timeout_s)
        try:
            yield
        finally:
            self.sock.settimeout(None)

    def recv(self, timeout_s: float | None = None, limit: int = MAX_PAYLOAD) -> Frame:
        """The next frame; FrameTimeout after `timeout_s`, FrameError on end or a broken frame."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        fds: list[int] = []
        try:
            header = self._read(HEADER.size, deadline, fds)
            magic, kind, n_fds, length = HEADER.unpack(header)
            if magic != MAGIC or length > limit or n_fds != len(fds):
                raise FrameError(f"broken frame (magic {magic:#x}, length {length}, descriptors {len(fds)})")
            payload = self._read(length, deadline, None)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return Frame(kind, payload, tuple(fds))

    def _read(self, size: int, deadline: float | None, fds: list[int] | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not wait_readable([self.sock.fileno()], left):
                    raise FrameTimeout("timed out waiting for a frame")
            try:
                if fds is None:
                    chunk = self.sock.recv(min(size - len(data), 1 << 20))
                else:
                    chunk, new, _, _ = socket.recv_fds(self.sock, size - len(data), MAX_FDS)
                    fds.extend(new)
            except ConnectionError as error:
                raise FrameError(f"the other side of the channel is gone ({error})") from error
            if not chunk:
                raise FrameError("the other side closed the channel")
            data += chunk
        return bytes(data)


def wait_readable(fds: Sequence[int], timeout_s: float | None) -> list[int]:
    """Those of `fds` that are readable or closed, after at most `timeout_s` seconds (None: for ever)."""
    poller = select.poll()
    for fd in fds:
        poller.register(fd, select.POLLIN)
    ready = poller.poll(None if timeout_s is None else max(0, int(timeout_s * 1000)))
    return [fd for fd, _ in ready]
