"""Shares, means and ratios with their intervals, over values that each belong to a task.

Decides which interval goes with which number: Wilson for a share, the bootstrap over tasks for the rest. Knows
neither episodes nor what is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from kb_ray.score.formulas import median
from kb_ray.score.intervals import Interval, Resamples, resamples, wilson
from kb_ray.score.summary import Estimate

Values = Sequence[tuple[str, float]]
"""(task, value)."""


def undefined() -> Estimate:
    """Nothing can be said."""
    return Estimate(value=None)


def rate(passed: Sequence[bool]) -> Estimate:
    """The share of True, with Wilson's interval."""
    n, count = len(passed), sum(passed)
    if not n:
        return Estimate(value=None, n=0, count=0)
    return _estimate(count / n, wilson(count / n, n), n, count)


class Grouping:
    """Values of one set, grouped by task. `tasks` names the task of each member of the set, repeated.

    Tasks are numbered by name: what is drawn again is a number, and the order in which a store holds episodes is that
    in which they happened to end.
    """

    def __init__(self, tasks: Sequence[str]) -> None:
        groups: dict[str, list[int]] = {}
        for index, task in enumerate(tasks):
            groups.setdefault(task, []).append(index)
        groups = dict(sorted(groups.items()))
        self.tasks = tuple(tasks)
        self.names = tuple(groups)
        self.groups = tuple(groups.values())
        """Indices into `tasks` of each task's members."""
        self._number = {name: index for index, name in enumerate(groups)}
        self._members = np.array([self._number[task] for task in tasks], dtype=np.int64)
        sizes = np.bincount(self._members, minlength=len(groups)).astype(float)
        self._weights = 1.0 / (sizes[self._members] * max(len(groups), 1))
        """What each member adds to a mean over tasks of their own shares."""

    @property
    def count(self) -> int:
        """Tasks."""
        return len(self.names)

    @property
    def _resamples(self) -> Resamples:
        return resamples(self.count)

    def share_of_tasks(self, passed: Any) -> Estimate:
        """Mean over tasks of the share of a task's members that pass; Wilson's interval with n = tasks.

        `passed` has one bool for each member. With one member each this is the share of tasks; with several it is
        what one of them would show.
        """
        if not self.count:
            return undefined()
        share = min(1.0, float(self._weights @ np.asarray(passed, dtype=float)))
        return _estimate(share, wilson(share, self.count), self.count, None)

    def shares_above(self, values: Sequence[float], at: Sequence[float]) -> list[float]:
        """The number of `share_of_tasks` for `values > p`, for each p of `at`; there must be a task."""
        order = np.argsort(np.asarray(values, dtype=float), kind="stable")
        upto = np.concatenate([[0.0], np.cumsum(self._weights[order])])
        below = np.searchsorted(np.asarray(values, dtype=float)[order], np.asarray(at, dtype=float), side="right")
        return [min(1.0, max(0.0, float(share))) for share in upto[-1] - upto[below]]

    def mean(self, values: Values) -> Estimate:
        """Mean of the values, tasks drawn again for its interval."""
        return self.ratio(values, [(task, 1.0) for task, _ in values], n=len(values))

    def geometric_mean(self, values: Values) -> Estimate:
        """exp of the mean logarithm of positive values."""
        found = self.mean([(task, math.log(value)) for task, value in values])
        powers = [None if number is None else math.exp(number) for number in (found.value, found.low, found.high)]
        return Estimate(value=powers[0], low=powers[1], high=powers[2], n=found.n)

    def median(self, values: Values) -> Estimate:
        """Median of the values."""
        plain = [value for _, value in values]
        middle = median(plain)
        if middle is None:
            return undefined()
        interval = self._resamples.median(plain, [self._number[task] for task, _ in values])
        return _estimate(middle, interval, len(plain), None)

    def ratio(self, above: Values, below: Values, n: int | None = None) -> Estimate:
        """sum(above) / sum(below); None where `below` is nothing. `n` is what is reported as such."""
        bottom = math.fsum(value for _, value in below)
        counted = len(below) if n is None else n
        if bottom <= 0:
            return Estimate(value=None, n=counted)
        top = math.fsum(value for _, value in above)
        interval = self._resamples.ratio(self._sums(above), self._sums(below))
        return _estimate(top / bottom, interval, counted, None)

    def _sums(self, values: Values) -> list[float]:
        sums = [0.0] * self.count
        for task, value in values:
            sums[self._number[task]] += value
        return sums


def _estimate(value: float, interval: Interval | None, n: int, count: int | None) -> Estimate:
    low, high = interval or (None, None)
    return Estimate(value=value, low=low, high=high, n=n, count=count)
