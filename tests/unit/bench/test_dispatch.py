"""The pool's queue keeps its promises whatever the order of events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.dispatch import Dispatch, Ticket

CAPACITY = 3


def _pool(workers: int, capacity: int = CAPACITY, ahead: int = 0) -> Dispatch:
    dispatch = Dispatch(capacity, ahead)
    for worker in range(workers):
        dispatch.add_worker(worker)
        dispatch.set_ready(worker, True)
    return dispatch


def _enqueue(dispatch: Dispatch, *tickets: Ticket) -> list[tuple[Ticket, int]]:
    for ticket in tickets:
        dispatch.enqueue(ticket)
    return dispatch.assign()


def test_requests_spread_over_the_least_busy_workers() -> None:
    placed = _enqueue(_pool(2), *(Ticket(order) for order in range(6)))
    assert [worker for _, worker in placed] == [0, 1, 0, 1, 0, 1]


def test_a_retry_goes_before_requests_that_arrived_later() -> None:
    dispatch = _pool(1, capacity=1)
    first = Ticket(0)
    _enqueue(dispatch, first, Ticket(1), Ticket(2))
    retry = Ticket(0)
    dispatch.enqueue(retry)
    dispatch.leave(first)
    assert dispatch.assign() == [(retry, 0)]


def test_a_retry_waits_for_another_worker_while_there_is_one() -> None:
    dispatch = _pool(2, capacity=1)
    elsewhere = Ticket(1)
    _enqueue(dispatch, Ticket(0), elsewhere)
    retry = Ticket(2, avoid=frozenset({0}))
    assert _enqueue(dispatch, retry) == []
    dispatch.leave(elsewhere)
    assert dispatch.assign() == [(retry, 1)]


def test_a_retry_returns_to_its_worker_where_no_other_is_ready() -> None:
    retry = Ticket(0, avoid=frozenset({0}))
    assert _enqueue(_pool(1), retry) == [(retry, 0)]


def test_a_ticket_alone_gets_an_empty_worker_even_under_steady_load() -> None:
    dispatch = _pool(1)
    early = [Ticket(1), Ticket(2)]
    _enqueue(dispatch, *early)
    alone = Ticket(0, alone=True)
    late = Ticket(3)
    assert _enqueue(dispatch, alone, late) == [], "nobody may start on the worker that runs empty for it"
    for ticket in early:
        dispatch.leave(ticket)
    assert dispatch.assign() == [(alone, 0)]
    dispatch.leave(alone)
    assert dispatch.assign() == [(late, 0)]


def test_a_promise_ends_with_the_ticket_that_has_it() -> None:
    dispatch = _pool(1)
    alone, late = Ticket(0, alone=True), Ticket(3)
    _enqueue(dispatch, Ticket(1))
    _enqueue(dispatch, alone, late)
    dispatch.leave(alone)
    assert dispatch.assign() == [(late, 0)]


def test_where_all_places_are_taken_each_worker_gets_one_ahead() -> None:
    dispatch = _pool(2, capacity=1, ahead=1)
    placed = _enqueue(dispatch, *(Ticket(order) for order in range(6)))
    assert [(ticket.order, worker) for ticket, worker in placed] == [(0, 0), (1, 1), (2, 0), (3, 1)]
    dispatch.leave(placed[0][0])
    assert [(ticket.order, worker) for ticket, worker in dispatch.assign()] == [(4, 0)]
    assert dispatch.misplaced() == [], "nobody has a free place"


def test_what_was_sent_ahead_is_called_back_once_where_another_worker_is_free() -> None:
    dispatch = _pool(3, capacity=1, ahead=1)
    placed = {ticket.order: ticket for ticket, _ in _enqueue(dispatch, *(Ticket(order) for order in range(5)))}
    dispatch.leave(placed[2])
    assert dispatch.misplaced() == [(placed[4], 1)], "the one that came last has the longest to wait"
    assert dispatch.misplaced() == []
    dispatch.leave(placed[4])
    again = Ticket(4)
    assert _enqueue(dispatch, again) == [(again, 2)]
    dispatch.leave(again)
    assert dispatch.misplaced() == [(placed[3], 0)]


def test_a_retry_is_not_sent_ahead_nor_called_back_where_it_is_alone() -> None:
    dispatch = _pool(2, capacity=1, ahead=1)
    _enqueue(dispatch, Ticket(1), Ticket(2))
    assert _enqueue(dispatch, Ticket(0, avoid=frozenset({1}))) == []
    lonely = _pool(2, capacity=2, ahead=1)
    _enqueue(lonely, Ticket(0, alone=True))
    assert lonely.misplaced() == []


def test_nobody_is_sent_ahead_to_a_worker_that_is_taken_alone_or_promised() -> None:
    dispatch = _pool(1, capacity=2, ahead=1)
    alone = Ticket(0, alone=True)
    late = [Ticket(order) for order in range(1, 6)]
    assert _enqueue(dispatch, alone, *late) == [(alone, 0)]
    dispatch.leave(alone)
    assert dispatch.assign() == [(ticket, 0) for ticket in late[:3]]
    again = Ticket(0, alone=True)
    assert _enqueue(dispatch, again) == []
    for ticket in late[:2]:
        dispatch.leave(ticket)
        assert dispatch.assign() == []
    dispatch.leave(late[2])
    assert dispatch.assign() == [(again, 0)]


Event = tuple[str, int, bool, frozenset[int]]

events = st.lists(
    st.one_of(
        st.tuples(st.just("enqueue"), st.integers(0, 50), st.booleans(), st.frozensets(st.integers(0, 2))),
        st.tuples(st.just("leave"), st.integers(0, 50), st.just(False), st.just(frozenset())),
        st.tuples(st.just("flip"), st.integers(0, 2), st.booleans(), st.just(frozenset())),
    ),
    max_size=60,
)


@given(events, st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_no_worker_is_overfull_and_no_ticket_is_lost(script: list[Event], ahead: int) -> None:
    dispatch = _pool(3, ahead=ahead)
    waiting: set[Ticket] = set()
    running: dict[Ticket, int] = {}
    ready = {0, 1, 2}
    for kind, number, flag, avoid in script:
        if kind == "enqueue":
            ticket = Ticket(number, avoid, flag)
            dispatch.enqueue(ticket)
            waiting.add(ticket)
        elif kind == "leave" and (known := sorted(waiting | running.keys(), key=id)):
            ticket = known[number % len(known)]
            dispatch.leave(ticket)
            waiting.discard(ticket)
            running.pop(ticket, None)
        elif kind == "flip":
            dispatch.set_ready(number, flag)
            (ready.add if flag else ready.discard)(number)
        for ticket, worker in dispatch.assign():
            assert worker in ready
            waiting.remove(ticket)
            running[ticket] = worker
        for worker in range(3):
            here = [ticket for ticket, at in running.items() if at == worker]
            assert len(here) == 1 if any(ticket.alone for ticket in here) else len(here) <= CAPACITY + ahead
        assert (dispatch.waiting, dispatch.running) == (len(waiting), len(running))
    for worker in range(3):
        dispatch.set_ready(worker, True)
    while running or waiting:
        for ticket in list(running):
            dispatch.leave(ticket)
        started = dispatch.assign()
        assert started or not waiting, "with empty, ready workers somebody must start"
        running = dict(started)
        waiting -= running.keys()
