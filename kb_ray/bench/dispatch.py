"""Who evaluates next, and where: the pool's queue and places as plain data (pure).

A ticket is one try of one request. Tickets are served in the order in which their requests arrived, so a
retry goes before everything that came later. Does not know Ray, verdicts, clocks or why a try failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

AHEAD = 1
"""Requests that a worker of a pool has beyond those it evaluates, while all places are taken."""


@dataclass(frozen=True, eq=False)
class Ticket:
    """One try of one request; compared by identity."""

    order: int
    """Arrival of the request: smaller is served earlier."""
    avoid: frozenset[int] = frozenset()
    """Workers that failed this request; used again only where no other worker is ready."""
    alone: bool = False
    """Wants a worker to itself, so that a neighbour's crash cannot be the reason for a failure."""
    request_id: str = ""


@dataclass
class _Places:
    busy: int = 0
    ready: bool = False
    alone: bool = False
    """Whether the one that is here wants nobody beside it."""
    promised: Ticket | None = None
    """A ticket that waits for this worker to run empty; meanwhile nobody else starts there."""


@dataclass
class Dispatch:
    """Workers by number, each with `capacity` places, and the tickets that wait for one.

    Where all places are taken, each worker gets up to `ahead` more: it goes on with those at once, and need not wait
    until the driver has read an answer and sent the next request. `misplaced` tells which of them could begin sooner
    elsewhere.
    """

    capacity: int
    ahead: int = 0
    _workers: dict[int, _Places] = field(default_factory=dict)
    _waiting: list[Ticket] = field(default_factory=list)
    _running: dict[Ticket, int] = field(default_factory=dict)
    _called: set[Ticket] = field(default_factory=set)

    def add_worker(self, worker: int) -> None:
        """A new worker, not ready yet."""
        self._workers[worker] = _Places()

    def set_ready(self, worker: int, ready: bool) -> None:
        """Whether tickets may start on this worker. Those that run there stay until released."""
        places = self._workers[worker]
        places.ready = ready
        if not ready:
            places.promised = None

    def remove_worker(self, worker: int) -> None:
        """Forgets a worker on which nothing runs."""
        assert not self._workers[worker].busy
        del self._workers[worker]

    def busy(self, worker: int) -> int:
        """Places of this worker that are taken."""
        return self._workers[worker].busy

    def enqueue(self, ticket: Ticket) -> None:
        """Adds a ticket; `assign` places it."""
        self._waiting.append(ticket)
        self._waiting.sort(key=lambda waiting: waiting.order)

    def leave(self, ticket: Ticket) -> None:
        """Takes a ticket out, waiting or running, and frees what it held. Unknown tickets are ignored."""
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        self._called.discard(ticket)
        worker = self._running.pop(ticket, None)
        if worker is not None:
            self._workers[worker].busy -= self._places_of(ticket)
            self._workers[worker].alone &= not ticket.alone
        for places in self._workers.values():
            if places.promised is ticket:
                places.promised = None

    def assign(self) -> list[tuple[Ticket, int]]:
        """Starts every ticket for which there is room, longest waiting first; returns (ticket, worker)."""
        started = []
        full = False
        for ticket in list(self._waiting):
            plain = not ticket.alone and not ticket.avoid
            if full and plain:
                # Where one that takes any place found none, the next such one need not look.
                continue
            worker = self._choose(ticket)
            if worker is None:
                full |= plain
                continue
            self._waiting.remove(ticket)
            self._running[ticket] = worker
            self._workers[worker].busy += self._places_of(ticket)
            self._workers[worker].alone = ticket.alone
            self._workers[worker].promised = None
            started.append((ticket, worker))
        return started

    def misplaced(self) -> list[tuple[Ticket, int]]:
        """Tickets sent ahead that could begin at once elsewhere, and where they are: each is told once."""
        if self._waiting or not self.ahead:
            return []
        ready = {number: places for number, places in self._workers.items() if places.ready}
        room = sum(max(0, self.capacity - places.busy) for places in ready.values() if places.promised is None)
        # One that was called already is on its way to one of the free places.
        room -= len(self._called)
        over = {number for number, places in self._workers.items() if places.busy > self.capacity}
        found: list[tuple[Ticket, int]] = []
        for ticket, number in reversed(self._running.items()):
            if len(found) >= room or not over:
                break
            if number in over and ticket not in self._called:
                found.append((ticket, number))
                over.discard(number)
        self._called.update(ticket for ticket, _ in found)
        return found

    @property
    def waiting(self) -> int:
        """Tickets that are with no worker."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Tickets that are with a worker."""
        return len(self._running)

    @property
    def sent_ahead(self) -> int:
        """Those of them without a place there."""
        return sum(max(0, places.busy - self.capacity) for places in self._workers.values())

    @property
    def ready_workers(self) -> int:
        """Workers on which a ticket may start."""
        return sum(places.ready for places in self._workers.values())

    def _places_of(self, ticket: Ticket) -> int:
        return self.capacity if ticket.alone else 1

    def _choose(self, ticket: Ticket) -> int | None:
        ready = {
            number: places
            for number, places in self._workers.items()
            if places.ready and places.promised in (None, ticket)
        }
        fresh = {number: places for number, places in ready.items() if number not in ticket.avoid}
        choice = fresh or ready
        if not choice:
            return None
        number = min(choice, key=lambda n: (choice[n].promised is not ticket, choice[n].busy, n))
        busy = choice[number].busy
        if ticket.alone:
            if not busy:
                return number
            choice[number].promised = ticket
            return None
        # One that was tried before waits here until there is a place.
        ahead = 0 if ticket.avoid or choice[number].alone else self.ahead
        return number if busy < self.capacity + ahead else None
