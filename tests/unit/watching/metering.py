"""A meter that remembers, and the same metrics counted by hand. Holds no test."""

from __future__ import annotations

from collections import Counter, defaultdict

from kb_ray.watching.catalogue import Metric

Series = tuple[str, tuple[tuple[str, str], ...]]
"""Name of a metric, and its labels sorted."""


class Remembering:
    """Keeps what it is told, labels as they would be exported."""

    def __init__(self) -> None:
        self.counters: Counter[Series] = Counter()
        self.gauges: dict[Series, float] = {}
        self.histograms: dict[Series, list[float]] = defaultdict(list)

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        assert metric.kind == "counter"
        assert amount >= 0
        self.counters[_series(metric, labels)] += amount

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        assert metric.kind == "gauge"
        self.gauges[_series(metric, labels)] = value

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        assert metric.kind == "histogram"
        self.histograms[_series(metric, labels)].append(value)

    def total(self, metric: Metric, **labels: str) -> float:
        """What a counter has come to."""
        return self.counters[_series(metric, labels)]

    def level(self, metric: Metric, **labels: str) -> float:
        """What a gauge was set to last."""
        return self.gauges[_series(metric, labels)]

    def seen(self) -> set[Series]:
        """Every series that was told of."""
        return {*self.counters, *self.gauges, *self.histograms}


def _series(metric: Metric, labels: dict[str, str]) -> Series:
    return metric.name, tuple(sorted(metric.bounded(labels).items()))
