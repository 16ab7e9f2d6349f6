"""Choosing: as many as are wanted where they fit, never the task, unlike each other, each program once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kb_ray.retrieve.choosing import Candidate, choose, one_per_program, without_leaks
from kb_ray.retrieve.program import Core


def candidate(
    row: int, score: float = 1.0, tokens: int = 10, words: str = "", digest: str = "", speedup: float = 0.0
) -> Candidate:
    own = Core(text=words, digest=digest or f"d{row}", runs=frozenset((words or f"w{row}").split()))
    return Candidate(row=row, score=score, core=own, merit=(False, speedup), tokens=tokens)


pools = st.lists(st.tuples(st.floats(0, 1), st.integers(1, 50)), max_size=12).map(
    lambda found: [candidate(row, score, tokens) for row, (score, tokens) in enumerate(found)]
)


@given(pools, st.integers(1, 5), st.integers(0, 120))
def test_as_many_as_fit_are_chosen_each_once_within_the_budget(pool: list[Candidate], count: int, budget: int) -> None:
    chosen = choose(pool, count, budget)
    shortest = sorted(c.tokens for c in pool)
    possible = max((n for n in range(min(count, len(pool)) + 1) if sum(shortest[:n]) <= budget), default=0)
    assert len(chosen) == possible
    assert len({c.row for c in chosen}) == len(chosen)
    assert sum(c.tokens for c in chosen) <= budget


def test_the_nearest_comes_first_and_then_one_that_is_unlike_it() -> None:
    pool = [candidate(0, 1.0, words="a b c d"), candidate(1, 0.99, words="a b c d e"), candidate(2, 0.9, words="x y z")]
    assert [c.row for c in choose([*pool, candidate(3, 0.1)], 2, 100)] == [0, 2]


def test_a_long_one_gives_way_where_the_others_would_not_fit() -> None:
    pool = [candidate(0, 1.0, tokens=90), candidate(1, 0.9, tokens=40), candidate(2, 0.8, tokens=40)]
    assert [c.row for c in choose(pool, 2, 100)] == [1, 2]
    assert [c.row for c in choose(pool, 1, 100)] == [0]


def test_the_task_under_other_names_or_nearly_the_task_is_taken_out() -> None:
    task = Core(text="", digest="d0", runs=frozenset("abcdefghij"))
    same, near, far = candidate(0), candidate(1, words="a b c d e f g h i"), candidate(2, words="a b c d")
    found = without_leaks([same, near, far], task, 0.9)
    assert [c.row for c in found.clean] == [2]
    assert [c.row for c in found.leaked] == [0, 1]


def test_of_kernels_for_one_program_the_better_one_is_taken_at_the_first_ones_place() -> None:
    slow, other, fast = candidate(0, digest="p", speedup=1.0), candidate(1), candidate(2, digest="p", speedup=3.0)
    assert [c.row for c in one_per_program([slow, other, fast])] == [2, 1]
