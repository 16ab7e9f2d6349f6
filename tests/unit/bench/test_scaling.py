"""How many workers a pool has, for queues of every kind: by table, and as promises that hold whatever happens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kb_ray.bench.scaling import Bounds, Member, Scaling, Step

PLACES = 2


def _members(*states: str) -> list[Member]:
    """Members from words: `r2` is ready with two places taken, `s` starts, `l1` leaves with one taken, `o` is out."""
    return [
        Member(number, busy=int(state[1:] or 0), ready=state[0] in "rl", leaving=state[0] == "l", out=state[0] == "o")
        for number, state in enumerate(states)
    ]


@pytest.mark.parametrize(
    ("waiting", "members", "step"),
    [
        (0, [], Step()),
        (1, [], Step(add=1)),
        (3, [], Step(add=2)),
        (99, [], Step(add=4)),
        (2, ["s"], Step()),
        (3, ["s"], Step(add=1)),
        (1, ["r2"], Step(add=1)),
        (0, ["r2", "r1"], Step()),
        (9, ["r2", "o", "o"], Step(add=1)),
        (9, ["o", "o", "o", "o"], Step()),
        (1, ["r2", "l1"], Step(recall=(1,))),
        (3, ["r2", "l1"], Step(add=1, recall=(1,))),
        (1, ["r2", "l0"], Step(add=1)),
        (9, ["r2", "l0", "l0", "l0"], Step()),
    ],
)
def test_missing_workers_are_asked_for_at_once(waiting: int, members: list[str], step: Step) -> None:
    assert Scaling(Bounds(0, 4, 10.0), PLACES).step(waiting, _members(*members), 0.0) == step


@pytest.mark.parametrize(
    ("members", "leave"),
    [
        (["r0"], (0,)),
        (["r1"], ()),
        (["s", "s"], (1, 0)),
        (["r1", "s", "r0"], (1, 2)),
        (["r1", "r1"], (1,)),
        (["r2", "r1", "r1"], (2,)),
        (["r0", "o", "l1"], ()),
    ],
)
def test_those_not_needed_leave_the_coldest_first(members: list[str], leave: tuple[int, ...]) -> None:
    scaling = Scaling(Bounds(0, 4, 10.0), PLACES)
    assert scaling.step(0, _members("r2", "r2", "r2", "r2"), 0.0).leave == ()
    assert scaling.step(0, _members(*members), 9.9).leave == (), "they were needed a moment ago"
    assert scaling.step(0, _members(*members), 10.1).leave == leave


def test_a_pool_of_a_fixed_size_never_changes_once_it_is_there() -> None:
    scaling = Scaling(Bounds(3, 3, 0.0), PLACES)
    assert scaling.step(0, [], 0.0) == Step(add=3)
    for now, waiting in enumerate([0, 50, 0, 1]):
        assert scaling.step(waiting, _members("r1", "s", "o"), float(now)) == Step()


@dataclass
class _Simulation:
    """A pool that does what it is told, with a queue that fills and empties."""

    bounds: Bounds
    waiting: int = 0
    now: float = 0.0

    def __post_init__(self) -> None:
        self.scaling = Scaling(self.bounds, PLACES)
        self.members: dict[int, Member] = {}
        self.born = 0

    def step(self) -> Step:
        step = self.scaling.step(self.waiting, list(self.members.values()), self.now)
        assert not set(step.leave) & set(step.recall)
        for number in step.leave:
            self.members[number] = replace(self.members[number], leaving=True)
        for number in step.recall:
            self.members[number] = replace(self.members[number], leaving=False)
        for _ in range(step.add):
            self.members[self.born] = Member(self.born)
            self.born += 1
        return step

    def happen(self, what: str, which: int) -> None:
        known = list(self.members.values())
        one = known[which % len(known)] if known else None
        if what == "ask":
            self.waiting += 1 + which % 5
        elif what == "time":
            self.now += which
        elif what == "start" and self.waiting:
            free = [m for m in known if m.ready and not m.leaving and not m.out and m.busy < PLACES]
            for member in free[:1]:
                self.members[member.number] = replace(member, busy=member.busy + 1)
                self.waiting -= 1
        elif one is not None and what == "finish" and one.busy:
            self.members[one.number] = replace(one, busy=one.busy - 1)
        elif one is not None and what == "ready" and not one.out:
            self.members[one.number] = replace(one, ready=not one.ready)
        elif one is not None and what == "end" and one.leaving and not one.busy:
            del self.members[one.number]
        elif one is not None and what == "fail" and not one.leaving and not one.busy:
            self.members[one.number] = replace(one, out=True, ready=False)


_events = st.lists(
    st.tuples(st.sampled_from(["ask", "time", "start", "finish", "ready", "end", "fail"]), st.integers(0, 12)),
    max_size=60,
)


@given(st.integers(0, 3), st.integers(1, 4), _events)
@settings(max_examples=200, deadline=None)
def test_a_pool_stays_within_its_bounds_and_always_comes_to_serve_and_to_rest(
    low: int, more: int, events: list[tuple[str, int]]
) -> None:
    pool = _Simulation(Bounds(low, max(1, low + more - 1), idle_s=5.0))
    pool.step()
    for what, which in events:
        pool.happen(what, which)
        before = sum(not (m.leaving or m.out) for m in pool.members.values())
        step = pool.step()
        assert len(pool.members) <= pool.bounds.high
        assert not (step.leave and (step.add or step.recall))
        assert before - len(step.leave) >= low or not step.leave
        present = [m for m in pool.members.values() if not (m.leaving or m.out)]
        if pool.waiting and not present:
            assert any(m.leaving or m.out for m in pool.members.values()), "somebody is asked for who serves them"
    sound = any(not m.out for m in pool.members.values()) or len(pool.members) < pool.bounds.high
    _drain(pool)
    assert pool.waiting == 0 or not sound
    kept = [m for m in pool.members.values() if not m.out]
    assert len(kept) == max(0, min(low, pool.bounds.high - sum(m.out for m in pool.members.values())))


def _drain(pool: _Simulation) -> None:
    """Everybody works until nothing is left to do, and time goes by."""
    for _ in range(200):
        for number, member in list(pool.members.items()):
            if member.leaving and not member.busy:
                del pool.members[number]
            elif not member.out:
                taken = 0 if member.leaving else min(PLACES, pool.waiting)
                pool.waiting -= taken
                pool.members[number] = replace(member, ready=True, busy=taken)
        pool.now += 1.0
        pool.step()
