"""Who evaluates next, and where: the pool's queue and places as plain data (pure).

A ticket is one try of one request. Tickets are served in the order in which their requests arrived, so a
retry goes before everything that came later. Does not know Ray, verdicts, clocks or why a try failed.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Ticket:
    """One try of one request; compared by identity."""

    order: int
    """Arrival of the request: smaller is served earlier."""
    avoid: frozenset[int] = frozenset()
    """Workers that failed this request; used again only where no other worker is ready."""
    alone: bool = False
    """Wants a worker to itself, so that a neighbour's crash cannot be the reason for a failure."""


@dataclass
class _Places:
    busy: int = 0
    ready: bool = False
    promised: Ticket | None = None
    """A ticket that waits for this worker to run empty; meanwhile nobody else starts there."""


@dataclass
class Dispatch:
    """Workers by number, each with `capacity` places, and the tickets that wait for one."""

    capacity: int
    _workers: dict[int, _Places] = field(default_factory=dict)
    _waiting: list[Ticket] = field(default_factory=list)
    _running: dict[Ticket, int] = field(default_factory=dict)

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
        worker = self._running.pop(ticket, None)
        if worker is not None:
            self._workers[worker].busy -= self._places_of(ticket)
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
            self._workers[worker].promised = None
            started.append((ticket, worker))
        return started

    @property
    def waiting(self) -> int:
        """Tickets without a place."""
        return len(self._waiting)

    @property
    def running(self) -> int:
        """Tickets that hold a place."""
        return len(self._running)

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
        if choice[number].busy + self._places_of(ticket) <= self.capacity:
            return number
        if ticket.alone:
            choice[number].promised = ticket
        return None
