"""What the HTTP service counts of itself, as Prometheus reads it.

Labels come from closed sets: paths that exist, status codes, verdict statuses. Does not know who asked for what.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from kb_ray.records import Verdict

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


class Exposition:
    """Counters of one service; gauges are asked when they are read."""

    def __init__(self, gauges: dict[str, Callable[[], float]]) -> None:
        """`gauges`: by what they count, such as `waiting`."""
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
        for name, value in gauges.items():
            gauge = Gauge(f"kb_ray_bench_http_{name}", f"Requests or places: {name}, now.", registry=self._registry)
            gauge.set_function(value)

    def response(self, path: str, code: int) -> None:
        """One answer on one of the service's paths."""
        self._responses.labels(path, str(code)).inc()

    def verdict(self, verdict: Verdict, seconds: float) -> None:
        """One verdict and how long it took once it had a place."""
        self._verdicts.labels(str(verdict.status)).inc()
        self._seconds.observe(seconds)

    def given_up(self) -> None:
        """One request that nobody waited for any more."""
        self._given_up.inc()

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)
