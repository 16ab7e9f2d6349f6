"""Who may use a GPU now: many that load, compile and check, or one that is timed.

The judge's own work on the card, and the reference's, is done under `shared()`, in short pieces. Candidates'
processes are not asked: while one is timed (`alone()`), all others are stopped, compilers included, so that
nobody has to wait for whatever they are at. A waiting `alone` goes before new `shared`. Knows nothing of what
is done under it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Pausable(Protocol):
    """A process that can be stopped and goes on later as if nothing had been."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class Slot:
    """`shared()` for work that may overlap, `alone(process)` for work that may not.

    A thread that is in either may enter `shared` again. Only members that have joined are stopped.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._shared = 0
        self._waiting = 0
        self._alone = False
        self._members: list[Pausable] = []
        self._met: list[Pausable] = []
        self._timed: Pausable | None = None
        self._stopped_s = 0.0
        self._stopped_since: float | None = None
        self._within = threading.local()

    @contextmanager
    def shared(self) -> Iterator[None]:
        if getattr(self._within, "any", False):
            yield
            return
        with self._condition:
            self._condition.wait_for(lambda: not self._alone and not self._waiting)
            self._shared += 1
        self._within.any = True
        try:
            yield
        finally:
            self._within.any = False
            with self._condition:
                self._shared -= 1
                self._condition.notify_all()

    @contextmanager
    def alone(self, process: Pausable | None = None) -> Iterator[None]:
        """Nobody else is on the card meanwhile; `process` is the one member that goes on running.

        Within `alone` already it is entered as it is. Not to be entered within `shared`.
        """
        if getattr(self._within, "any", False):
            yield
            return
        with self._condition:
            self._waiting += 1
            self._condition.wait_for(lambda: not self._alone and not self._shared)
            self._waiting -= 1
            self._alone, self._timed = True, process
            self._stopped_since = time.monotonic()
            others = [member for member in self._members if member is not process]
        self._within.any = True
        try:
            for other in others:
                other.pause()
            yield
        finally:
            self._within.any = False
            for other in others:
                other.resume()
            with self._condition:
                assert self._stopped_since is not None
                self._stopped_s += time.monotonic() - self._stopped_since
                self._alone, self._timed, self._stopped_since = False, None, None
                self._condition.notify_all()

    def join(self, process: Pausable) -> None:
        """From now on `process` stops while others are alone. Called under `shared`, or by the one that is alone."""
        with self._condition:
            self._members.append(process)
            if len(self._members) > 1:
                self._met = list(self._members)
            if self._alone and self._timed is None:
                self._timed = process

    def leave(self, process: Pausable) -> None:
        with self._condition:
            for those in (self._members, self._met):
                if process in those:
                    those.remove(process)

    def clock(self, process: Pausable) -> float:
        """Seconds that `process` could run: a clock that stands while it is stopped."""
        with self._condition:
            stopped = self._stopped_s
            if self._stopped_since is not None and process is not self._timed:
                stopped += time.monotonic() - self._stopped_since
            return time.monotonic() - stopped

    def met(self, process: Pausable) -> bool:
        """Whether another one has been a member at any time since `process`, which still is one, has joined."""
        with self._condition:
            return process in self._met

    @property
    def crowd(self) -> int:
        """How many processes have joined at this moment."""
        with self._condition:
            return len(self._members)
