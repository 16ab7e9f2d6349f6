"""What the HTTP service counts of its requests and of the pool that it asks, as Prometheus reads it.

Labels come from closed sets: paths that exist, status codes, verdict statuses, and those of the catalogue, whose names
stand for the same things here and in a run. Does not know who asked for what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from kb_ray.records import Verdict
from kb_ray.watching import catalogue
from kb_ray.watching.catalogue import Metric
from kb_ray.watching.pool_counts import PoolCounts, not_ready, utilisation

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WANTED = Metric(
    "kb_ray_bench_wanted_workers", "gauge", "workers", "Bench workers that there should be; those that leave are none."
)
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


class CrewCounts(PoolCounts, Protocol):
    """With those that leave; `BenchPool.stats` has it."""

    @property
    def leaving(self) -> int: ...


class Exposition:
    """Counters of one service; gauges, and the pool, are asked when they are read."""

    def __init__(self, gauges: dict[str, Callable[[], float]], pool: Callable[[], CrewCounts]) -> None:
        """`gauges`: by what they count, such as `waiting`. `pool`: its counts now."""
        self._registry = CollectorRegistry()
        self._responses = Counter(
            "kb_ray_bench_http_responses", "Answers over HTTP.", ("path", "code"), registry=self._registry
        )
        self._verdicts = Counter("kb_ray_bench_http_verdicts", "Verdicts.", ("status",), registry=self._registry)
        self._given_up = Counter(
            "kb_ray_bench_http_given_up", "Requests whose client left first.", registry=self._registry
        )
        self._seconds = Histogram(
            "kb_ray_bench_http_verdict_seconds", "From a request's place to its verdict.", buckets=_SECONDS,
            registry=self._registry,
        )  # fmt: skip
        phases = catalogue.PHASE_SECONDS
        self._phases = Counter(phases.name, phases.description, tuple(phases.labels), registry=self._registry)
        for name, value in gauges.items():
            gauge = Gauge(f"kb_ray_bench_http_{name}", f"Requests or places: {name}, now.", registry=self._registry)
            gauge.set_function(value)
        self._registry.register(_OfThePool(pool))

    def response(self, path: str, code: int) -> None:
        """One answer on one of the service's paths."""
        self._responses.labels(path, str(code)).inc()

    def verdict(self, verdict: Verdict, seconds: float) -> None:
        """One verdict and how long it took once it had a place."""
        self._verdicts.labels(str(verdict.status)).inc()
        self._seconds.observe(seconds)
        for phase, spent in verdict.seconds.items():
            if phase != "total":
                self._phases.labels(**catalogue.PHASE_SECONDS.bounded({"phase": phase})).inc(spent)

    def given_up(self) -> None:
        """One request that nobody waited for any more."""
        self._given_up.inc()

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)


class _OfThePool(Collector):
    """One look at the pool for each time that the numbers are read, so that they fit each other."""

    def __init__(self, pool: Callable[[], CrewCounts]) -> None:
        self._pool = pool

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        pool = self._pool()
        workers = GaugeMetricFamily(
            catalogue.WORKERS.name, catalogue.WORKERS.description, labels=tuple(catalogue.WORKERS.labels)
        )
        workers.add_metric(("ready",), pool.ready)
        workers.add_metric(("not_ready",), not_ready(pool))
        yield workers
        for metric, value in (
            (WANTED, pool.workers - pool.leaving),
            (catalogue.VERIFYING, pool.running),
            (catalogue.UTILISATION, utilisation(pool)),
            (catalogue.QUARANTINED, len(pool.quarantined)),
        ):
            yield GaugeMetricFamily(metric.name, metric.description, value)
        retries = catalogue.INFRA_RETRIES
        yield CounterMetricFamily(retries.name, retries.description, pool.infra_retries)
