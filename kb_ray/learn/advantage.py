"""How much better a return is than what the same task's other rollouts got: the number that a learner multiplies by.

Two choices are the caller's and are logged: the estimator, and the pool that a return is compared with. Knows
numbers, no tokens and no tasks. None stands for a turn that has no return, as when our own side failed: it is in no
baseline and gets no advantage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

Estimator = Literal["mean", "grpo", "rloo"]
Pool = Literal["group", "turn"]
"""`group`: all turns of all rollouts of the task (Kevin). `turn`: the same turn of each of them (Dr. Kernel)."""
Table = Sequence[Sequence[float | None]]
"""By rollout, then by turn; rollouts may have different numbers of turns."""

GRPO_EPSILON = 1e-6
_EQUAL = 1e-9


def mean_centred(returns: Sequence[float]) -> list[float]:
    """R - mean. Dr. GRPO: Understanding R1-Zero-Like Training (Liu and others, 2025)."""
    mean = math.fsum(returns) / len(returns) if returns else 0.0
    return [value - mean for value in returns]


def standardised(returns: Sequence[float]) -> list[float]:
    """(R - mean) / (std + 1e-6), std with n in its denominator. GRPO: DeepSeekMath (Shao and others, 2024)."""
    centred = mean_centred(returns)
    spread = math.sqrt(math.fsum(value * value for value in centred) / len(centred)) if centred else 0.0
    return [value / (spread + GRPO_EPSILON) for value in centred]


def leave_one_out(returns: Sequence[float]) -> list[float]:
    """R minus the mean of the others; 0 where there is no other. RLOO: Back to Basics (Ahmadian and others, 2024)."""
    n = len(returns)
    if n < 2:
        return [0.0] * n
    return [value * n / (n - 1) for value in mean_centred(returns)]


ESTIMATORS: dict[Estimator, Callable[[Sequence[float]], list[float]]] = {
    "mean": mean_centred,
    "grpo": standardised,
    "rloo": leave_one_out,
}


def advantages(returns: Table, estimator: Estimator, pool: Pool) -> list[list[float | None]]:
    """The advantage of every return of one task's rollouts, laid out as `returns`.

    A pool of one has nothing to be compared with: its advantage is 0, not its return. Where the policy decides how
    many turns there are, the baseline of a turn depends on who got there: keep the number of turns fixed in training.
    """
    found: list[list[float | None]] = [[None] * len(row) for row in returns]
    for places in _pools(returns, pool):
        values = [value for i, t in places if (value := returns[i][t]) is not None]
        estimates = ESTIMATORS[estimator](values) if len(values) > 1 else [0.0] * len(values)
        for (i, t), estimate in zip(places, estimates, strict=True):
            found[i][t] = estimate
    return found


def is_informative(returns: Table, pool: Pool) -> bool:
    """Whether any pool holds two returns that differ; where none does, every advantage is 0.

    To be asked of returns, never of scores: equal sums of scores can have come at different turns.
    """
    for places in _pools(returns, pool):
        values = [value for i, t in places if (value := returns[i][t]) is not None]
        if values and max(values) - min(values) > _EQUAL:
            return True
    return False


def _pools(returns: Table, pool: Pool) -> list[list[tuple[int, int]]]:
    """Places (rollout, turn) with a return, those that are compared together."""
    places = [(i, t) for i, row in enumerate(returns) for t, value in enumerate(row) if value is not None]
    if pool == "group":
        return [places] if places else []
    turns = sorted({t for _, t in places})
    return [[place for place in places if place[1] == turn] for turn in turns]
