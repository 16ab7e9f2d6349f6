"""The formulas by which kernels from models are compared, each on plain numbers, with where it comes from.

Knows no episode: `metrics` says which numbers go in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

FAST_P_AT = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
"""Speedups at which fast_p is told by name."""
CURVE_AT = tuple(round(step * 0.05, 2) for step in range(61)) + tuple(
    round(3 + step * 0.25, 2) for step in range(1, 29)
)
"""Speedups at which the curve is told: every 0.05 up to 3, every 0.25 up to 10."""


def pass_at_k(n: int, c: int) -> list[float]:
    """For each k from 1 to n the chance that one of k samples passes, of n drawn of which c passed.

    1 - C(n-c, k) / C(n, k), unbiased; M. Chen and others, Evaluating Large Language Models Trained on Code, 2021,
    equation 1. One factor follows from the one before, so that n values take n steps. ValueError unless 0 <= c <= n.
    """
    if not 0 <= c <= n:
        raise ValueError(f"pass@k needs 0 <= c <= n, got n={n}, c={c}")
    found, none_passes = [], 1.0
    for drawn in range(n):
        none_passes *= max(0, n - c - drawn) / (n - drawn)
        found.append(1.0 - none_passes)
    return found


NOTHING = -1.0
"""What a kernel that is not correct reaches."""
_SLOWEST = 1e-9


def speed_reached(speedup: float | None, correct: bool) -> float:
    """The number that fast_p compares with p: an answer counts where it is > p (KernelBench).

    fast_0 asks for nothing but correctness, so a correct kernel without a speed is above 0 and above nothing else.
    The first document's fast_2 counts >= 2 where KernelBench's would ask for > 2.
    """
    return max(speedup or _SLOWEST, _SLOWEST) if correct else NOTHING


def mean(values: Sequence[float]) -> float | None:
    """Arithmetic mean; None of nothing."""
    return math.fsum(values) / len(values) if values else None


def geometric_mean(values: Sequence[float]) -> float | None:
    """exp of the mean logarithm, so that a thousand speedups do not overflow; None of nothing."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def median(values: Sequence[float]) -> float | None:
    """The middle value, or the mean of the middle two; None of nothing."""
    if not values:
        return None
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
