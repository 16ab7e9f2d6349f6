"""A meter that hands every number to Ray, which exports it on each node for Prometheus.

The only place that knows ray.util.metrics. Costs a few microseconds a number; Ray sends them every ten seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kb_ray.watching.catalogue import ALL, Metric


class RayMeter:
    """Exports the metrics of the catalogue from this process. Make it once Ray is connected.

    Every counter is there from the start, at 0: Prometheus takes no growth from a series that begins with its first
    event.
    """

    def __init__(self) -> None:
        from ray.util import metrics

        kinds = {"counter": metrics.Counter, "gauge": metrics.Gauge, "histogram": metrics.Histogram}
        self._exported: dict[str, Any] = {}
        for metric in ALL:
            more: dict[str, Any] = {"boundaries": list(metric.buckets)} if metric.buckets else {}
            self._exported[metric.name] = kinds[metric.kind](
                metric.name, description=f"{metric.description} [{metric.unit}]", tag_keys=tuple(metric.labels), **more
            )
        for metric in (metric for metric in ALL if metric.kind == "counter"):
            for labels in metric.series():
                # What `inc` does with more than nothing.
                self._exported[metric.name]._record(0.0, labels)

    def add(self, metric: Metric, amount: float, **labels: str) -> None:
        """See Meter. Ray refuses to add nothing."""
        if amount > 0:
            self._exported[metric.name].inc(amount, _tags(metric, labels))

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        """See Meter."""
        self._exported[metric.name].set(value, _tags(metric, labels))

    def observe(self, metric: Metric, value: float, **labels: str) -> None:
        """See Meter."""
        self._exported[metric.name].observe(value, _tags(metric, labels))


def _tags(metric: Metric, labels: Mapping[str, str]) -> dict[str, str]:
    return metric.bounded(labels)
