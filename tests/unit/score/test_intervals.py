"""Intervals: known values, what they must cover, and what they say where there is too little to say anything."""

from __future__ import annotations

import numpy as np
import pytest

from kb_ray.score.estimates import Grouping, rate
from kb_ray.score.intervals import Resamples, wilson


@pytest.mark.parametrize(
    ("count", "n", "low", "high"),
    [
        # (2nc + z2 +- z sqrt(z2 + 4c(n-c)/n)) / (2(n + z2)) with z = 1.959964
        (8, 10, 0.490162, 0.943318),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (42, 479, 0.065523, 0.116403),
        (50, 100, 0.403832, 0.596168),
    ],
)
def test_wilson(count: int, n: int, low: float, high: float) -> None:
    assert wilson(count / n, n) == pytest.approx((low, high), abs=1e-6)


def test_nothing_is_said_of_no_trial() -> None:
    assert wilson(0.0, 0) is None
    assert rate([]).value is None


def test_the_bootstrap_covers_the_true_mean_about_19_times_in_20() -> None:
    generator, hits = np.random.default_rng(1), 0
    resamples = Resamples(60)
    for _ in range(400):
        values = generator.exponential(2.0, 60)
        interval = resamples.ratio(list(values), [1.0] * 60)
        assert interval is not None
        hits += interval[0] <= 2.0 <= interval[1]
    assert 0.90 <= hits / 400 <= 0.98


def test_many_samples_of_few_tasks_do_not_narrow_an_interval() -> None:
    once = Grouping([f"t{i}" for i in range(8)])
    single = once.mean([(f"t{i}", float(i)) for i in range(8)])
    often = Grouping([f"t{i}" for i in range(8) for _ in range(50)])
    repeated = often.mean([(f"t{i}", float(i)) for i in range(8) for _ in range(50)])
    assert (repeated.value, repeated.low, repeated.high) == pytest.approx((single.value, single.low, single.high))
    assert repeated.n == 400


def test_the_same_values_give_the_same_interval() -> None:
    values = [(f"t{i}", float(i % 7)) for i in range(30)]
    first, again = (Grouping([task for task, _ in values]).median(values) for _ in range(2))
    assert first == again
    assert first.value == 3.0
    assert first.low is not None
    assert first.low <= 3.0 <= first.high  # type: ignore[operator]


def test_an_interval_does_not_depend_on_the_order_of_the_tasks() -> None:
    values = [(f"t{i}", float(i * i % 13) + 0.1) for i in range(40) for _ in range(1 + i % 3)]
    names = [task for task, _ in values]
    one, other = Grouping(names), Grouping(names[::-1])
    assert one.names == other.names == tuple(sorted(set(names)))
    assert one.median(values) == other.median(values[::-1])
    mean, turned = one.mean(values), other.mean(values[::-1])
    assert (mean.value, mean.low, mean.high) == pytest.approx((turned.value, turned.low, turned.high), rel=1e-12)


def test_one_task_has_a_value_and_no_interval() -> None:
    found = Grouping(["a", "a"]).mean([("a", 1.0), ("a", 3.0)])
    assert (found.value, found.low, found.high, found.n) == (2.0, None, None, 2)


def test_a_share_of_tasks_weighs_each_task_once() -> None:
    grouping = Grouping(["a", "b", "b", "b"])
    found = grouping.share_of_tasks([True, False, False, True])
    assert found.value == pytest.approx((1 + 1 / 3) / 2)
    assert (found.low, found.high) == pytest.approx(wilson(2 / 3, 2))
    assert grouping.shares_above([2.0, 0.5, 1.0, 3.0], [0.0, 1.0, 2.0]) == pytest.approx([1.0, 2 / 3, 1 / 6])


def test_tokens_per_success_divide_all_tokens_by_all_successes() -> None:
    found = Grouping(["a", "b"]).ratio([("a", 100.0), ("b", 50.0), ("b", 50.0)], [("a", 1.0), ("b", 1.0)])
    assert found.value == 100.0
    assert Grouping(["a"]).ratio([("a", 5.0)], []).value is None
