"""Formulas against numbers worked out by hand, and against what the projects that define them give as examples."""

from __future__ import annotations

import itertools
import math

import pytest

from kb_ray.score.formulas import CURVE_AT, geometric_mean, mean, median, pass_at_k, speed_reached
from kb_ray.score.metrics import summarise
from tests.unit.score.episodes import bad, episode, ok


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [
        (1, 0, 1, 0.0),
        (1, 1, 1, 1.0),
        (4, 1, 1, 1 / 4),
        (4, 1, 2, 1 / 2),  # 3 of 6 pairs hold the one that passes
        (4, 2, 2, 5 / 6),  # 1 of 6 pairs holds none
        (5, 3, 3, 1.0),  # three of two failures cannot be drawn
        (10, 3, 5, 1 - 21 / 252),
        (200, 0, 100, 0.0),
    ],
)
def test_pass_at_k_is_the_share_of_draws_that_hold_a_passing_sample(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c)[k - 1] == pytest.approx(expected)


def test_pass_at_k_equals_counting_all_draws() -> None:
    for n, c, k in itertools.product(range(1, 7), range(7), range(1, 7)):
        if c <= n and k <= n:
            draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
            assert pass_at_k(n, c)[k - 1] == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize(("n", "c"), [(2000, 3), (2000, 0), (2000, 2000), (1999, 700)])
def test_pass_at_k_of_very_many_samples_is_the_quotient_of_whole_numbers(n: int, c: int) -> None:
    exact = [1.0 - math.comb(n - c, k) / math.comb(n, k) for k in (1, 2, 100, n)]
    assert [pass_at_k(n, c)[k - 1] for k in (1, 2, 100, n)] == pytest.approx(exact, abs=1e-12)
    assert len(pass_at_k(n, c)) == n


@pytest.mark.parametrize(("n", "c"), [(3, 4), (3, -1), (0, 1)])
def test_pass_at_k_refuses_what_cannot_have_passed(n: int, c: int) -> None:
    with pytest.raises(ValueError, match="pass@k"):
        pass_at_k(n, c)


def test_two_documents_disagree_about_exactly_twice_as_fast() -> None:
    assert speed_reached(2.0, True) == 2.0
    assert speed_reached(1.999, True) < 2.0
    assert speed_reached(9.0, False) < 0


def test_fast_0_asks_for_correctness_only() -> None:
    assert speed_reached(None, True) > 0.0
    assert not speed_reached(3.0, False) > 0.0
    assert not speed_reached(None, True) > CURVE_AT[1]


def test_means_and_medians() -> None:
    assert mean([1.0, 2.0, 6.0]) == 3.0
    assert median([5.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 10.0]) == 3.0
    assert geometric_mean([0.5, 2.0, 8.0]) == pytest.approx(2.0)
    assert geometric_mean([2.0] * 5000) == pytest.approx(2.0)
    assert mean([]) is median([]) is geometric_mean([]) is None


# KernelBench's own examples: correct kernels, times of reference and kernel, geometric mean, fast_1 and fast_0.5.
KERNELBENCH = [
    ([1, 0, 1, 1, 0], [0.1, 0.15, 0.2, 0.05, 0.3], [0.2, 0.15, 0.3, 0.01, 0.2], 1.185631101, (0.2, 0.4)),
    ([1, 1, 1, 1, 0], [0.24, 0.31, 100.0, 0.0001, 0.3], [0.3, 0.3, 200.0, 0.0001, 0.3], 0.801816719, (0.2, 0.6)),
]  # fmt: skip


@pytest.mark.parametrize(("correct", "reference", "kernel", "geomean", "fast"), KERNELBENCH)
def test_speed_metrics_are_kernelbenchs(
    correct: list[int], reference: list[float], kernel: list[float], geomean: float, fast: tuple[float, float]
) -> None:
    rows = zip(correct, reference, kernel, strict=True)
    verdicts = [ok(slow / quick) if right else bad() for right, slow, quick in rows]
    best = summarise(episode(f"t{i}", verdict) for i, verdict in enumerate(verdicts)).overall.best
    assert best.speedup_geomean.value == pytest.approx(geomean, abs=1e-8)
    for p, expected in zip((1.0, 0.5), fast, strict=True):
        share = next(item.share.value for item in best.fast_p if item.p == p)
        assert share is not None
        assert math.isclose(share, expected, abs_tol=1e-9)
