"""When the processes of an evaluator are replaced by fresh ones: after so many verdicts, between two of them.

A judge on a GPU grows by some kilobytes with each verdict (docs/measurements.md), which a run of weeks would feel.
Knows no processes: what replaces them is given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

VERDICTS = 20_000
"""Of one set of processes: some hundred MiB of growth, and a start of seconds against an hour of work."""


class Lifetime:
    """`one()` around each verdict; `renew` is called after `verdicts` of them, while none is under way."""

    def __init__(self, verdicts: int, renew: Callable[[], None]) -> None:
        self._most, self._renew = verdicts, renew
        self._begun = self._under_way = 0
        self._renewing = False
        self._condition = threading.Condition()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Room for one verdict; waits while the processes are replaced. What `renew` raises ends this one alone."""
        with self._condition:
            self._condition.wait_for(lambda: not self._renewing)
            if self._begun >= self._most:
                self._renewed()
            self._begun += 1
            self._under_way += 1
        try:
            yield
        finally:
            with self._condition:
                self._under_way -= 1
                self._condition.notify_all()

    def _renewed(self) -> None:
        """Under the lock, which `wait_for` gives up meanwhile."""
        self._renewing = True
        try:
            self._condition.wait_for(lambda: self._under_way == 0)
            self._renew()
            self._begun = 0
        finally:
            self._renewing = False
            self._condition.notify_all()
