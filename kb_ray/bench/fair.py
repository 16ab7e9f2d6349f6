"""Which of many clients' requests is served next, and which may wait at all (pure).

Places are shared between owners (who holds one token), then between an owner's clients (the names that it gives its
own uses): whoever holds the fewest goes next, so that a client with a thousand requests does not delay one with a
single request. Priorities order an owner's own requests and nobody else's. Does not know clocks, HTTP or verdicts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Priority = Literal["high", "normal", "low"]
RANKS: dict[Priority, int] = {"high": 0, "normal": 1, "low": 2}
EQUAL_EVERY = 8
"""Of so many places that an owner gets, one is given without regard to priorities, so that none waits for ever."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One request that waits or is served; compared by identity."""

    owner: str
    client: str
    priority: Priority
    number: int
    """Arrival: smaller came earlier."""

    @property
    def flow(self) -> tuple[str, str]:
        """What shares with others of its owner."""
        return self.owner, self.client


@dataclass
class _Share:
    """What one owner, or one of its clients, has had."""

    running: int = 0
    served: int = 0
    """When it was last given a place, or came without having had one, as a count of all places given."""

    @property
    def rank(self) -> tuple[int, int]:
        return self.running, self.served


@dataclass
class FairQueue:
    """Waiting and running entries. Each owner has room for `limit` waiting ones.

    A client may fill half of the room that its owner's waiting entries leave: some is left for whoever comes next.
    """

    limit: int
    _waiting: list[Entry] = field(default_factory=list)
    _running: set[Entry] = field(default_factory=set)
    _owners: dict[str, _Share] = field(default_factory=dict)
    _flows: dict[tuple[str, str], _Share] = field(default_factory=dict)
    _grants: Counter[str] = field(default_factory=Counter)
    _arrivals: int = 0
    _served: int = 0

    def room(self, owner: str, client: str) -> int:
        """How many more requests this client may add now."""
        of_owner = [entry for entry in self._waiting if entry.owner == owner]
        of_client = sum(entry.client == client for entry in of_owner)
        return max(0, (self.limit - len(of_owner) - of_client + 1) // 2)

    def add(self, owner: str, client: str, priority: Priority = "normal") -> Entry:
        """A new waiting entry. Whether there is room is for the caller to ask."""
        self._arrivals += 1
        entry = Entry(owner, client, priority, self._arrivals)
        self._waiting.append(entry)
        self._owners.setdefault(owner, _Share())
        # Whoever comes back for one request after another is new each time, and not before all who wait.
        self._flows.setdefault(entry.flow, _Share(served=self._served))
        return entry

    def grant(self) -> Entry | None:
        """The next one, which is running from now on; None where nobody waits."""
        if not self._waiting:
            return None
        entry = self._next()
        self._waiting.remove(entry)
        self._running.add(entry)
        self._served += 1
        self._grants[entry.owner] += 1
        for share in (self._owners[entry.owner], self._flows[entry.flow]):
            share.running += 1
            share.served = self._served
        return entry

    def leave(self, entry: Entry) -> None:
        """Takes an entry out, waiting or running. An unknown one is ignored."""
        if entry in self._running:
            self._running.remove(entry)
            self._owners[entry.owner].running -= 1
            self._flows[entry.flow].running -= 1
        elif entry in self._waiting:
            self._waiting.remove(entry)
        else:
            return
        # Clients choose their names: what is kept of one must not outlast its requests.
        if not any(entry.flow == other.flow for other in (*self._running, *self._waiting)):
            del self._flows[entry.flow]

    @property
    def waiting(self) -> int:
        """Entries without a place."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Entries that hold a place."""
        return len(self._running)

    def _next(self) -> Entry:
        owner = min({entry.owner for entry in self._waiting}, key=lambda name: (self._owners[name].rank, name))
        own = [entry for entry in self._waiting if entry.owner == owner]
        if (self._grants[owner] + 1) % EQUAL_EVERY:
            first = min(RANKS[entry.priority] for entry in own)
            own = [entry for entry in own if RANKS[entry.priority] == first]
        return min(own, key=lambda entry: (self._flows[entry.flow].rank, entry.number))
