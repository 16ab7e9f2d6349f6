"""Properties of returns: each turn's own, and never a reason to fail first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray.learn.returns import discounted_returns

SCORES = st.lists(st.floats(0, 3), min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("scores", "gamma", "returns"),
    [
        ([0.2, 0.3, 0.8, 1.0], 0.4, [0.512, 0.78, 1.2, 1.0]),
        ([1.0], 0.4, [1.0]),
        ([], 0.4, []),
        ([0.0, 0.0, 1.3], 0.4, [0.208, 0.52, 1.3]),
        ([0.5, 0.7], 0.0, [0.5, 0.7]),
        ([0.5, 0.7], 1.0, [1.2, 0.7]),
    ],
)
def test_table(scores: list[float], gamma: float, returns: list[float]) -> None:
    assert discounted_returns(scores, gamma) == pytest.approx(returns)


@given(SCORES, st.floats(0, 1))
def test_each_is_its_score_and_the_discounted_next(scores: list[float], gamma: float) -> None:
    returns = discounted_returns(scores, gamma)
    for score, own, later in zip(scores, returns, [*returns[1:], 0.0], strict=True):
        assert own == pytest.approx(score + gamma * later)


@given(st.integers(0, 3), st.integers(0, 3), st.floats(0.01, 3), st.floats(0, 1))
def test_solved_earlier_is_never_worth_less_at_the_first_turn(a: int, b: int, score: float, gamma: float) -> None:
    """A rollout of four turns that is right from turn `early` on, and one that is right from `late` on."""
    early, late = sorted((a, b))
    first, second = ([0.0] * solved + [score] * (4 - solved) for solved in (early, late))
    assert discounted_returns(first, gamma)[0] >= discounted_returns(second, gamma)[0]
    # So it is where a rollout ends with its first success.
    ended = [discounted_returns([0.0] * solved + [score], gamma)[0] for solved in (early, late)]
    assert ended[0] >= ended[1]


@pytest.mark.parametrize("gamma", [-0.1, 1.1])
def test_a_discount_outside_of_0_to_1_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match="gamma"):
        discounted_returns([1.0], gamma)
