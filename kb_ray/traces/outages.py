"""Writes that a run must not lose: repeated through an outage of the store, which is told once.

A store that is away may come back, and so may one that answers but refuses: it took a write when the run began, so that
it is as likely a server that is still starting. Everything else is final, such as a lease that another start took over.
Does not know what is written, nor where.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kb_ray.errors import StoreError
from kb_ray.traces.store import StoreRefused, StoreUnavailable

GIVE_UP_S = 900.0
"""How long a store may be away."""
_REFUSED_GIVE_UP_S = 60.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0

T = TypeVar("T")
Tell = Callable[[str], None]


class Tries:
    """The tries of one write."""

    def __init__(self, tell: Tell, give_up_s: float = GIVE_UP_S) -> None:
        """`tell` gets one line when the first try fails, and one when a later one does not."""
        self._tell, self._give_up_s = tell, give_up_s
        self._began: float | None = None
        self._refused: float | None = None
        self._pause = _FIRST_PAUSE_S

    @property
    def failing(self) -> bool:
        """Whether a try has failed."""
        return self._began is not None

    def pause(self, error: StoreError, waiting: str = "") -> float:
        """Seconds until the next try, after one that failed. Raises `error` where there is to be none: it is final, or
        the store has been away for `give_up_s`, or has refused for a minute. `waiting`: what the line says of it."""
        if not isinstance(error, StoreUnavailable | StoreRefused):
            raise error
        now = time.monotonic()
        if self._began is None:
            self._began = now
            self._tell(f"{error}; {waiting}trying on")
        if isinstance(error, StoreUnavailable):
            self._refused = None
        elif self._refused is None:
            self._refused = now
        refused_s = 0.0 if self._refused is None else now - self._refused
        if now - self._began >= self._give_up_s or refused_s >= min(_REFUSED_GIVE_UP_S, self._give_up_s):
            raise error
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE_S)
        return pause

    def done(self, uri: str) -> None:
        """To be called when the write has landed; `uri`: the store's."""
        if self.failing:
            self._tell(f"trace store {uri} takes writes again")


def outlast(write: Callable[[], T], uri: str, tell: Tell, give_up_s: float = GIVE_UP_S) -> T:
    """What `write` returns once the store at `uri` takes it; whatever it does, it may be done again. StoreError where
    that is final or takes too long."""
    tries = Tries(tell, give_up_s)
    while True:
        try:
            done = write()
        except StoreError as error:
            time.sleep(tries.pause(error))
        else:
            tries.done(uri)
            return done


async def outlasting(write: Callable[[], Awaitable[T]], uri: str, tell: Tell, give_up_s: float = GIVE_UP_S) -> T:
    """The same for an event loop, which may cancel it during a pause."""
    tries = Tries(tell, give_up_s)
    while True:
        try:
            done = await write()
        except StoreError as error:
            await asyncio.sleep(tries.pause(error))
        else:
            tries.done(uri)
            return done


async def in_thread(write: Callable[[], T]) -> T:
    """Calls it in a thread. Also where the caller is cancelled it is over by the end: what comes after, such as giving
    a lease back, must not meet it."""
    under_way = asyncio.ensure_future(asyncio.to_thread(write))
    try:
        return await asyncio.shield(under_way)
    finally:
        await asyncio.gather(under_way, return_exceptions=True)
