"""Whether the verdict of one evaluation is still wanted, and the end of its candidate when it is not.

Whoever gives up and whoever evaluates are different threads: the lock here is what keeps the first from touching a
process that the second has let go of. Does not know what an evaluation does, nor who gave it up.
"""

from __future__ import annotations

import threading
from typing import Protocol


class Cancelled(Exception):
    """Nobody waits for this verdict any more."""


class Killable(Protocol):
    """A process that can be ended from any thread; its own thread sees that and clears up."""

    def strike(self) -> None: ...


class Cancellation:
    """One evaluation's wish to go on. Thread-safe."""

    def __init__(self) -> None:
        self.cancelled = False
        self._process: Killable | None = None
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Nobody wants it: the candidate's process is killed, and `check` raises from now on."""
        with self._lock:
            self.cancelled = True
            if self._process is not None:
                self._process.strike()

    def check(self) -> None:
        """Cancelled where nobody wants it."""
        if self.cancelled:
            raise Cancelled

    def watch(self, process: Killable) -> None:
        """From now on `cancel` kills this process; Cancelled where it would have already."""
        with self._lock:
            self._process = process
        self.check()

    def release(self) -> None:
        """From now on the process is left alone: it is about to be cleared away."""
        with self._lock:
            self._process = None
