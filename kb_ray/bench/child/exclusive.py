"""Who may use a GPU now: many that load, compile and check, or one that is timed.

A readers-writer lock in which a waiting writer goes before new readers, so that timing is not starved.
Knows nothing of what is done under it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Slot:
    """`shared()` for work that may overlap, `alone()` for work that may not."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._shared = 0
        self._alone = False
        self._waiting = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._condition:
            self._condition.wait_for(lambda: not self._alone and not self._waiting)
            self._shared += 1
        try:
            yield
        finally:
            with self._condition:
                self._shared -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._condition:
            self._waiting += 1
            self._condition.wait_for(lambda: not self._alone and not self._shared)
            self._waiting -= 1
            self._alone = True
        try:
            yield
        finally:
            with self._condition:
                self._alone = False
                self._condition.notify_all()

    @property
    def crowd(self) -> int:
        """How many use it at this moment."""
        with self._condition:
            return self._shared + self._alone
