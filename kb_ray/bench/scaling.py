"""How many workers a pool should have now, and which of them leave (pure).

A pool grows with what waits for a place, and keeps the workers that it needed at any moment of the last
`idle_s` seconds. Does not know Ray, requests or how a worker comes and goes: it is told what there is and
answers what is to change.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Bounds:
    """Workers of a pool."""

    low: int
    """As many are kept when there is nothing to do, 0 included."""
    high: int
    """Never more than these, those that leave or stay out included."""
    idle_s: float
    """Seconds for which a worker that is not needed stays."""


@dataclass(frozen=True)
class Member:
    """One worker, as far as it matters here."""

    number: int
    busy: int = 0
    """Places that are taken."""
    ready: bool = False
    """False while it waits for a node, warms up, or recovers."""
    leaving: bool = False
    """Gets nothing new, and ends once what it has is done."""
    out: bool = False
    """Takes no part any more, but holds what it holds."""


@dataclass(frozen=True)
class Step:
    """What is to change now."""

    add: int = 0
    """Workers to ask for."""
    recall: tuple[int, ...] = ()
    """Leaving workers that are needed after all."""
    leave: tuple[int, ...] = ()
    """Workers that leave."""


@dataclass
class Scaling:
    """The memory of one pool: how many workers were needed lately. `places`: requests of a worker at once."""

    bounds: Bounds
    places: int
    _peaks: deque[tuple[float, int]] = field(default_factory=deque)
    """(time, workers needed), times rising and needs falling: the first is the largest of the window."""

    def step(self, waiting: int, members: Sequence[Member], now: float) -> Step:
        """What to change, with `waiting` requests without a place. `now`: seconds of a clock that never goes back."""
        load = waiting + sum(member.busy for member in members)
        needed = min(max(math.ceil(load / self.places), self.bounds.low), self.bounds.high)
        kept = self._kept(needed, now)
        present = [member for member in members if not (member.leaving or member.out)]
        missing = needed - len(present)
        if missing > 0:
            # One that still works is warm; one that has run empty is ending already.
            recall = [member.number for member in members if member.leaving and member.busy][:missing]
            room = self.bounds.high - len(members)
            return Step(add=max(0, min(missing - len(recall), room)), recall=tuple(recall))
        going = sorted(present, key=lambda member: (member.ready, member.busy, -member.number))
        return Step(leave=tuple(member.number for member in going[: max(0, len(present) - kept)]))

    def _kept(self, needed: int, now: float) -> int:
        """The most workers that were needed at once within the last `idle_s` seconds."""
        while self._peaks and self._peaks[-1][1] <= needed:
            self._peaks.pop()
        self._peaks.append((now, needed))
        while self._peaks[0][0] < now - self.bounds.idle_s:
            self._peaks.popleft()
        return self._peaks[0][1]
