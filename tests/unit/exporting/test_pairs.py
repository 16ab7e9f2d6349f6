"""Pairs: right over wrong, clearly faster over slower, never more than asked for."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from kb_ray.exporting.pairing import OVER_INCORRECT, OVER_SLOWER, Answer, pairs

_numbers = count()


def answer(speedup: float | None = None, *, correct: bool = True, progress: int = 0) -> Answer:
    return Answer("part", next(_numbers), 0, correct, speedup, progress)


def test_kinds_take_turns_and_the_strongest_contrast_comes_first() -> None:
    fast, middle, slow = answer(4.0), answer(2.0), answer(1.0)
    early, late = answer(correct=False, progress=0), answer(correct=False, progress=5000)
    made = pairs([slow, early, fast, late, middle], margin=1.2, most=4)
    assert [(p.chosen, p.rejected, p.kind) for p in made] == [
        (fast, late, OVER_INCORRECT),
        (fast, slow, OVER_SLOWER),
        (middle, early, OVER_INCORRECT),
        (fast, middle, OVER_SLOWER),
    ]


def test_speeds_within_the_margin_or_unknown_make_no_pair() -> None:
    assert pairs([answer(1.0), answer(1.19), answer(None)], margin=1.2, most=9) == []
    assert len(pairs([answer(1.0), answer(1.2)], margin=1.2, most=9)) == 1


def test_only_wrong_or_only_untimed_right_answers_make_no_pair() -> None:
    assert pairs([answer(correct=False), answer(correct=False)], margin=1.2, most=9) == []
    assert pairs([answer(), answer()], margin=1.0, most=9) == []


ANSWERS = st.lists(
    st.tuples(st.booleans(), st.none() | st.floats(0.01, 100), st.integers(0, 9)), max_size=8
).map(lambda drawn: [answer(s if right else None, correct=right, progress=p) for right, s, p in drawn])  # fmt: skip


@given(ANSWERS, st.floats(1.0, 3.0), st.integers(1, 10))
def test_every_pair_prefers_the_better_and_none_comes_twice(some: list[Answer], margin: float, most: int) -> None:
    made = pairs(some, margin=margin, most=most)
    assert len(made) <= most
    assert len(set(made)) == len(made)
    for pair in made:
        assert pair.chosen.correct
        if pair.kind == OVER_INCORRECT:
            assert not pair.rejected.correct
        else:
            assert pair.rejected.correct
            assert (pair.chosen.speedup or 0) > (pair.rejected.speedup or 0)
            assert (pair.chosen.speedup or 0) >= margin * (pair.rejected.speedup or 0) > 0


def test_no_answer_is_better_than_itself_whatever_two_verdicts_said() -> None:
    same = [replace(answer(speedup), text=7) for speedup in (3.0, 2.0)] + [replace(answer(correct=False), text=7)]
    assert pairs(same, margin=1.2, most=10) == []
    other = replace(answer(correct=False), text=8)
    assert [pair.rejected for pair in pairs([*same, other], margin=1.2, most=10)] == [other, other]
