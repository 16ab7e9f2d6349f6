"""Lets requests through to the pool in fair order, as many at once as it takes, and turns away what cannot wait.

The order is `fair`'s; this adds waiting, and how long to stay away. For one event loop. Does not know HTTP, nor what
is done with a place.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kb_ray.bench.fair import Entry, FairQueue, Priority

LONGEST_RETRY_S = 60
_LOOK_AGAIN_S = 1.0
"""How often a waiting request looks whether the pool has grown."""
_NEW_WEIGHT = 0.1
"""Of the latest request in the running mean of seconds per request."""


class QueueFull(Exception):
    """There is no room to wait. `retry_after_s`: whole seconds after which there probably is."""

    def __init__(self, waiting: int, retry_after_s: int) -> None:
        super().__init__(f"{waiting} requests are waiting already: try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class Admission:
    """Places for at most `capacity()` requests at once, asked for anew whenever one is free."""

    def __init__(self, limit: int, capacity: Callable[[], int]) -> None:
        self.queue = FairQueue(limit)
        self._capacity = capacity
        self._granted: dict[Entry, asyncio.Future[None]] = {}
        self._seconds = 1.0

    def enter(self, owner: str, client: str, priority: Priority, count: int = 1) -> list[Entry]:
        """Places in the queue for `count` requests, or QueueFull. Each must go through `place`, or `leave`."""
        if self.queue.room(owner, client) < count:
            raise QueueFull(self.queue.waiting, self._retry_after())
        entries = [self.queue.add(owner, client, priority) for _ in range(count)]
        for entry in entries:
            self._granted[entry] = asyncio.get_running_loop().create_future()
        return entries

    def leave(self, entry: Entry) -> None:
        """Gives up a place, or the wait for it."""
        self._granted.pop(entry, None)
        self.queue.leave(entry)
        self._grant()

    @asynccontextmanager
    async def place(self, entry: Entry) -> AsyncIterator[None]:
        """Waits for the entry's turn and holds its place within."""
        granted = self._granted[entry]
        try:
            self._grant()
            while not granted.done():
                await asyncio.wait([granted], timeout=_LOOK_AGAIN_S)
                self._grant()
            started = time.monotonic()
            yield
            self._seconds += _NEW_WEIGHT * (time.monotonic() - started - self._seconds)
        finally:
            self.leave(entry)

    def _grant(self) -> None:
        while self.queue.running < self._capacity() and (entry := self.queue.grant()) is not None:
            self._granted[entry].set_result(None)

    def _retry_after(self) -> int:
        """Seconds until about half of what waits now has had its turn."""
        wait = self.queue.waiting * self._seconds / max(1, self._capacity()) / 2
        return max(1, min(LONGEST_RETRY_S, math.ceil(wait)))
