"""Properties of advantages: pools, estimators, what has no return, and what tells nothing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kb_ray.learn.advantage import (
    Estimator,
    Pool,
    advantages,
    is_informative,
    leave_one_out,
    mean_centred,
    standardised,
)
from kb_ray.learn.returns import discounted_returns

VALUES = st.lists(st.floats(-5, 5), min_size=2, max_size=8)
TABLES = st.lists(st.lists(st.floats(-5, 5), min_size=1, max_size=4), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("values", "mean", "grpo", "rloo"),
    [
        ([1.0, 0.0, 0.0], [2 / 3, -1 / 3, -1 / 3], [2**0.5, -(0.5**0.5), -(0.5**0.5)], [1.0, -0.5, -0.5]),
        ([2.0, 4.0], [-1.0, 1.0], [-1.0, 1.0], [-2.0, 2.0]),
        ([3.0, 3.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]),
        ([], [], [], []),
    ],
)  # fmt: skip
def test_estimators(values: list[float], mean: list[float], grpo: list[float], rloo: list[float]) -> None:
    assert mean_centred(values) == pytest.approx(mean)
    assert standardised(values) == pytest.approx(grpo, abs=1e-5)
    assert leave_one_out(values) == pytest.approx(rloo)


@given(VALUES)
def test_leaving_one_out_is_subtracting_the_mean_of_the_others(values: list[float]) -> None:
    for i, found in enumerate(leave_one_out(values)):
        others = values[:i] + values[i + 1 :]
        assert found == pytest.approx(values[i] - sum(others) / len(others), abs=1e-9)


def test_pools() -> None:
    returns = [[1.0, 2.0], [3.0, 4.0]]
    assert advantages(returns, "mean", "turn") == [[-1.0, -1.0], [1.0, 1.0]]
    assert advantages(returns, "mean", "group") == [[-1.5, -0.5], [0.5, 1.5]]


@pytest.mark.parametrize("estimator", ["mean", "grpo", "rloo"])
def test_whoever_is_alone_in_a_pool_gets_nothing(estimator: Estimator) -> None:
    assert advantages([[1.0, 5.0], [1.0]], estimator, "turn")[0][1] == 0.0
    assert advantages([[7.0]], estimator, "group") == [[0.0]]


def test_a_turn_without_a_return_is_in_no_baseline() -> None:
    with_gap = advantages([[1.0, None], [3.0, 4.0], [None, 6.0]], "mean", "turn")
    assert with_gap == [[-1.0, None], [1.0, -1.0], [None, 1.0]]
    assert advantages([[None], [None]], "grpo", "group") == [[None], [None]]


@given(TABLES, st.sampled_from(["mean", "grpo", "rloo"]), st.sampled_from(["group", "turn"]), st.randoms())
def test_the_order_of_rollouts_does_not_matter(
    table: list[list[float]], estimator: Estimator, pool: Pool, draw: random.Random
) -> None:
    order = list(range(len(table)))
    draw.shuffle(order)
    plain, moved = advantages(table, estimator, pool), advantages([table[i] for i in order], estimator, pool)
    for place, i in enumerate(order):
        assert moved[place] == pytest.approx(plain[i], abs=1e-9)


def test_what_is_alike_in_sum_can_differ_in_its_turns() -> None:
    """Scores with equal sums whose returns differ: the group tells something and must not be dropped."""
    scores = [[1.0, 0.0], [0.0, 1.0]]
    assert len({sum(row) for row in scores}) == 1
    assert is_informative([discounted_returns(row, 0.4) for row in scores], "turn")


@pytest.mark.parametrize(
    ("returns", "pool", "told"),
    [
        ([[1.0, 2.0], [1.0, 2.0]], "turn", False),
        ([[1.0, 2.0], [1.0, 2.0]], "group", True),
        ([[1.0], [None]], "turn", False),
        ([], "group", False),
        ([[0.0], [1e-12]], "group", False),
    ],
)
def test_whether_a_group_tells_anything(returns: list[list[float | None]], pool: Pool, told: bool) -> None:
    assert is_informative(returns, pool) is told


def test_each_turn_has_an_advantage_of_its_own() -> None:
    """Not one number for the whole rollout: the turn that repaired the kernel is paid, the one that broke it is not."""
    good, bad = discounted_returns([0.0, 1.3], 0.4), discounted_returns([0.3, 0.0], 0.4)
    found = advantages([good, bad], "mean", "turn")
    assert found[0][0] != found[0][1]
    assert found[0][1] is not None
    assert found[0][1] > 0
