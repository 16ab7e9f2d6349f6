"""Choosing: as many as fit, unlike each other, each program once and in its best kernel that fits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kb_ray.retrieve.choosing import TWINS, Candidate, choose, likeness
from kb_ray.retrieve.example import merit
from kb_ray.retrieve.program import Core


def candidate(
    row: int, score: float = 1.0, tokens: int = 10, words: str = "", digest: str = "", speedup: float = 0.0,
    operations: str = "",
) -> Candidate:  # fmt: skip
    own = Core(text=words, digest=digest or f"d{row}", runs=frozenset((words or f"w{row}").split()))
    return Candidate(row=row, score=score, core=own, merit=(speedup,), tokens=tokens, operations=operations)


def rows(pool: list[Candidate], count: int, budget: int) -> list[int]:
    return [c.row for c in choose(pool, count, budget).chosen]


pools = st.lists(
    st.tuples(st.floats(0, 1), st.integers(1, 50), st.integers(0, 5), st.integers(0, 3), st.integers(0, 2)), max_size=12
).map(
    lambda found: [
        candidate(row, score, tokens, digest=f"p{program}", words=f"w{program % 4} x", speedup=float(speed),
                  operations=f"op{kind}")
        for row, (score, tokens, program, speed, kind) in enumerate(found)
    ]
)  # fmt: skip


@given(pools, st.integers(1, 5), st.integers(0, 120))
def test_as_many_programs_as_fit_are_chosen_each_once_within_the_budget(
    pool: list[Candidate], count: int, budget: int
) -> None:
    choice = choose(pool, count, budget)
    least: dict[str, int] = {}
    for c in pool:
        least[c.core.digest] = min(c.tokens, least.get(c.core.digest, c.tokens))
    shortest = sorted(least.values())
    possible = max((n for n in range(min(count, len(least)) + 1) if sum(shortest[:n]) <= budget), default=0)
    assert len(choice.chosen) == possible
    assert choice.programs == len(least)
    assert len({c.core.digest for c in choice.chosen}) == possible
    assert sum(c.tokens for c in choice.chosen) <= budget
    pairs = [(a, b) for a in choice.chosen for b in choice.chosen if a is not b]
    assert choice.unlike == all(likeness(a, b) < TWINS for a, b in pairs)


def test_the_nearest_comes_first_and_then_one_that_is_unlike_it() -> None:
    pool = [candidate(0, 1.0, words="a b c d"), candidate(1, 0.99, words="a b c d e"), candidate(2, 0.9, words="x y z")]
    assert rows([*pool, candidate(3, 0.1)], 2, 100) == [0, 2]


def test_twins_are_never_shown_together_while_there_are_others_however_far() -> None:
    twins = [candidate(row, 1.0 - row / 1000, operations="relu softmax mul") for row in range(40)]
    nearly = [candidate(row, 0.95, words="a b c d e f g h i j") for row in (40, 41)]
    others = [candidate(50, 0.02), candidate(51, 0.01)]
    choice = choose([*twins, *nearly, *others], 4, 1000)
    assert [c.row for c in choice.chosen] == [0, 40, 50, 51]
    assert choice.unlike
    assert not choose(twins, 2, 1000).unlike
    assert len(choose(twins, 3, 1000).chosen) == 3, "better alike than fewer"


def test_a_long_one_gives_way_where_the_others_would_not_fit() -> None:
    pool = [candidate(0, 1.0, tokens=90), candidate(1, 0.9, tokens=40), candidate(2, 0.8, tokens=40)]
    assert rows(pool, 2, 100) == [1, 2]
    assert rows(pool, 1, 100) == [0]


def test_of_kernels_for_one_program_the_better_one_is_taken_that_leaves_room() -> None:
    slow, other = candidate(0, 1.0, digest="p", speedup=1.0), candidate(1, 0.5)
    fast = candidate(2, 1.0, digest="p", speedup=3.0, tokens=95)
    assert rows([slow, other, fast], 2, 200) == [2, 1]
    assert rows([slow, other, fast], 2, 100) == [0, 1]
    assert rows([slow, other, fast], 1, 100) == [2]


def test_verified_and_trusted_kernels_come_first_and_untrusted_figures_never_count() -> None:
    trusted = merit("triton", True, "ok", True, 1.1)
    untrusted, untimed = merit("triton", True, "ok", False, 900.0), merit("triton", True, "ok", False, None)
    unverified, slower = merit("triton", None, None, None, 9.0), merit("triton", None, None, None, 2.0)
    cuda, wrong = merit("cuda", True, None, None, 50.0), merit("cuda", False, None, None, 99.0)
    assert trusted > untrusted == untimed > unverified > slower > cuda > wrong
    assert merit("triton", False, None, None, 99.0) < cuda
