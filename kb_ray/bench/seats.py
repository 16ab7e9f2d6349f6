"""The places of one worker, for the threads that bring it requests: who finds none waits, until it is called back.

A pool sends a request ahead so that a place is never empty while the next one is on its way; where another worker is
free before this one, the request is called back and begins there. Does not know workers, verdicts or the pool's queue.
"""

from __future__ import annotations

import threading
from collections import deque


class Seats:
    """`count` places, given to waiting names in the order of their coming. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[str] = deque()
        self._changed = threading.Condition()

    def take(self, name: str) -> bool:
        """Waits for a place. False: `name` was called back before it had one."""
        with self._changed:
            self._waiting.append(name)
            self._changed.wait_for(lambda: name not in self._waiting or (self._free and self._waiting[0] == name))
            if name not in self._waiting:
                return False
            self._waiting.remove(name)
            self._free -= 1
            # A second place may have been freed for the next.
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """Gives a place back."""
        with self._changed:
            self._free += 1
            self._changed.notify_all()

    def call_back(self, name: str) -> bool:
        """Ends the wait of `name`. False: it has a place, or is not here."""
        with self._changed:
            if name not in self._waiting:
                return False
            self._waiting.remove(name)
            self._changed.notify_all()
            return True
