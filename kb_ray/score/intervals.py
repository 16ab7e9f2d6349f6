"""95 % intervals: Wilson's for shares, the percentile bootstrap over tasks for everything else.

Tasks are what is drawn again, with all their samples: samples of one task are alike, and treating them as
independent would promise too much. Seeded, so that the same episodes give the same interval, in whatever order a
store holds them, as long as tasks are numbered by their names. Knows numbers, no episodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

Interval = tuple[float, float]

Z_95 = 1.959963984540054
"""Quantile of the normal distribution at 0.975."""
RESAMPLES = 1000
_FEWEST_RESAMPLES = 200
_DRAWS = 20_000_000
"""Tasks drawn in all, at most: a store of 100,000 tasks gets 200 resamples."""
_SEED = 20_250_101


def wilson(share: float, n: int) -> Interval | None:
    """Wilson's score interval of a share (0 to 1) of `n` trials; None where there is no trial.

    E. B. Wilson, 1927. Also right, if too wide, for a mean of n values between 0 and 1.
    """
    if n <= 0:
        return None
    scale = 1 + Z_95**2 / n
    centre = (share + Z_95**2 / (2 * n)) / scale
    half = Z_95 / scale * math.sqrt(share * (1 - share) / n + Z_95**2 / (4 * n**2))
    # At the ends the formula is exact and the arithmetic is not.
    low = 0.0 if share <= 0 else centre - half
    high = 1.0 if share >= 1 else centre + half
    return max(0.0, low), min(1.0, high)


class Resamples:
    """How often each of `tasks` tasks is drawn, in each resample. The same for every statistic of one set."""

    def __init__(self, tasks: int) -> None:
        count = min(RESAMPLES, max(_FEWEST_RESAMPLES, _DRAWS // max(tasks, 1)))
        generator = np.random.default_rng(_SEED)
        self.tasks = tasks
        self._times: Any = np.empty((count, tasks), dtype=np.int16)
        for row in range(count if tasks else 0):
            self._times[row] = np.bincount(generator.integers(0, tasks, tasks), minlength=tasks)

    def ratio(self, above: Sequence[float], below: Sequence[float]) -> Interval | None:
        """Interval of sum(above) / sum(below), both given per task: a mean where `below` counts values.

        None where fewer than two tasks contribute, or resamples without any are common.
        """
        if np.count_nonzero(below) < 2:
            return None
        sums = np.stack([np.asarray(above, dtype=float), np.asarray(below, dtype=float)], axis=1)
        # In slices: the counts as floats would be four times the size of the counts.
        tops, bottoms = np.concatenate([self._times[at : at + 50] @ sums for at in range(0, len(self._times), 50)]).T
        kept = bottoms > 0
        if kept.mean() < 0.9:
            return None
        return _percentiles(tops[kept] / bottoms[kept])

    def median(self, values: Sequence[float], task_of: Sequence[int]) -> Interval | None:
        """Interval of the median of `values`, where `task_of` is the 0-based task of each. None as in `ratio`."""
        if len(set(task_of)) < 2:
            return None
        order = np.argsort(np.asarray(values, dtype=float), kind="stable")
        ordered, owner = np.asarray(values, dtype=float)[order], np.asarray(task_of)[order]
        medians = [_weighted_median(ordered, row[owner]) for row in self._times]
        kept = np.array([value for value in medians if value is not None])
        return _percentiles(kept) if len(kept) >= 0.9 * len(medians) else None


@lru_cache(maxsize=2)
def resamples(tasks: int) -> Resamples:
    """The Resamples of so many tasks: drawn once, since most sets of a store have equally many."""
    return Resamples(tasks)


def _weighted_median(ordered: Any, times: Any) -> float | None:
    """Median of ascending values, each `times` times: the mean of the middle two where they are even in number."""
    upto = np.cumsum(times, dtype=np.int64)
    total = int(upto[-1])
    if total == 0:
        return None
    lower = ordered[np.searchsorted(upto, (total + 1) // 2)]
    upper = ordered[np.searchsorted(upto, total // 2 + 1)]
    return float(lower + upper) / 2


def _percentiles(values: Any) -> Interval:
    return float(np.percentile(values, 2.5)), float(np.percentile(values, 97.5))
