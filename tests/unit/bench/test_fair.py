"""Fair order as a table and as properties: shares, priorities, room to wait, nothing kept of who has left."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray.bench.fair import EQUAL_EVERY, Entry, FairQueue, Priority

PRIORITIES: list[Priority] = ["high", "normal", "low"]


def filled(*wanted: tuple[str, str, Priority]) -> FairQueue:
    queue = FairQueue(1000)
    for owner, client, priority in wanted:
        queue.add(owner, client, priority)
    return queue


def served(queue: FairQueue, count: int, places: int = 1) -> list[Entry]:
    """The order in which `count` entries are served, `places` at once, the earliest done first."""
    running: list[Entry] = []
    order = []
    while len(order) < count and (entry := queue.grant()) is not None:
        order.append(entry)
        running.append(entry)
        if len(running) == places:
            queue.leave(running.pop(0))
    return order


N: Priority = "normal"


@pytest.mark.parametrize(
    ("wanted", "order"),
    [
        ([("o", "a", N), ("o", "a", N), ("o", "b", N)], "a1 b3 a2"),
        ([("o", "a", N), ("o", "a", "high"), ("o", "a", "low"), ("o", "a", "high")], "a2 a4 a1 a3"),
        ([("o", "a", N), ("o", "b", "high"), ("o", "a", N), ("o", "b", "high")], "b2 b4 a1 a3"),
        ([("x", "a", "high"), ("x", "b", "high"), ("x", "c", "high"), ("y", "d", "low")], "a1 d4 b2 c3"),
        ([("x", "a", N), ("x", "b", N), ("y", "a", N), ("y", "a", N)], "a1 a3 b2 a4"),
    ],
    ids=["clients-in-turn", "own-priorities", "of-one-owner", "none-over-another-owner", "owners-before-clients"],
)
def test_who_is_served_when(wanted: list[tuple[str, str, Priority]], order: str) -> None:
    assert " ".join(f"{entry.client}{entry.number}" for entry in served(filled(*wanted), len(wanted))) == order


def test_places_are_shared_evenly_whatever_waits_behind() -> None:
    queue = filled(*[("o", "greedy", N)] * 100, *[("o", "modest", N)] * 4)
    running = Counter(entry.client for entry in (queue.grant() for _ in range(8)) if entry)
    assert running == {"greedy": 4, "modest": 4}


def test_one_that_holds_its_places_for_long_gets_no_more_for_it() -> None:
    queue = filled(*[("o", "slow", N)] * 10, *[("o", "fast", N)] * 10)
    running = [entry for entry in (queue.grant() for _ in range(4)) if entry]
    for _ in range(6):
        done = next(entry for entry in running if entry.client == "fast")
        queue.leave(done)
        running.remove(done)
        following = queue.grant()
        assert following is not None
        assert following.client == "fast"
        running.append(following)


def coming_back(queue: FairQueue, clients: int, places: int, grants: int, priority: Priority) -> Counter[str]:
    """How many places each gets beside `clients` that come back with one request whenever theirs is done."""
    for number in range(clients):
        queue.add("o", f"returning-{number}", priority)
    running: list[Entry] = []
    had = Counter[str]()
    for _ in range(grants):
        entry = queue.grant()
        assert entry is not None
        had[entry.client] += 1
        running.append(entry)
        if len(running) == places:
            done = running.pop(0)
            queue.leave(done)
            if done.client.startswith("returning"):
                queue.add("o", done.client, priority)
    return had


@pytest.mark.parametrize(("clients", "places"), [(1, 4), (5, 4), (8, 4), (64, 4), (64, 14)])
def test_one_with_many_requests_has_its_share_beside_those_that_come_back_with_one_each(
    clients: int, places: int
) -> None:
    queue = filled(*[("o", "many", N)] * 400)
    had = coming_back(queue, clients, places, 400, N)
    share = 400 / (clients + 1)
    assert 0.8 * share <= had["many"]
    assert all(had[f"returning-{number}"] >= 0.5 * min(share, had["many"]) for number in range(clients))


@pytest.mark.parametrize("clients", [1, 8, 64])
def test_a_low_priority_has_one_place_in_eight_beside_those_that_come_back(clients: int) -> None:
    queue = filled(*[("o", "many", "low")] * 600)
    had = coming_back(queue, clients, 4, 600, "high")
    assert had["many"] >= 600 // EQUAL_EVERY // (clients + 1)


@pytest.mark.parametrize("other", ["a", "b"], ids=["of-the-same-client", "of-another"])
def test_a_low_priority_is_served_in_the_end_whatever_goes_before_it(other: str) -> None:
    queue = filled(("o", "a", "low"))
    order = []
    for _ in range(EQUAL_EVERY):
        queue.add("o", other, "high")
        order += served(queue, 1)
        queue.leave(order[-1])
    assert [entry.priority for entry in order] == ["high"] * (EQUAL_EVERY - 1) + ["low"]


def test_a_client_takes_at_most_half_of_what_is_left_and_an_owner_only_of_its_own() -> None:
    queue = FairQueue(100)
    rooms = []
    for client in "abc":
        rooms.append(queue.room("o", client))
        for _ in range(rooms[-1]):
            assert queue.room("o", client) > 0
            queue.add("o", client)
        assert queue.room("o", client) == 0
    assert rooms == [50, 25, 13]
    assert queue.room("p", "a") == 50


def test_nothing_is_kept_of_a_client_that_has_left() -> None:
    queue = FairQueue(10_000)
    for number in range(1000):
        entry = queue.add("o", f"client-{number}")
        if number % 2:
            assert queue.grant() is entry
        queue.leave(entry)
    assert (queue.waiting, queue.running, queue._flows) == (0, 0, {})


flows = st.tuples(st.sampled_from("xy"), st.sampled_from("abc"), st.sampled_from(PRIORITIES))


@given(st.lists(st.one_of(flows, st.integers(0, 30)), max_size=80), st.integers(1, 4))
def test_everyone_is_served_exactly_once_and_in_order_within_a_client_and_priority(
    steps: list[tuple[str, str, Priority] | int], places: int
) -> None:
    queue, added, left, order = FairQueue(1000), list[Entry](), set[Entry](), list[Entry]()
    for step in steps:
        if isinstance(step, tuple):
            added.append(queue.add(*step))
        elif step < len(added):
            left.add(added[step])
            queue.leave(added[step])
        if queue.running < places and (entry := queue.grant()) is not None:
            order.append(entry)
    for entry in order:
        queue.leave(entry)
    order += served(queue, len(added))
    assert len(order) == len(set(order))
    assert set(added) - left <= set(order) <= set(added)
    last: dict[tuple[str, str, str], int] = {}
    for entry in order:
        key = (entry.owner, entry.client, entry.priority)
        assert last.get(key, 0) < entry.number
        last[key] = entry.number
    assert (queue.waiting, queue.running, queue._flows) == (0, 0, {})
